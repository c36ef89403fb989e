# SPDX-License-Identifier: Apache-2.0
"""The names of sides that nobody named: what differs in their paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias


Parts: TypeAlias = tuple[str, ...]
"""A source's path in parts, the last first: ``("run1", "mtp-on", "results")``."""


def differing_parts(sides: Sequence[Sequence[Parts]]) -> list[str] | None:
    """
    Return for each side the shortest part of its paths that no other side has; `None` if nothing tells them apart.

    What the sources of a side do not share is a number of a run, and names nobody:
    ``mtp-on/run1.json,mtp-on/run2.json`` is ``mtp-on``. The nearest folder counts more than those around it, and the
    name of the file more than all.
    """
    return _told_apart([_shared(sources) for sources in sides]) or _told_apart([sources[0] for sources in sides])


def _shared(sources: Sequence[Parts]) -> Parts:
    """Return the parts that all sources of a side have in one place; an empty text where they differ."""
    depth = min(map(len, sources))
    places = [{source[at] for source in sources} for at in range(depth)]
    return tuple(place.pop() if len(place) == 1 else "" for place in places)


def _told_apart(paths: Sequence[Parts]) -> list[str] | None:
    around = min(map(len, paths)) - 1
    while around and len({path[-around:] for path in paths}) > 1:
        around -= 1
    paths = [path[: len(path) - around] for path in paths]  # Without the folders that all of them are in.
    depth = max(map(len, paths))
    columns = [[path[at] if at < len(path) else "" for path in paths] for at in range(depth)]
    for column in columns:
        if all(column) and len(set(column)) == len(column):
            return column
    differing = [column for column in columns if len(set(column)) > 1]
    names = ["/".join(part for part in reversed(parts) if part) for parts in zip(*differing, strict=True)]
    return names if names and all(names) and len(set(names)) == len(names) else None
