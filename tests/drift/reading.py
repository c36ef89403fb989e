# SPDX-License-Identifier: Apache-2.0
"""What the real parsers make of a message: the line is printed as vLLM does, and parsed as the daemon does."""

from __future__ import annotations

import re

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tests.drift.filling import Filled, fillings, least, whole
from tests.drift.messages import Message

from vllm_watch_parsers.events import EngineStats, Event, Notice
from vllm_watch_parsers.failures import parse_cause
from vllm_watch_parsers.line import parse_line
from vllm_watch_parsers.prefix import Record


@dataclass(frozen=True)
class Understood:
    """
    What is understood of a message.

    Args:
        meanings: What its events say: ``StartupFact.kv_cache_tokens``, ``Failure:engine_dead``; empty if it has none.
        missing: The parts whose numbers are in no event.
        complaints: What the parser complains of.
    """

    meanings: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether there is an event, and nothing of the message is lost."""
        return bool(self.meanings) and not self.missing and not self.complaints


_NUMBER = re.compile(r"[\d.]+")
_STARTS_OPEN = re.compile(r"%[sr]|\{\}")
_SAYING = ("phase", "kind")
"""Fields whose value is the meaning."""


def understand(message: Message) -> Understood:
    """Return what the parsers make of a message, with all of its optional parts and, if there are some, without."""
    return _understood(message.format, message.level, message.site)


@lru_cache(maxsize=8192)  # Releases have most messages in common.
def _understood(format_: str, level: str, site: str) -> Understood:
    message = Message(format_, level, is_periodic=False, place=f"{site}:0")
    forms = dict.fromkeys([whole(message.format), least(message.format)])
    found = [_best(message, form) for form in forms]
    return Understood(
        _merged(each.meanings for each in found),
        _merged(each.missing for each in found),
        _merged(each.complaints for each in found),
    )


def _merged(several: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for each in several for text in each))


def _best(message: Message, form: str) -> Understood:
    """Return what is understood of the samples of which most is understood."""
    best = Understood()
    for is_mixed in (False, True):
        # A device or a process at the start decides whether any parser looks further.
        if is_mixed and not (best.meanings or _STARTS_OPEN.match(form)):
            break
        for filled in fillings(form, is_mixed=is_mixed):
            found = _of_events(_events(message, filled.text), filled)
            if found.is_whole and "%s" not in form and "{}" not in form:
                return found
            if _rank(found) > _rank(best):
                best = found
    return best


def _rank(found: Understood) -> tuple[int, int, int]:
    return (len(found.meanings), -len(found.complaints), -len(found.missing))


def _events(message: Message, text: str) -> tuple[Event, ...]:
    """Return what is read of a message; a record of several lines repeats its head in each."""
    lines = text.split("\n")
    if message.level == "RAISED":
        return parse_cause(lines[0])
    events: tuple[Event, ...] = ()
    record: Record | None = None
    for number, line in enumerate(lines, start=1):
        end = "\r" if number < len(lines) else ""
        read = parse_line(f"{message.level} 11-21 02:35:10 [{message.site}:12] {line}{end}".encode(), record)
        events, record = events + read.events, read.record
    return events


def _of_events(events: tuple[Event, ...], filled: Filled) -> Understood:
    values = {value for event in events for value in _values(event)}
    missing = [words for sample, words in filled.samples if _NUMBER.fullmatch(sample) and not _is_in(sample, values)]
    if any(type(event).__name__ in _CALCULATED for event in events):
        missing = []
    complaints = [f"{each.kind} {each.quantity or ''}".strip() for each in events if isinstance(each, Notice)]
    for event in events:
        complaints += [f"unknown field {name}" for name in getattr(event, "unknown_fields", ())]
    meanings = [meaning for event in events if not isinstance(event, Notice) for meaning in _meanings(event)]
    notices = [f"Notice:{each.kind}" for each in events if isinstance(each, Notice) and each.kind not in _FAULTS]
    faults = [complaint for complaint in complaints if complaint.split()[0] in {*_FAULTS, "unknown"}]
    is_statistics = any(isinstance(event, EngineStats) for event in events)
    return Understood(
        tuple(dict.fromkeys([*meanings, *notices])), tuple(missing) if meanings or is_statistics else (), tuple(faults)
    )


_CALCULATED = {"AchievedWork", "KvTransfers"}
"""Events whose values are calculated from those of the line: what of it is not known is in `unknown_fields`."""

_FAULTS = {"stats_unparsed", "value_out_of_range"}


def _values(event: Event) -> Iterator[float | str]:
    for value in event:
        yield from _flat(value)


def _flat(value: object) -> Iterator[float | str]:
    if isinstance(value, tuple):
        for each in value:
            yield from _flat(each)
    elif isinstance(value, (int, float, str)) and not isinstance(value, bool):
        yield value


def _is_in(sample: str, values: set[float | str]) -> bool:
    if sample in values or str(int(sample) if sample.isdigit() else sample) in values:
        return True
    try:
        number = float(sample)
    except ValueError:
        return False
    numbers = [value for value in values if not isinstance(value, str)]
    # A percentage is a ratio; V1 up to 0.8.5 left the bonus token out of the length.
    return any(abs(value - wanted) < 1e-9 for value in numbers for wanted in (number, number / 100, number + 1))


def _meanings(event: Event) -> Iterator[str]:
    kind = type(event).__name__
    saying = [name for name in _SAYING if name in event._fields]
    if saying:
        yield f"{kind}:{getattr(event, saying[0])}"
        return
    for name, value in zip(event._fields, event, strict=True):
        if value not in (None, (), "") and name not in {"engine", "flags_of", "unknown_fields", "is_rust"}:
            yield f"{kind}.{name}"
