# SPDX-License-Identifier: Apache-2.0
"""
One line of vLLM's log to events.

`parse_line` is a function of the line and of the record that the line continues, and of nothing else.
It never raises and ignores everything in the wrong place: statistics count only from the call sites that
print them and never from a continuation line.
"""

from __future__ import annotations

from vllm_watch_parsers.engine_stats import (
    SPEC_STARTS,
    STATS_STARTS,
    WORK_START,
    parse_spec_decoding,
    parse_stats,
    parse_work,
)
from vllm_watch_parsers.events import Event, Failure, Lifecycle, StartupDetail, StartupFact
from vllm_watch_parsers.failures import (
    JIT_STARTS,
    MAX_ERROR_NAME,
    NCCL_STARTS,
    ROCR_STARTS,
    SHM_TIMEOUT_START,
    WATCHDOG_START,
    heads_failure,
    parse_cause,
    parse_failure,
    parse_nccl_watchdog,
    parse_rocr,
)
from vllm_watch_parsers.kv_transfer_line import KV_START, parse_kv_transfers
from vllm_watch_parsers.prefix import (
    ACCESS_HEAD,
    ACCESS_START,
    CUT,
    STATS_SITES,
    UNKNOWN_SITE,
    UVICORN,
    LogLine,
    Record,
    parse_head,
    parse_prefixed_head,
    parse_request,
    rank_of,
    strip_ansi,
)
from vllm_watch_parsers.startup import STARTS, parse_logo, parse_startup, parse_uvicorn


_RECORD_SIGN = b"] "
_MAX_UVICORN = 80

_UVICORN_START = ACCESS_START.decode()
_STATISTICS_STARTS = tuple(start.encode() for start in (*STATS_STARTS, *SPEC_STARTS, KV_START, WORK_START))
_START_LETTERS = 4
_RECORDS = frozenset(
    start[:_START_LETTERS] for start in (*STARTS, SHM_TIMEOUT_START, *JIT_STARTS, WATCHDOG_START, *_STATISTICS_STARTS)
)
"""How the messages of records start that may have an event, if they do with a letter."""

_NEWS = _RECORDS | frozenset(
    [
        *(b"INFO", b"WARN", b"ERRO", b"(API", b"(Eng", b"(Wor", b"Appl", b"Fini"),
        *(b"Asyn", b"Work", b"Mult", b"Got ", b"GPU ", b"Memo", b"HW E"),
    ]
)
"""How texts start that may have an event; most lines that continue a record start otherwise."""

_BARE_STARTS = (b"[rank", *NCCL_STARTS, *ROCR_STARTS)
"""How lines outside any record start that may report a failure, besides those that name an exception."""

_MAX_HEAD = 400
_NO_RECORDS = b"({[I\x1b"
"""How lines start that are not plain text: process groups, JSON, C++, uvicorn, colours."""

_FIRST_SIGNS = b" 0123456789#"
"""How messages start that have no first letter; the logo's lines start with a blank."""

_KV_CACHE_SIZE = b" KV cache size: "
_MAX_DEVICE = 60

_STEP = b": Iteration("
_MAX_STEP = 26
"""
Within how many characters a line on one step (``--enable-logging-iteration-details``) says that it is one: there may be
hundreds a second, and what they say, the statistics and histograms say of all steps together.
"""

ECHOING_SITES = frozenset({"logger.py", "request_logger.py", "log_response.py", "protocol.py"})
"""Files whose records have text that clients sent."""


_FAILING_SITES = frozenset({"core.py", "multiproc_executor.py", "worker_base.py"})
"""Files whose records have the tracebacks of engines and workers, not of requests."""

UNKNOWN_RECORD = Record(CUT, "", "", "", names_causes=False, is_logo=False)
"""
What may be open where reading starts inside a log: a record that some earlier line opened, or none.

All lines of a record print its time, so it is over at the first line with another time than the first; and
access lines and JSON are between records. Until then only statistics count, for their call sites print no untrusted
text.
"""


NOTHING = LogLine()
_REJECTED = NOTHING._replace(is_rejected=True)


def parse_line(line: bytes, record: Record | None = None) -> LogLine:
    r"""
    Parse one line.

    Args:
        line: The bytes between two ``\n``, at most as long as the caller's limit.
        record: The record that is open: its last line ended in ``\r``, so that this line continues it.

    Returns:
        The events of the line, most often none.
    """
    if record is None and not line.endswith(b"\r") and is_irrelevant(line):
        return NOTHING
    text = strip_ansi(line)
    if text.startswith(CUT):
        return _still_in(UNKNOWN_RECORD if text.endswith(b"\r") else record, NOTHING)
    if record is not None and text.startswith(record.head):
        return _parse_continuation(text, record)
    ends_open = text.endswith(b"\r")
    text = text.rstrip(b"\r")
    head = parse_head(text)
    if not head.site:
        # What stands before a record may be an operator's prefix; in uvicorn's lines it is what a client asked for.
        may_have_prefix = _RECORD_SIGN in text and not head.message.startswith(ACCESS_START)
        prefixed = parse_prefixed_head(text) if may_have_prefix else None
        if prefixed is None:
            return _still_in(_before_text(record, head), _parse_text(head))
        head = prefixed
    if record is not None and record.is_unknown:
        record = _before_record(record, head)
    # The lines of a record repeat its time: a later line is no part of it, even if its end was lost.
    if record is not None and head.time == record.time:
        is_statistics = record.is_unknown and head.site in STATS_SITES
        return _still_in(record, _parse_record(head, text, ends_open=ends_open) if is_statistics else NOTHING)
    return _parse_record(head, text, ends_open=ends_open)


def _before_text(record: Record | None, head: LogLine) -> Record | None:
    """Return what may be open at a line that is no record of vLLM: at uvicorn's lines no unknown record is open."""
    is_certain = record is not None and record.is_unknown and head.message.startswith(ACCESS_START)
    return None if is_certain else record


def _before_record(unknown: Record, head: LogLine) -> Record | None:
    """Return what may be open at a record's line; only JSON logs leave the time out, and their records are lines."""
    if unknown.time:
        return unknown
    return unknown._replace(time=head.time) if head.time else None


def is_irrelevant(line: bytes) -> bool:
    """
    Return whether a line that neither continues nor opens a record certainly has no event, at a fifth of the cost.

    It may let an irrelevant line pass, and never rejects one with an event.
    """
    if b"\x1b" in line:
        return False  # The colours must be removed first.
    at = line.find(_RECORD_SIGN, 0, _MAX_HEAD)
    if at < 0:
        return (
            line[:1] not in _NO_RECORDS
            and line.find(b"Error", 0, MAX_ERROR_NAME) < 0
            and not line.startswith((*NCCL_STARTS, *ROCR_STARTS))
        )
    level = line.find(b"INFO ", 0, at)
    if level < 0:
        level = line.find(b"WARNING ", 0, at)
    start = at + len(_RECORD_SIGN)
    return (
        level >= 0
        and (line[start : start + _START_LETTERS] not in _RECORDS or line.find(_STEP, start, start + _MAX_STEP) > 0)
        and line[start : start + 1] not in _FIRST_SIGNS
        and line.find(_KV_CACHE_SIZE, start, start + _MAX_DEVICE) < 0
        # JSON, and the last lines of tracebacks, are recognized before any level that they quote.
        and line.find(b"{", 0, level) < 0
        and line.find(b"Error", 0, level) < 0
    )


def _parse_record(head: LogLine, text: bytes, *, ends_open: bool) -> LogLine:
    """Parse the first line of a record, or a whole one in JSON; `ends_open` is whether the next line continues it."""
    message = head.message.decode("utf-8", "backslashreplace")
    first, _, rest = message.partition("\n")  # JSON logs hold whole tracebacks.
    events = _parse_message(head, first.rstrip("\r"))
    # What collects a log may remove the ``\r``, so that each line of a traceback is a record of its own.
    is_bare = not events and head.level == "ERROR" and head.site in _FAILING_SITES
    if is_bare:
        events = parse_cause(first)
    is_rejected = not events and (_is_statistics(head.message) or _quotes_event(rest))
    is_statistics = head.site in STATS_SITES
    names_causes = not is_statistics and heads_failure(head.level, head.site, first)
    if rest and names_causes:
        events += tuple(event for line in rest.split("\n") for event in parse_cause(line.strip()))
    opened = None
    if ends_open:
        repeated = text[: len(text) - len(head.message)]
        opened = Record(repeated, head.process, head.time, head.prefix, names_causes, is_logo=not first.strip())
    # Sites of statistics name the engine themselves: an API server prints the lines about all engines.
    if not is_statistics:
        events = _with_engine(events, head.process)
    return head._replace(events=events, record=opened, is_rejected=is_rejected, is_bare=is_bare and bool(events))


def _parse_message(head: LogLine, message: str) -> tuple[Event, ...]:
    """Parse a message by its call site: each site can only report what its code prints."""
    site = head.site
    if site in STATS_SITES:
        return _parse_statistics(message)
    if site in ECHOING_SITES:
        return ()
    if site == UVICORN:
        return parse_uvicorn(message) or _access_events(ACCESS_START + head.message)
    if site == UNKNOWN_SITE:
        # No call site is printed, but text inside a JSON string cannot start a line of its own.
        return (
            _parse_statistics(message)
            or parse_uvicorn(message)
            or parse_failure(head.level, site, message)
            or _access_events(ACCESS_START + head.message)
        )
    # What collects or edits a log may remove the ``\r``, so that each line of the logo is a record of its own.
    return parse_startup(message) or parse_logo(message) or parse_failure(head.level, site, message)


def _parse_statistics(message: str) -> tuple[Event, ...]:
    if message.startswith(SPEC_STARTS):
        return parse_spec_decoding(message)
    if message.startswith(KV_START):
        return parse_kv_transfers(message)
    return parse_stats(message) or parse_work(message) or parse_startup(message)


def _parse_continuation(text: bytes, record: Record) -> LogLine:
    still = record if text.endswith(b"\r") else None
    written = text[len(record.head) :].rstrip(b"\r")
    if _looks_like_event(written):
        return _still_in(still, _REJECTED)
    if not (record.names_causes or record.is_logo):
        return _still_in(still, NOTHING)
    message = written.decode("utf-8", "backslashreplace")
    events = parse_cause(message) if record.names_causes else parse_logo(message)
    events = _with_engine(events, record.process)
    return LogLine(record.process, "", record.time, "", written, record.prefix, events, still)


def _looks_like_event(text: bytes) -> bool:
    """Return whether a text would be an event at the start of a line, or of a record."""
    if text[:_START_LETTERS] not in _NEWS:
        return False
    message = text.decode("utf-8", "backslashreplace")
    return bool(
        parse_head(text).site
        or _parse_statistics(message)
        or parse_failure("ERROR", "", message)
        or parse_uvicorn(message.removeprefix(_UVICORN_START))
    )


def _quotes_event(rest: str) -> bool:
    return bool(rest) and any(_looks_like_event(line) for line in rest.encode("utf-8", "backslashreplace").split(b"\n"))


def _is_statistics(text: bytes) -> bool:
    if not text.startswith(_STATISTICS_STARTS):
        return False
    message = text.decode("utf-8", "backslashreplace")
    return bool(_parse_statistics(message))


def _still_in(record: Record | None, line: LogLine) -> LogLine:
    """Return a line that is not part of an open record, which stays open."""
    return line if record is None else line._replace(record=record)


def _access_events(line: bytes) -> tuple[Event, ...]:
    head = ACCESS_HEAD.match(line)
    request = None if head is None else parse_request(line[head.end() :].rstrip(b"\r"))
    return () if request is None else (request,)


def _parse_text(head: LogLine) -> LogLine:
    """Parse a line that is no vLLM record: uvicorn's, one of a traceback, or C++ output."""
    message = head.message
    if message.startswith(ACCESS_START):
        requested = _access_events(message)
        return LogLine(events=requested) if requested else head._replace(events=_uvicorn_events(head))
    if message.find(b"Error", 0, MAX_ERROR_NAME) < 0 and not message.startswith(_BARE_STARTS):
        return head
    text = message.decode("utf-8", "backslashreplace")
    if message.startswith(b"[rank"):
        return head._replace(events=parse_nccl_watchdog(text))
    if message.startswith(ROCR_STARTS):
        return head._replace(events=parse_rocr(text))
    return head._replace(events=parse_cause(text), is_bare=True)


def _uvicorn_events(head: LogLine) -> tuple[Event, ...]:
    text = head.message[len(ACCESS_START) :].rstrip(b"\r")
    events = parse_uvicorn(text.decode("utf-8", "backslashreplace")) if len(text) < _MAX_UVICORN else ()
    return _with_engine(events, head.process)


def _with_engine(events: tuple[Event, ...], process: str) -> tuple[Event, ...]:
    if not process or not events or (rank := rank_of(process)) is None:
        return events
    return tuple(_of_rank(event, rank) for event in events)


def _of_rank(event: Event, rank: str) -> Event:
    if isinstance(event, Lifecycle):
        return event._replace(rank=rank)
    if isinstance(event, (StartupFact, StartupDetail, Failure)) and event.engine is None:
        return event._replace(engine=rank)
    return event
