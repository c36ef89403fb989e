# SPDX-License-Identifier: Apache-2.0
"""What of one vLLM the parsers do not know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from tests.drift.changes import Change, are_alike, closest, family_changes
from tests.drift.families import Family
from tests.drift.inventory import Inventory
from tests.drift.knowledge import NEEDED, QUANTITIES, is_known, is_read, shown_name, why_line_left_out
from tests.drift.messages import Message
from tests.drift.reading import understand

from vllm_watch_parsers.front_ends import VLLM_NAMES
from vllm_watch_parsers.metric_names import HISTOGRAM_PARTS


FindingKind = Literal[
    "unknown family",
    "needed quantity is gone",
    "family changed",
    "statistics not understood",
    "message is gone",
    "ray changed",
]
KINDS: dict[FindingKind, str] = {
    "unknown family": "Metric families that no parser reads and tests/completeness/left_out.py does not name",
    "needed quantity is gone": "Quantities that the parsers read, of which no family is left",
    "family changed": "Families that are known, with another type, other labels or other buckets",
    "statistics not understood": "Statistics that the parsers do not read, or not whole",
    "message is gone": "Messages of the start and of failures that nothing prints any more",
    "ray changed": "How families get to Ray",
}
"""The kinds of findings with their headings."""

_ALIKE, _NEARLY_THE_SAME = 0.6, 0.8
"""How much a message resembles one that is gone: that of which others say the same is missed only if it was changed."""

_CHANGED = ("type", "labels", "buckets", "hidden")


@dataclass(frozen=True, order=True)
class Finding:
    """
    One thing to decide about.

    Args:
        kind: What it is.
        subject: The family, the quantity or the message.
        details: What is known of it, line by line.
        place: Where the sources have it, empty if they do not.
    """

    kind: FindingKind
    subject: str
    details: tuple[str, ...] = ()
    place: str = ""


def findings_of(inventory: Inventory, baseline: Inventory | None) -> list[Finding]:
    """Return what is new in a vLLM for the parsers, and what they knew in an older one and do not find any more."""
    found = [
        *_unknown_families(inventory),
        *_unknown_rust(inventory),
        *_gone_quantities(inventory, baseline),
        *_misread_statistics(inventory.messages),
    ]
    if baseline is not None:
        found += [*_changed_families(baseline, inventory), *_gone_messages(baseline, inventory)]
        found += [Finding("ray changed", fact, ("this is new",)) for fact in set(inventory.ray) - set(baseline.ray)]
        found += [Finding("ray changed", fact, ("this is gone",)) for fact in set(baseline.ray) - set(inventory.ray)]
    return sorted(set(found), key=lambda finding: (list(KINDS).index(finding.kind), finding))


def _unknown_families(inventory: Inventory) -> Iterator[Finding]:
    missing = {name for names in QUANTITIES.values() for name in names[:1]} - _names(inventory)
    for family in inventory.families:
        if is_known(family):
            continue
        details = [f"{family.type}, labels: {', '.join(family.labels) or 'none'}"]
        older = [name for name in sorted(missing) if are_alike(shown_name(family), name)]
        details += [f"perhaps the new name of {name}" for name in older]
        yield Finding("unknown family", shown_name(family), tuple(details), family.place)


def _unknown_rust(inventory: Inventory) -> Iterator[Finding]:
    shown = {shown_name(family).removesuffix("_total") for family in inventory.families if is_known(family)}
    for name in inventory.rust or ():
        sample_names = {name, f"{name}_total", *(name + part for part in HISTOGRAM_PARTS)}
        as_family = Family(name, "V1", "gauge", (), (), False, "")
        if VLLM_NAMES.isdisjoint(sample_names) and name not in shown and not is_known(as_family):
            yield Finding("unknown family", name, ("registered by the Rust front end alone",), "rust/")


def _gone_quantities(inventory: Inventory, baseline: Inventory | None) -> Iterator[Finding]:
    now, then = _names(inventory), _names(baseline) if baseline is not None else set()
    for quantity, names in QUANTITIES.items():
        is_needed = quantity in NEEDED or not then.isdisjoint(names)
        if is_needed and now.isdisjoint(names):
            new = [name for name in now - then if are_alike(name, names[0])]
            details = (f"it was {' or '.join(names)}", *(f"perhaps it is now {name}" for name in sorted(new)))
            yield Finding("needed quantity is gone", quantity, details)


def _names(inventory: Inventory) -> set[str]:
    return {shown_name(family) for family in inventory.families}


def _changed_families(baseline: Inventory, inventory: Inventory) -> Iterator[Finding]:
    read = {f"{shown_name(family)} ({family.engine})" for family in inventory.families if is_read(family)}
    for change in family_changes(baseline.families, inventory.families):
        if change.kind in _CHANGED and change.subject in read:
            yield Finding("family changed", f"{change.subject}: {change.kind}", _sides(change, baseline.version))


def _sides(change: Change, version: str) -> tuple[str, ...]:
    return (f"{version or 'before'}: {change.before or 'none'}", f"now: {change.after or 'none'}")


def _misread_statistics(messages: Iterable[Message]) -> Iterator[Finding]:
    for each in messages:
        if not each.is_periodic or why_line_left_out(each.format) is not None:
            continue
        understood = understand(each)
        details = [f"not found again: {part}" for part in understood.missing if why_line_left_out(part) is None]
        details += [f"the parser says: {complaint}" for complaint in understood.complaints]
        if not understood.meanings:
            details = ["no parser reads it", *details]
        if details:
            yield Finding("statistics not understood", each.format, tuple(details), each.place)


def _gone_messages(baseline: Inventory, inventory: Inventory) -> Iterator[Finding]:
    formats = {each.format for each in inventory.messages}
    meanings = {meaning for each in inventory.messages for meaning in understand(each).meanings}
    for each in baseline.messages:
        lost = [meaning for meaning in understand(each).meanings if meaning not in meanings]
        if each.format in formats:
            continue
        now = closest(each.format, inventory.other_formats, _ALIKE if lost else _NEARLY_THE_SAME)
        if understand(each).meanings and (lost or now is not None):
            details = [f"nothing else says {meaning}" for meaning in lost]
            details += [f"perhaps it is now: {now}"] if now is not None else []
            yield Finding("message is gone", each.format, tuple(details))
