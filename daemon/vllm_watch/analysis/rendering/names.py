# SPDX-License-Identifier: Apache-2.0
"""Names that are short and still differ: of paths, the parts that are not the same in all of them."""

from __future__ import annotations

from collections.abc import Sequence


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without the folders that all begin with and the parts that all end with: ``bench1``, ``bench2``."""
    if len(set(names)) < 2:
        return list(names)
    parts = [name.split("/") for name in names]
    start = _alike(parts)
    end = _alike([each[start:][::-1] for each in parts])
    short = ["/".join(each[start : len(each) - end]) for each in parts]
    return short if all(short) else list(names)


def _alike(parts: Sequence[Sequence[str]]) -> int:
    """Return how many first parts are the same in all."""
    count = 0
    for each in zip(*parts, strict=False):
        if len(set(each)) > 1:
            return count
        count += 1
    return count
