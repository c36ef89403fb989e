# SPDX-License-Identifier: Apache-2.0
r"""
What can be found in a part of a log without knowing what came before it: nearly all of the work of reading.

What depends on the lines before is left to the log's reader: which events count, and when lines without a time were
written. The parts are plain: no line ends in ``\r\n``, so none opens a record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from vllm_watch.daemon.reading.access_lines import (
    NO_ACCESS,
    NOT_UVICORNS,
    PART,
    SHORT_TEXT,
    AccessForm,
    Separated,
    access_form,
    separate,
)
from vllm_watch.daemon.reading.framing import MAX_LINE, has_long_line
from vllm_watch.daemon.reading.statistics_runs import without_middles
from vllm_watch_parsers.events import AccessRequest, EngineStats, SpecDecoding
from vllm_watch_parsers.prefilter import is_irrelevant
from vllm_watch_parsers.usual_statistics import UsualStatistics


class ParsedText(NamedTuple):
    """
    What a part of a log holds.

    Args:
        lines: How many lines it completes.
        size: How many bytes these lines are.
        rest: The start of the line that it does not complete.
        by_text: How often each text from the method on came in access lines that start with no name.
        requests: The same of access lines with names, as requests.
        others: All other lines that may have events, in order: as they are, or as packed statistics; of long runs of
            statistics only those whose reports outlive the run.
    """

    lines: int
    size: int
    rest: bytes
    by_text: dict[bytes, int]
    requests: dict[AccessRequest, int]
    others: list[bytes | tuple[str, str, tuple[object, ...]]]


class ParsedRun(NamedTuple):
    """Lines without an event: how many bytes they are, and what they hold."""

    size: int
    found: Separated


class ParsedSteps(NamedTuple):
    """
    What a part of a log holds, in steps.

    Args:
        lines: How many lines it completes.
        rest: The start of the line that it does not complete.
        steps: Lines that may have an event, each by itself, and what is between them.
    """

    lines: int
    rest: bytes
    steps: list[bytes | ParsedRun]


def parse_text(data: bytes, start: int) -> ParsedText | None:
    r"""
    Parse a part of a log, as it would be read outside of a record by a reader that wants to know the log's end only.

    Args:
        data: The part, and some bytes before it, of a log that no container runtime has wrapped.
        start: Where the part starts in `data`.

    Returns:
        What it holds, or `None` where only a reader that knows the lines before can tell.
    """
    whole = _whole_lines(data, start)
    if whole is None:
        return None
    text, rest = whole
    found = ParsedText(0, len(text) - 1, rest, {}, {}, [])
    others: list[bytes] = []
    form = access_form(text)
    at = 1
    while at < len(text):
        stop = text.rfind(b"\n", at, at + PART) + 1
        part = separate(text, at, stop, form)
        if part is None:
            return None
        found = found._replace(lines=found.lines + part.lines)
        for request, number in part.by_text.items():
            found.by_text[request] = found.by_text.get(request, 0) + number
        for named, number in part.requests.items():
            found.requests[named] = found.requests.get(named, 0) + number
        others += part.others
        at = stop
    found.others.extend(_packed(line) for line in without_middles(others))
    return found


def parse_steps(data: bytes, start: int, alone: Collection[bytes]) -> ParsedSteps | None:
    """
    Parse a part of a log, as it would be read outside of a record by a reader that wants each event in its turn.

    Args:
        data: As for `parse_text`.
        start: The same.
        alone: Access lines with one of these texts are steps of their own.

    Returns:
        What it holds, or `None` where only a reader that knows the lines before can tell.
    """
    whole = _whole_lines(data, start)
    if whole is None:
        return None
    text, rest = whole
    steps = list(steps_of(text, access_form(text), alone))
    return ParsedSteps(sum(step.found.lines if isinstance(step, ParsedRun) else 1 for step in steps), rest, steps)


def _whole_lines(data: bytes, start: int) -> tuple[bytes, bytes] | None:
    r"""Return the lines that a part completes, after a ``\n``, and the start of the next; `None` if it is not plain."""
    first, end = data.rfind(b"\n", 0, start) + 1, data.rfind(b"\n", start) + 1
    is_torn = start > 0 and not first
    if is_torn or not end or b"\0" in data or b"\r" in data or len(data) - end > MAX_LINE:
        return None
    text = b"\n" + data[first:end]
    return None if has_long_line(text, MAX_LINE) else (text, data[end:])


def steps_of(text: bytes, form: AccessForm, alone: Collection[bytes]) -> Iterator[bytes | ParsedRun]:
    r"""
    Yield the steps of a text outside of records, in which no line ends in ``\r``.

    Args:
        text: Whole lines after a ``\n``, each with its own.
        form: The form of their access lines.
        alone: As for `parse_steps`.
    """
    start = 1
    for found in NOT_UVICORNS.finditer(text):
        if not is_irrelevant(found[1]):
            yield from _run(text, start, found.start(1), form, alone)
            yield found[1]
            start = found.end() + 1
    yield from _run(text, start, len(text), form, alone)


def _run(text: bytes, start: int, end: int, form: AccessForm, alone: Collection[bytes]) -> Iterator[bytes | ParsedRun]:
    """Yield the steps of lines that are uvicorn's or have no event: most often they are access lines and no more."""
    while start < end:
        stop = end if end - start <= PART else text.rfind(b"\n", start, start + PART) + 1
        found = separate(text, start, stop, form) if stop - start > SHORT_TEXT else None
        if found is None or _has_steps(found, alone):
            yield from _steps_of_each(text, start, stop, alone)
        else:
            yield ParsedRun(stop - start, found)
        start = stop


def _has_steps(found: Separated, alone: Collection[bytes]) -> bool:
    """Tell whether one of these lines may have to be a step of its own."""
    if not all(is_irrelevant(line) for line in found.others if line):
        return True
    targets = [request.target.encode() for request in found.requests]
    return any(each in text for text in (*found.by_text, *targets) for each in alone)


def _steps_of_each(text: bytes, start: int, end: int, alone: Collection[bytes]) -> Iterator[bytes | ParsedRun]:
    """Yield the steps of some lines after a look at each of them."""
    for found in NO_ACCESS.finditer(text, start - 1, end - 1):
        if not is_irrelevant(found[1]):
            yield from _run_of_each(text, start, found.start(1), alone)
            yield found[1]
            start = found.end() + 1
    yield from _run_of_each(text, start, end, alone)


def _run_of_each(text: bytes, start: int, end: int, alone: Collection[bytes]) -> Iterator[bytes | ParsedRun]:
    if start >= end:
        return
    lines = text[start : end - 1].split(b"\n")
    if any(text.find(each, start, end) >= 0 for each in alone):
        yield from lines
    else:
        yield ParsedRun(end - start, Separated(len(lines), {}, {}, lines))


def unpacked(packed: tuple[str, str, tuple[object, ...]]) -> UsualStatistics:
    """Return the statistics that were packed."""
    time, process, fields = packed
    kind = EngineStats if len(fields) == len(EngineStats._fields) else SpecDecoding
    return UsualStatistics(kind._make(fields), time, process)


def _packed(line: bytes | UsualStatistics) -> bytes | tuple[str, str, tuple[object, ...]]:
    """Return statistics as plain tuples, which are quickly sent to another process; other lines as they are."""
    return line if isinstance(line, bytes) else (line.time, line.process, tuple(line.event))
