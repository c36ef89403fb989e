# SPDX-License-Identifier: Apache-2.0
"""What differs between two inventories."""

from __future__ import annotations

import difflib
import re

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.drift.families import Family
from tests.drift.inventory import Inventory, digest
from tests.drift.knowledge import shown_name
from tests.drift.messages import Message


ChangeKind = Literal[
    "family added",
    "family removed",
    "family renamed",
    "type",
    "labels",
    "buckets",
    "hidden",
    "help",
    "statistics added",
    "statistics removed",
    "statistics changed",
    "message added",
    "message removed",
    "message changed",
    "ray added",
    "ray removed",
    "rust family added",
    "rust family removed",
]


@dataclass(frozen=True, order=True)
class Change:
    """
    One difference.

    Args:
        kind: What differs.
        subject: Of what: a family with its engine, or a message.
        before: The older value, empty for what is added.
        after: The newer value, empty for what is removed.
    """

    kind: ChangeKind
    subject: str
    before: str = ""
    after: str = ""


_ALIKE_TEXTS = 0.6
_Key = tuple[str, str]


def changes_between(older: Inventory, newer: Inventory) -> list[Change]:
    """Return all differences, sorted."""
    found = [*_family_changes(older.families, newer.families), *_message_changes(older, newer)]
    found += [Change("ray added", fact, "", fact) for fact in set(newer.ray) - set(older.ray)]
    found += [Change("ray removed", fact, fact) for fact in set(older.ray) - set(newer.ray)]
    if older.rust is not None and newer.rust is not None:
        found += [Change("rust family added", name, "", name) for name in set(newer.rust) - set(older.rust)]
        found += [Change("rust family removed", name, name) for name in set(older.rust) - set(newer.rust)]
    return sorted(found)


def _family_changes(older: Iterable[Family], newer: Iterable[Family]) -> list[Change]:
    before, after = _by_name(older), _by_name(newer)
    found = [change for key in before.keys() & after.keys() for change in _differences(before[key], after[key])]
    gone, new = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    for key in list(gone):
        successor = _successor(key, new, before, after)
        if successor is not None:
            found.append(Change("family renamed", _subject(key), key[0], successor[0]))
            gone.remove(key)
            new.remove(successor)
    found += [Change("family removed", _subject(key), _described(before[key][0])) for key in gone]
    found += [Change("family added", _subject(key), "", _described(after[key][0])) for key in new]
    return found


def _by_name(families: Iterable[Family]) -> dict[_Key, list[Family]]:
    found: dict[_Key, list[Family]] = defaultdict(list)
    for family in families:
        found[shown_name(family), family.engine].append(family)
    return found


def _subject(key: _Key) -> str:
    return f"{key[0]} ({key[1]})"


def _described(family: Family) -> str:
    return f"{family.type} {{{', '.join(family.labels)}}}"


def _successor(
    key: _Key, new: Sequence[_Key], before: Mapping[_Key, list[Family]], after: Mapping[_Key, list[Family]]
) -> _Key | None:
    """Return the new family that has the engine, type, labels and nearly the name of one that is gone."""
    alike = [other for other in new if other[1] == key[1] and _shape(before[key]) == _shape(after[other])]
    return next((other for other in alike if are_alike(key[0], other[0])), None)


def are_alike(name: str, other: str) -> bool:
    """Tell whether a family may have another one's name: they differ by a word that was put in or left out."""
    words, others = (set(re.split("[:_]", each)) - {"vllm", "total"} for each in (name, other))
    return len(words & others) >= 2 and (len(words ^ others) == 1 or len(words & others) / len(words | others) >= 0.75)


def _shape(families: Sequence[Family]) -> tuple[str, tuple[str, ...]]:
    return families[0].type, families[0].labels


def _differences(before: Sequence[Family], after: Sequence[Family]) -> list[Change]:
    subject = _subject((shown_name(before[0]), before[0].engine))
    sides: tuple[tuple[ChangeKind, str, str], ...] = (
        ("type", _each(f.type for f in before), _each(f.type for f in after)),
        ("labels", _each(", ".join(f.labels) for f in before), _each(", ".join(f.labels) for f in after)),
        ("buckets", _each(buckets_text(f) for f in before), _each(buckets_text(f) for f in after)),
        ("hidden", _each(str(f.is_hidden) for f in before), _each(str(f.is_hidden) for f in after)),
        ("help", _each(digest(f.help) for f in before), _each(digest(f.help) for f in after)),
    )
    return [Change(kind, subject, one, other) for kind, one, other in sides if one != other]


def _each(texts: Iterable[str]) -> str:
    return " | ".join(sorted(set(texts)))


def buckets_text(family: Family) -> str:
    """Return a family's buckets; 1 and 1.0 are one bound."""
    if isinstance(family.buckets, str):
        return family.buckets
    return ", ".join(f"{bound:g}" for bound in family.buckets)


def _message_changes(older: Inventory, newer: Inventory) -> list[Change]:
    found: list[Change] = []
    for is_periodic, word in ((True, "statistics"), (False, "message")):
        before = _formats(older, is_periodic=is_periodic)
        after = _formats(newer, is_periodic=is_periodic)
        gone, new = sorted(before - after), sorted(after - before)
        for text in list(gone):
            close = closest(text, new)
            if close is not None:
                found.append(Change(f"{word} changed", text, text, close))  # type: ignore[arg-type]  # Of the two words.
                gone.remove(text)
                new.remove(close)
        found += [Change(f"{word} removed", text, text) for text in gone]  # type: ignore[arg-type]  # The same.
        found += [Change(f"{word} added", text, "", text) for text in new]  # type: ignore[arg-type]  # The same.
    return found


def _formats(inventory: Inventory, *, is_periodic: bool) -> set[str]:
    return {_format(each.message) for each in inventory.messages if each.message.is_periodic is is_periodic}


def _format(message: Message) -> str:
    return message.format


def closest(text: str, others: Iterable[str], alike: float = _ALIKE_TEXTS) -> str | None:
    """Return the message that looks most like another one, if any does; `alike` is from 0 to 1, the same text."""
    beginning = text[:200]
    close = difflib.get_close_matches(beginning, list({other[:200]: other for other in others}), 1, alike)
    return next((other for other in others if other[:200] == close[0]), None) if close else None
