# SPDX-License-Identifier: Apache-2.0
"""A side as it is named on the command line: ``run.json``, ``A=run1.json,run2.json``, ``A=2026-11-20T14:00/14:10``."""

from __future__ import annotations

import re

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_watch.analysis.loadtest.source_kind import without_endings
from vllm_watch.daemon.config.moments import TimeRange, parse_from_to
from vllm_watch.daemon.support.errors import UsageError


FEWEST_SIDES = 2

_RANGE = re.compile(r"(?:(?P<server>[^@]+)@)?(?P<times>(?:now|[-+\d])[-+\d:.TtZzsmhdw ]*/[^/]*)", re.ASCII)
"""What is meant as a time range, right or wrong: a folder's name that looks so must exist."""


class RangeArgument(NamedTuple):
    """A time range of a server's series in a Prometheus, as given: ``2026-11-20T14:00/14:10``, ``qwen@-2h/-1h``."""

    text: str
    times: TimeRange
    server: str | None = None


class SideArgument(NamedTuple):
    """The name of a side and its sources, of one run or of several: files, and time ranges."""

    name: str
    paths: tuple[str, ...]
    ranges: tuple[RangeArgument, ...] = ()


def parse_sides(texts: Sequence[str], exists: Callable[[str], bool], now: float) -> tuple[SideArgument, ...]:
    """
    Read the sides of a comparison.

    A side without a name has that of its first source: of the file without its endings, or of the server, or, where two
    would be the same, as it was given.

    Args:
        texts: As given, in order.
        exists: Whether a text is the path of a file: then signs in it are a part of it.
        now: The present, in seconds since the epoch.

    Raises:
        UsageError: There are fewer than two, one has no source or a wrong time range, or two have one name.
    """
    if len(texts) < FEWEST_SIDES:
        raise UsageError(
            "give at least two sides, each a source or NAME=SOURCE,SOURCE…, as in A=a1.json,a2.json b.json"
        )
    parsed = [_parse(text, exists) for text in texts]
    sources = [[_source(each, exists, now) for each in listed] for _, listed in parsed]
    stems = [_stem(each[0]) for each in sources]
    names = [
        name if name is not None else stem if stems.count(stem) == 1 else listed[0]
        for (name, listed), stem in zip(parsed, stems, strict=True)
    ]
    twins = [name for name in names if names.count(name) > 1]
    if twins:
        raise UsageError(f"two sides have the name {twins[0]}: give each its own, as in A={parsed[0][1][0]}")
    return tuple(_side(name, each) for name, each in zip(names, sources, strict=True))


def _parse(text: str, exists: Callable[[str], bool]) -> tuple[str | None, tuple[str, ...]]:
    if exists(text):
        return None, (text,)
    before, separator, after = text.partition("=")
    name, listed = (before, after) if separator and "/" not in before else (None, text)
    sources = (listed,) if exists(listed) else tuple(listed.split(","))
    if name == "" or not all(sources):
        raise UsageError(f"{text!r}: expected a source, or NAME=SOURCE,SOURCE…")
    return name, sources


def _source(text: str, exists: Callable[[str], bool], now: float) -> str | RangeArgument:
    found = None if exists(text) else _RANGE.fullmatch(text)
    if found is None:
        return text
    try:
        return RangeArgument(text, parse_from_to(found["times"], now), found["server"])
    except ValueError as error:
        raise UsageError(f"{text!r}: there is no such file, and as a time range FROM/TO: {error}") from None


def _side(name: str, sources: Sequence[str | RangeArgument]) -> SideArgument:
    ranges = dict.fromkeys(each for each in sources if isinstance(each, RangeArgument))
    return SideArgument(name, tuple(each for each in sources if isinstance(each, str)), tuple(ranges))


def _stem(source: str | RangeArgument) -> str:
    if isinstance(source, RangeArgument):
        return source.server or source.text
    return without_endings(source.rstrip("/").rpartition("/")[2]) or source
