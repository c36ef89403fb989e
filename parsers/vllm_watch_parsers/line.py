# SPDX-License-Identifier: Apache-2.0
"""
One line of vLLM's log to events.

`parse_line` is a function of the line and of the record that the line continues, and of nothing else.
It never raises and believes nothing that stands in the wrong place: statistics count only from the call
sites that print them and never from a continuation line.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from vllm_watch_parsers.access import ACCESS_START, parse_request, request_text
from vllm_watch_parsers.events import Event, Failure, Lifecycle, StartupFact
from vllm_watch_parsers.failures import (
    MAX_ERROR_NAME,
    SHM_TIMEOUT_START,
    heads_failure,
    parse_cause,
    parse_failure,
    parse_nccl_watchdog,
)
from vllm_watch_parsers.prefix import Head, parse_head, parse_prefixed_head, rank_of, strip_ansi
from vllm_watch_parsers.spec_decode import V0_START, V1_START, parse_spec_decoding
from vllm_watch_parsers.startup import may_be_startup, parse_logo, parse_startup, parse_uvicorn
from vllm_watch_parsers.stats import parse_stats


STATS_SITES = frozenset({"metrics.py", "loggers.py", "log_stats.rs"})
"""The files whose records are statistics: V0's, V1's, and the Rust front end's."""

_STATS_SITES_BYTES = frozenset(site.encode() for site in STATS_SITES)
_LEVELS_OF_FAILURES = frozenset({b"ERROR", b"CRITICAL", b"WARNING"})

_RECORD_SIGN = b"] "
_MAX_UVICORN = 80
_MAX_REMEMBERED = 256

_ECHOING_SITES = frozenset({"logger.py", "request_logger.py", "log_response.py", "protocol.py"})
"""Files whose records hold what clients sent."""


class Record(NamedTuple):
    """A record of several lines, while it is open: what all its lines repeat, and how it began."""

    process: str
    level: str
    time: str
    site: str
    names_causes: bool
    is_logo: bool

    def is_continued_by(self, head: Head) -> bool:
        """Tell whether a line is of this record; another process may have written between its lines."""
        return (head.process, head.level, head.time, head.site) == (self.process, self.level, self.time, self.site)


class LogLine(NamedTuple):
    """
    What one line says.

    `record` is the record that the next line continues, or `None`. `prefix` is the operator's own prefix
    (VLLM_LOGGING_PREFIX) if there is one: a line with one is to be believed only where the server's start-up
    lines had the same. `is_bare` is true for text outside any record, as tracebacks are when a process dies.
    """

    events: tuple[Event, ...]
    time: str
    process: str
    record: Record | None = None
    prefix: str = ""
    is_bare: bool = False


NOTHING = LogLine((), "", "")


def parse_line(line: bytes, record: Record | None = None) -> LogLine:
    r"""
    Parse one line.

    Args:
        line: The bytes between two ``\n``, at most as long as the caller's limit.
        record: The record that is open: its last line ended in ``\r``, so that this line continues it.

    Returns:
        The events of the line, most often none.
    """
    if record is None and line.startswith(ACCESS_START) and len(line) <= _MAX_REMEMBERED:
        return _remember_request(request_text(line, len(ACCESS_START))) or _parse_uvicorn("", line[len(ACCESS_START) :])
    text = strip_ansi(line)
    ends_open = text.endswith(b"\r")
    text = text.rstrip(b"\r")
    head = parse_head(text, _may_matter if record is None and not ends_open else None)
    if head is None:
        return NOTHING
    if not head.site:
        if head.message.startswith(ACCESS_START):
            return _still_in(record, _parse_uvicorn(head.process, head.message[len(ACCESS_START) :]))
        prefixed = parse_prefixed_head(text) if _RECORD_SIGN in text else None
        if prefixed is None:
            return _still_in(record, _parse_bare(head))
        head = prefixed
    # The lines of a record repeat its time: a later line is no part of it, even if its end was lost.
    if record is not None and head.time == record.time:
        return _parse_continuation(head, record, ends_open=ends_open)
    return _parse_record(head, ends_open=ends_open)


def _may_matter(level: bytes, site: bytes, message: bytes) -> bool:
    """Tell whether a record of one line can say anything; most are dismissed here."""
    return (
        site in _STATS_SITES_BYTES
        or level in _LEVELS_OF_FAILURES
        or message.startswith(SHM_TIMEOUT_START)
        or may_be_startup(message)
    )


def _parse_record(head: Head, *, ends_open: bool) -> LogLine:
    message = head.message.decode("utf-8", "backslashreplace")
    first, _, rest = message.partition("\n")  # JSON logs hold whole tracebacks.
    events = _parse_message(head, first.rstrip("\r"))
    names_causes = heads_failure(head.level, head.site, first)
    if rest and names_causes:
        events += tuple(event for line in rest.split("\n") for event in parse_cause(line.strip()))
    opened = Record(*head[:4], names_causes, is_logo=not first.strip()) if ends_open else None
    return LogLine(_with_engine(events, head.process), head.time, head.process, opened, head.prefix)


def _parse_message(head: Head, message: str) -> tuple[Event, ...]:
    site = head.site
    if site in STATS_SITES:
        if message.startswith((V1_START, V0_START)):
            return parse_spec_decoding(message)
        return parse_stats(message) or parse_startup(message)
    if site in _ECHOING_SITES:
        return ()
    if site == "uvicorn":
        return parse_uvicorn(message) or _access_events(head.message)
    if site == "json":
        # No call site is printed, but a JSON string cannot begin a line of its own.
        if message.startswith((V1_START, V0_START)):
            return parse_spec_decoding(message)
        return (
            parse_stats(message)
            or parse_startup(message)
            or parse_uvicorn(message)
            or parse_failure(head.level, site, message)
            or _access_events(head.message)
        )
    return parse_startup(message) or parse_failure(head.level, site, message)


def _parse_continuation(head: Head, record: Record, *, ends_open: bool) -> LogLine:
    if not record.is_continued_by(head):
        return _still_in(record, NOTHING)
    events: tuple[Event, ...] = ()
    message = head.message.decode("utf-8", "backslashreplace")
    if record.names_causes:
        events = parse_cause(message)
    elif record.is_logo:
        events = parse_logo(message)
    return LogLine(
        _with_engine(events, head.process), head.time, head.process, record if ends_open else None, head.prefix
    )


def _still_in(record: Record | None, line: LogLine) -> LogLine:
    """Keep a record open over a line that is no part of it."""
    return line if record is None else line._replace(record=record)


def _parse_uvicorn(process: str, text: bytes) -> LogLine:
    requested = _request_line(request_text(text, 0))
    if requested:
        return requested
    events = parse_uvicorn(text.rstrip(b"\r").decode("utf-8", "backslashreplace")) if len(text) < _MAX_UVICORN else ()
    return LogLine(_with_engine(events, process), "", process)


def _request_line(text: bytes) -> LogLine | None:
    """Parse an access line's request: few different ones, and short, make up most of a log."""
    return _remember_request(text) if len(text) <= _MAX_REMEMBERED else _parse_request(text)


def _parse_request(text: bytes) -> LogLine | None:
    request = parse_request(text.rstrip(b"\r"))
    return LogLine((request,), "", "") if request else None


_remember_request = lru_cache(maxsize=2048)(_parse_request)


def _access_events(text: bytes) -> tuple[Event, ...]:
    requested = _request_line(request_text(text, 0))
    return requested.events if requested else ()


def _parse_bare(head: Head) -> LogLine:
    message = head.message
    if message.startswith(b"[rank"):
        return LogLine(parse_nccl_watchdog(message.decode("utf-8", "backslashreplace")), "", head.process)
    if message.find(b"Error", 0, MAX_ERROR_NAME) < 0:
        return NOTHING
    return LogLine(parse_cause(message.decode("utf-8", "backslashreplace")), "", head.process, is_bare=True)


def _with_engine(events: tuple[Event, ...], process: str) -> tuple[Event, ...]:
    if not process or not events or (rank := rank_of(process)) is None:
        return events
    return tuple(_of_rank(event, rank) for event in events)


def _of_rank(event: Event, rank: str) -> Event:
    if isinstance(event, Lifecycle):
        return event._replace(rank=rank)
    if isinstance(event, (StartupFact, Failure)) and event.engine is None:
        return event._replace(engine=rank)
    return event
