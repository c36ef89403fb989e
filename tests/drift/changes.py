# SPDX-License-Identifier: Apache-2.0
"""What differs between the families of two releases, and which names and texts are alike."""

from __future__ import annotations

import difflib
import re

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.drift.families import Family
from tests.drift.knowledge import shown_name


@dataclass(frozen=True, order=True)
class Change:
    """
    One difference.

    Args:
        kind: What differs.
        subject: A family with its engine.
        before: The older value, empty for what is added.
        after: The newer value, empty for what is removed.
    """

    kind: Literal["family added", "family removed", "type", "labels", "buckets", "hidden"]
    subject: str
    before: str = ""
    after: str = ""


def family_changes(older: Iterable[Family], newer: Iterable[Family]) -> list[Change]:
    """Return all differences, sorted."""
    before, after = _by_subject(older), _by_subject(newer)
    found = [change for key in before.keys() & after.keys() for change in _differences(key, before[key], after[key])]
    found += [Change("family removed", key, before[key][0].type) for key in before.keys() - after.keys()]
    found += [Change("family added", key, "", after[key][0].type) for key in after.keys() - before.keys()]
    return sorted(found)


def _by_subject(families: Iterable[Family]) -> dict[str, list[Family]]:
    found: dict[str, list[Family]] = defaultdict(list)
    for family in families:
        found[f"{shown_name(family)} ({family.engine})"].append(family)
    return found


def _differences(subject: str, before: Sequence[Family], after: Sequence[Family]) -> Iterator[Change]:
    sides = (_values(before), _values(after))
    for (kind, old), (_, new) in zip(*sides, strict=True):
        if old != new:
            yield Change(kind, subject, old, new)  # type: ignore[arg-type]  # Of the kinds below.


def _values(families: Sequence[Family]) -> list[tuple[str, str]]:
    rows = [
        (("type", f.type), ("labels", ", ".join(f.labels)), ("buckets", _buckets(f)), ("hidden", str(f.is_hidden)))
        for f in families
    ]
    return [(column[0][0], " | ".join(sorted({text for _, text in column}))) for column in zip(*rows, strict=True)]


def _buckets(family: Family) -> str:
    """Return a family's buckets; 1 and 1.0 are one bound."""
    if isinstance(family.buckets, str):
        return family.buckets
    return ", ".join(f"{bound:g}" for bound in family.buckets)


def are_alike(name: str, other: str) -> bool:
    """Tell whether a family may have another one's name: they differ by a word that was put in or left out."""
    words, others = (set(re.split("[:_]", each)) - {"vllm", "total"} for each in (name, other))
    return len(words & others) >= 2 and (len(words ^ others) == 1 or len(words & others) / len(words | others) >= 0.75)


def closest(text: str, others: Iterable[str], alike: float) -> str | None:
    """Return the message that looks most like another one, if any does; `alike` is from 0 to 1, the same text."""
    beginning = text[:200]
    close = difflib.get_close_matches(beginning, list({other[:200]: other for other in others}), 1, alike)
    return next((other for other in others if other[:200] == close[0]), None) if close else None
