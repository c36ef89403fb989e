# SPDX-License-Identifier: Apache-2.0
"""
The statistics lines of V1 in the form in which nearly all of them are printed, parsed in one step.

`engine_stats` and `spec_decode` find fields by name, whatever their order, and report what is wrong with a line. That
takes three times as long. A line with any other text, with ``nan`` or with a greater number is left to them: here
every number that matches is in its range.
"""

from __future__ import annotations

import re

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from vllm_watch_parsers.events import EngineStats, SpecDecoding


_HEAD = (
    r"(?P<head>(?P<process>\([A-Za-z]\w{0,40} pid=\d{1,10}\) )?INFO (?P<hour>\d\d-\d\d \d\d)(?P<clock>:\d\d:\d\d)) \["
)
_RATE = r"\d{1,7}\.\d{1,2}"
_COUNT = r"(\d{1,6})"
_PERCENT = r"(\d{1,2}\.\d{1,2}|100\.0)%"
_SHARE = r"(?:0\.\d{3}|1\.000)"
_STATS_MESSAGE = (
    r"(?:v1/metrics/)?loggers\.py:\d{1,7}\] Engine (?P<engine>\d{1,4}): "
    rf"Avg prompt throughput: (?P<prompt>{_RATE}) tokens/s, "
    rf"Avg generation throughput: (?P<generation>{_RATE}) tokens/s, "
    rf"Running: {_COUNT} reqs, Waiting: {_COUNT} reqs, (?:Deferred: {_COUNT} reqs, )?"
    rf"[A-Z]{{2,8}} KV cache usage: {_PERCENT}, Prefix cache hit rate: {_PERCENT}"
    rf"(?:, External prefix cache hit rate: {_PERCENT})?(?:, MM cache hit rate: {_PERCENT})?"
)
_STATS_GROUPS = 10
_DRAFTS_MESSAGE = (
    r"(?:v1/spec_decode/)?metrics\.py:\d{1,7}\] SpecDecoding metrics: "
    rf"Mean acceptance length: (\d{{1,2}}\.\d{{1,2}}), Accepted throughput: ({_RATE}) tokens/s, "
    rf"Drafted throughput: (?P<drafted_rate>{_RATE}) tokens/s, "
    r"Accepted: (?P<accepted>\d{1,12}) tokens, Drafted: (?P<drafted>\d{1,12}) tokens, "
    rf"Per-position acceptance rate: ({_SHARE}(?:, {_SHARE}){{0,63}}), Avg Draft acceptance rate: {_PERCENT}"
)
_STATS = re.compile(rf"{_HEAD}{_STATS_MESSAGE}\Z", re.ASCII)
_DRAFTS = re.compile(rf"{_HEAD}{_DRAFTS_MESSAGE}\Z", re.ASCII)
_INTERVAL_OR_LINE = re.compile(
    rf"{_HEAD}{_STATS_MESSAGE}\n(?:(?P=head) \[{_DRAFTS_MESSAGE}\n)?|[^\n]*\n",
    re.ASCII,
)
_SIGN = b"s.py:"
_SIGN_END = 100
"""The call site is within so many bytes."""

_LAST_OF_LOGGERS = ord("r")


class UsualStatistics(NamedTuple):
    """What a line reports, with the time and the process in its head."""

    event: EngineStats | SpecDecoding
    time: str
    process: str


def parse_usual_statistics(line: bytes) -> UsualStatistics | None:
    r"""Parse a line without its ``\n``; `None` if it is no statistics line, or one of another form."""
    site = line.find(_SIGN, 1, _SIGN_END)
    if site < 0:
        return None
    text = line.decode("latin-1")  # The forms are ASCII.
    is_stats = line[site - 1] == _LAST_OF_LOGGERS
    found = (_STATS if is_stats else _DRAFTS).match(text)
    if found is None:
        return None
    _, process, hour, clock, *fields = found.groups()
    return UsualStatistics(_stats(fields) if is_stats else _drafts(fields), hour + clock, process or "")


def usual_intervals(text: str) -> Iterator[re.Match[str]]:
    r"""
    Yield matches that cover a text of whole lines, without reading their numbers, which takes half of the time.

    A match is what an engine has printed at one moment: its line of statistics and, if it follows, the one on drafts
    of the same process. It has the groups ``process``, ``hour`` (``11-21 02``), ``clock`` (``:35:10``), ``engine``,
    ``prompt``, ``generation`` and, with drafts, ``accepted``, ``drafted`` and ``drafted_rate``. Or it is any other
    line, with its ``\n`` and no group.
    """
    return _INTERVAL_OR_LINE.finditer(text)


def interval_statistics(found: re.Match[str]) -> Iterator[UsualStatistics]:
    """Yield what the lines of an interval report."""
    _, process, hour, clock, *fields = found.groups()
    yield UsualStatistics(_stats(fields[:_STATS_GROUPS]), hour + clock, process or "")
    if found["drafted"]:
        yield UsualStatistics(_drafts(fields[_STATS_GROUPS:]), hour + clock, process or "")


def _stats(texts: Sequence[str | Any]) -> EngineStats:
    engine, prompt, generation, running, waiting, deferred, cache, hits, external, media = texts
    return EngineStats(
        _engine(engine),
        float(prompt),
        float(generation),
        int(running),
        int(waiting),
        None if deferred is None else int(deferred),
        None,
        _ratio(cache),
        None,
        _ratio(hits),
        None,
        None if external is None else _ratio(external),
        None if media is None else _ratio(media),
    )


def _drafts(texts: Sequence[str]) -> SpecDecoding:
    length, accepted_rate, drafted_rate, accepted, drafted, positions, rate = texts
    return SpecDecoding(
        None,
        float(length),
        float(accepted_rate),
        float(drafted_rate),
        int(accepted),
        int(drafted),
        _ratio(rate),
        tuple(map(float, positions.split(", "))),
    )


@lru_cache(maxsize=256)
def _engine(number: str) -> str:
    return str(int(number))


@lru_cache(maxsize=2048)  # Nearly all have one decimal: there are 1001 of them.
def _ratio(percent: str) -> float:
    """Return a percentage as a ratio: as a decimal exponent 12.3 % is 0.123, without an error of division."""
    return float(percent + "e-2")
