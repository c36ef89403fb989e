# SPDX-License-Identifier: Apache-2.0
"""
The statistics lines of V1 in the form in which nearly all of them are printed, parsed in one step.

`engine_stats` and `spec_decode` find fields by name, whatever their order, and report what is wrong with a line. That
takes three times as long. A line with any other text, with ``nan`` or with a greater number is left to them: here
every number that matches is in its range.
"""

from __future__ import annotations

import re

from functools import lru_cache
from typing import NamedTuple

from vllm_watch_parsers.events import EngineStats, SpecDecoding


_HEAD = r"(\([A-Za-z]\w{0,40} pid=\d{1,10}\) )?INFO (\d\d-\d\d \d\d:\d\d:\d\d) \["
_RATE = r"(\d{1,7}\.\d{1,2})"
_COUNT = r"(\d{1,6})"
_PERCENT = r"(\d{1,2}\.\d{1,2}|100\.0)%"
_SHARE = r"(?:0\.\d{3}|1\.000)"
_STATS = re.compile(
    _HEAD + r"(?:v1/metrics/)?loggers\.py:\d{1,7}\] Engine (\d{1,4}): "
    rf"Avg prompt throughput: {_RATE} tokens/s, Avg generation throughput: {_RATE} tokens/s, "
    rf"Running: {_COUNT} reqs, Waiting: {_COUNT} reqs, (?:Deferred: {_COUNT} reqs, )?"
    rf"[A-Z]{{2,8}} KV cache usage: {_PERCENT}, Prefix cache hit rate: {_PERCENT}"
    rf"(?:, External prefix cache hit rate: {_PERCENT})?(?:, MM cache hit rate: {_PERCENT})?\Z",
    re.ASCII,
)
_DRAFTS = re.compile(
    _HEAD + r"(?:v1/spec_decode/)?metrics\.py:\d{1,7}\] SpecDecoding metrics: "
    rf"Mean acceptance length: (\d{{1,2}}\.\d{{1,2}}), Accepted throughput: {_RATE} tokens/s, "
    rf"Drafted throughput: {_RATE} tokens/s, Accepted: (\d{{1,12}}) tokens, Drafted: (\d{{1,12}}) tokens, "
    rf"Per-position acceptance rate: ({_SHARE}(?:, {_SHARE}){{0,63}}), Avg Draft acceptance rate: {_PERCENT}\Z",
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
    return _parse_stats(text) if line[site - 1] == _LAST_OF_LOGGERS else _parse_drafts(text)


def _parse_stats(text: str) -> UsualStatistics | None:
    found = _STATS.match(text)
    if found is None:
        return None
    process, time, engine, prompt, generation, running, waiting, deferred, cache, hits, external, media = found.groups()
    stats = EngineStats(
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
    return UsualStatistics(stats, time, process or "")


def _parse_drafts(text: str) -> UsualStatistics | None:
    found = _DRAFTS.match(text)
    if found is None:
        return None
    process, time, length, accepted_rate, drafted_rate, accepted, drafted, positions, rate = found.groups()
    drafts = SpecDecoding(
        None,
        float(length),
        float(accepted_rate),
        float(drafted_rate),
        int(accepted),
        int(drafted),
        _ratio(rate),
        tuple(map(float, positions.split(", "))),
    )
    return UsualStatistics(drafts, time, process or "")


@lru_cache(maxsize=256)
def _engine(number: str) -> str:
    return str(int(number))


@lru_cache(maxsize=2048)  # Nearly all have one decimal: there are 1001 of them.
def _ratio(percent: str) -> float:
    """Return a percentage as a ratio: as a decimal exponent 12.3 % is 0.123, without an error of division."""
    return float(percent + "e-2")
