# SPDX-License-Identifier: Apache-2.0
"""A side as it is named on the command line: ``run.json``, ``A=run1.json,run2.json``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_watch.loadtest.source_names import without_endings
from vllm_watch.support.errors import UsageError


FEWEST_SIDES = 2


class SideArgument(NamedTuple):
    """The name of a side and its sources, of one run or of several."""

    name: str
    paths: tuple[str, ...]


def parse_sides(texts: Sequence[str], exists: Callable[[str], bool]) -> tuple[SideArgument, ...]:
    """
    Read the sides of a comparison.

    A side without a name has that of its first source: of the file without its endings, or, where two would be the
    same, as it was given.

    Args:
        texts: As given, in order.
        exists: Whether a text is the path of a file: then an equals sign or a comma is a part of it.

    Raises:
        UsageError: There are fewer than two, one has no source, or two have one name.
    """
    if len(texts) < FEWEST_SIDES:
        raise UsageError(
            "give at least two sides, each a source or NAME=SOURCE,SOURCE…, as in A=a1.json,a2.json b.json"
        )
    parsed = [_parse(text, exists) for text in texts]
    stems = [_stem(paths[0]) for _, paths in parsed]
    names = [
        name if name is not None else stem if stems.count(stem) == 1 else paths[0]
        for (name, paths), stem in zip(parsed, stems, strict=True)
    ]
    twins = [name for name in names if names.count(name) > 1]
    if twins:
        raise UsageError(f"two sides have the name {twins[0]}: name them, as in A={parsed[0][1][0]}")
    return tuple(SideArgument(name, paths) for name, (_, paths) in zip(names, parsed, strict=True))


def _parse(text: str, exists: Callable[[str], bool]) -> tuple[str | None, tuple[str, ...]]:
    if exists(text):
        return None, (text,)
    before, separator, after = text.partition("=")
    name, listed = (before, after) if separator and "/" not in before else (None, text)
    paths = (listed,) if exists(listed) else tuple(listed.split(","))
    if name == "" or not all(paths):
        raise UsageError(f"{text!r}: expected a source, or NAME=SOURCE,SOURCE…")
    return name, paths


def _stem(path: str) -> str:
    return without_endings(path.rstrip("/").rpartition("/")[2]) or path
