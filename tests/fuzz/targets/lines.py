# SPDX-License-Identifier: Apache-2.0
"""
Lines of a log to events: whatever a stranger writes, no value is impossible and no text becomes a name.

The first byte says which record is open before the first line, the rest is lines.
"""

from __future__ import annotations

import json
import math
import re

from urllib.parse import quote

from tests.fuzz import seeds as sources

from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.reading.log_reader import LogReader, LogStatus, TailCounts
from vllm_watch.daemon.reading.times import ArrivalTimes, local_seconds
from vllm_watch.daemon.state.http_source import HANDLERS, METHODS, OTHER, http_request_key
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.events import (
    ADAPTER_CHANGES,
    AGGREGATED,
    FAILURE_KINDS,
    MEMORY_TAGS,
    AccessRequest,
    AchievedWork,
    AdapterChange,
    DiffusionDecoding,
    EngineStats,
    Event,
    Failure,
    KvTransfers,
    Lifecycle,
    Notice,
    SleepOrPause,
    SpecDecoding,
    StartupDetail,
    StartupFact,
)
from vllm_watch_parsers.fields import MAX_COUNT, MAX_WORK
from vllm_watch_parsers.flags import Flags
from vllm_watch_parsers.kv_transfer import (
    DEPRECATED,
    KV_GAUGES,
    KV_TIERS,
    ROWS,
)
from vllm_watch_parsers.line import UNKNOWN_RECORD, parse_line
from vllm_watch_parsers.prefix import LogLine, Record, parse_head


TOKENS = sources.LOG_TOKENS

NOW = 1_795_000_000.0
MAX_ENGINE = 99_999
MAX_POSITIONS = 256

_ANSI = re.compile(rb"\x1b\[[0-9;]*m")
_STATISTICS_SITE = re.compile(rb"(?<![^\s/\[])(?:metrics\.py|loggers\.py|log_stats\.rs):\d{1,7}\] ?")
_STATISTICS_LOGGERS = {"metrics", "loggers", ""}
_VERSION = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}[0-9A-Za-z.+-]{0,60}")
_FLAG = re.compile(r"[a-z0-9-]{2,64}(?:\.[a-z_]{2,64})?")
_FLAG_VALUE = re.compile(r"[A-Za-z0-9/\[][A-Za-z0-9._/:@+\[\]-]{0,120}")
_GPU = re.compile(r"[A-Za-z0-9 -]{2,64}")
_MODEL = re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@+-]{0,255}")
_LABEL = re.compile(r"[A-Za-z0-9 ._/:@+()%-]{0,256}")
_UNKNOWN_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_+ ()/%-]{0,60}|unnamed")
_NO_BLANK = re.compile(rb":\d{1,7}\][^ ]")
_LEVEL = re.compile(r"INFO|WARNING ")
_KV_SERIES = {name for name in SERIES if name.startswith("kv_")}
_KV_LABELS = {
    *(label for table in (ROWS, DEPRECATED) for rows in table.values() for row in rows for label in row.key.labels),
    *KV_TIERS,
}
_REFUSABLE = {
    *EngineStats._fields, *SpecDecoding._fields, *StartupFact._fields, *AchievedWork._fields,
    *DiffusionDecoding._fields, *_KV_SERIES,
}  # fmt: skip

_MOST = {
    "prompt_tokens_per_second": 1e8, "generation_tokens_per_second": 1e8, "requests_running": 1e7,
    "requests_waiting": 1e7, "requests_deferred": 1e7, "requests_swapped": 1e7, "preemptions": 1e7,
    "mean_acceptance_length": 258, "accepted_tokens_per_second": 1e8, "drafted_tokens_per_second": 1e8,
    "accepted_tokens": 1e15, "drafted_tokens": 1e15, "num_speculative_tokens": 256, "system_efficiency": 1,
    "accepted_tokens_cumulative": 1e15, "drafted_tokens_cumulative": 1e15, "emitted_tokens_cumulative": 1e15,
    "is_rust": 1,
}  # fmt: skip

ECHO = b"(APIServer pid=7) INFO 11-21 02:35:10 [logger.py:300] "
FATAL = b"(EngineCore pid=9) ERROR 11-21 02:35:10 [core.py:700] "


def seeds() -> list[bytes]:
    """Return each shape of line of the corpus by itself, and some stretches."""
    stretches = [b"\n".join(lines) for lines in sources.log_excerpts(6)[:60]]
    return [b"\0" + text for text in (*sources.log_shapes(), *stretches)]


def check(data: bytes) -> None:
    """Raise AssertionError where a line says what it cannot say."""
    flags, lines = data[:1] or b"\0", data[1:].split(b"\n")
    record = _record(flags[0], lines[0])
    for line in lines:
        parsed = parse_line(line, record)
        _check_line(parsed)
        _check_site(line, parsed, record)
        _check_alone(line)
        _check_quoted(line)
        record = parsed.record
    _check_labels(lines)


def _record(flags: int, line: bytes) -> Record | None:
    """Return the record that the first line continues, if it is to continue one."""
    if not flags & 1:
        return UNKNOWN_RECORD if flags & 2 else None
    head = parse_head(line)
    text = line[: len(line) - len(head.message)] if flags & 2 else b""
    return Record(text, head.process, head.time if flags & 4 else "", "", bool(flags & 8), bool(flags & 16))


def _check_line(parsed: LogLine) -> None:
    assert hash(parsed) is not None
    for event in parsed.events:
        _check_event(event)
    seconds = local_seconds(parsed.time, NOW)
    assert seconds is None or math.isfinite(seconds)


def _check_event(event: Event) -> None:
    if isinstance(event, (EngineStats, SpecDecoding, KvTransfers, AchievedWork, DiffusionDecoding)):
        _check_periodic(event)
    elif isinstance(event, StartupFact):
        _check_fact(event)
    elif isinstance(event, StartupDetail):
        assert event.engine is None or _is_index(event.engine)
        assert event.compile_seconds is None or 0 <= event.compile_seconds <= 1e15
        _check_flags(event.flags)
    elif isinstance(event, Lifecycle):
        assert event.phase in {"starting", "ready", "shutting_down", "stopped"}
        assert event.rank is None or _is_index(event.rank)
    elif isinstance(event, Failure):
        assert event.kind in FAILURE_KINDS
        assert event.path is None or (event.path.isprintable() and 0 < len(event.path) <= 255)
        assert event.engine is None or _is_index(event.engine)
    elif isinstance(event, SleepOrPause):
        assert event.kind in {"paused", "resumed", "asleep", "awake"}
        assert set(event.memory) <= MEMORY_TAGS
    elif isinstance(event, AdapterChange):
        assert event.kind in ADAPTER_CHANGES
    elif isinstance(event, Notice):
        assert event.kind in {"api_servers_more_than_one", "stats_unparsed", "value_out_of_range"}
        assert event.quantity is None or event.quantity in _REFUSABLE
    else:
        assert isinstance(event, AccessRequest)
        assert 0 <= event.status <= 999
        key = http_request_key(event.method, event.path, str(event.status))
        assert key.method in METHODS | {OTHER}
        assert key.handler in HANDLERS | {OTHER}
        assert key.code == OTHER or (key.code.isascii() and len(key.code) == 3)


def _check_periodic(event: EngineStats | SpecDecoding | KvTransfers | AchievedWork | DiffusionDecoding) -> None:
    if isinstance(event, KvTransfers):
        _check_transfers(event)
    elif isinstance(event, (AchievedWork, DiffusionDecoding)):
        _check_work(event)
    else:
        _check_statistics(event)


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and str(int(text)) == text and int(text) <= MAX_ENGINE


def _check_statistics(event: EngineStats | SpecDecoding) -> None:
    fields = event._asdict()
    engine = fields.pop("engine")
    assert engine is None or engine == AGGREGATED or _is_index(engine)
    assert all(_UNKNOWN_FIELD.fullmatch(name) for name in fields.pop("unknown_fields"))
    positions = fields.pop("position_acceptance_ratio", None) or ()
    assert len(positions) <= MAX_POSITIONS
    assert all(ratio is None or 0 <= ratio <= 1 for ratio in positions)
    assert all(0 <= count <= 999_999_999 for count in fields.pop("kv_fetch", None) or ())
    for name, value in fields.items():
        assert value is None or 0 <= value <= (1 if name.endswith("_ratio") else _MOST[name]), name


def _check_transfers(event: KvTransfers) -> None:
    """Series and labels are of closed lists, and each value is one that its series can have."""
    assert event.engine is None or _is_index(event.engine)
    assert all(_UNKNOWN_FIELD.fullmatch(name) for name in event.unknown_fields)
    for key, value in (*event.counts, *event.gauges):
        assert key.series in _KV_SERIES
        assert set(key.labels) <= _KV_LABELS
        assert 0 <= value <= KV_GAUGES.get(key.series, MAX_COUNT)


def _check_work(event: AchievedWork | DiffusionDecoding) -> None:
    fields = event._asdict()
    engine = fields.pop("engine")
    assert engine is None or engine == AGGREGATED or _is_index(engine)
    assert all(_UNKNOWN_FIELD.fullmatch(name) for name in fields.pop("unknown_fields", ()))
    assert all(value is None or 0 <= value <= MAX_WORK for value in fields.values())


def _check_fact(event: StartupFact) -> None:
    for name, value in event._asdict().items():
        if name == "engine":
            assert value is None or _is_index(value)
        elif name == "version":
            assert value is None or _VERSION.fullmatch(value)
        elif name == "engine_generation":
            assert value is None or (value.isascii() and len(value) == 2 and value[0] == "V")
        elif name == "flags":
            _check_flags(value)
        elif name == "flags_of":
            assert value in {None, "arguments", "engine"}
        elif name == "gpu":
            assert value is None or _GPU.fullmatch(value)
        elif isinstance(value, str):
            assert _MODEL.fullmatch(value)
        else:
            assert value is None or 0 <= value <= 1e15


def _check_flags(flags: Flags) -> None:
    """Flags are of the closed list, once each, and their values are plain."""
    names = [name for name, _ in flags]
    assert names == sorted(set(names))
    assert all(_FLAG.fullmatch(name) for name in names)
    assert all(_FLAG_VALUE.fullmatch(value) for _, value in flags)


def _check_site(line: bytes, parsed: LogLine, record: Record | None) -> None:
    """Statistics come from the call sites that print them, and a continuation says no more than causes and logos."""
    said = {type(event) for event in parsed.events}
    text = _ANSI.sub(b"", line)
    if record is not None and text.startswith(record.head):
        allowed = {Failure} if record.names_causes else ({Lifecycle, StartupFact} if record.is_logo else set())
        assert said <= allowed
    if said & {EngineStats, SpecDecoding}:
        assert _STATISTICS_SITE.search(text) or _logger(text) in _STATISTICS_LOGGERS


def _logger(text: bytes) -> str | None:
    """Return the last part of the logger's name in a JSON record, or `None` for any other line."""
    try:
        record = json.loads(text[text.index(b"{") :])
    except (ValueError, RecursionError):
        return None
    name = record.get("name")
    return name.rpartition(".")[2] if isinstance(name, str) else ""


def _check_alone(line: bytes) -> None:
    r"""The quick ways to read a line give what the thorough one gives: colours and a ``\r`` at its end forbid them."""
    coloured = parse_line(b"\x1b[0m" + line)
    # What no vLLM prints may be dismissed: no operator's prefix is another record's head, and a blank is behind a site.
    if _LEVEL.search(coloured.prefix) or _NO_BLANK.search(line):
        return
    quick = parse_line(line)
    assert parse_line(line + b"\r").events == quick.events
    if b"\x1b" in line:
        return
    assert quick.events == coloured.events
    assert (quick.record, quick.is_rejected) == (coloured.record, coloured.is_rejected)
    if quick.events and quick.time:
        assert quick == coloured


def _check_quoted(line: bytes) -> None:
    """What a client sends says nothing, wherever the log repeats it."""
    line = line.rstrip(b"\r")
    assert parse_line(ECHO + line).events == ()
    assert parse_line(ECHO + b"Received request " + line + b"\r").events == ()
    opened = parse_line(ECHO + b"Received request x\r").record
    assert parse_line(ECHO + line, opened).events == ()
    failing = parse_line(FATAL + b"EngineCore encountered a fatal error.\r").record
    assert all(isinstance(event, Failure) for event in parse_line(FATAL + line, failing).events)
    text = line.decode("utf-8", "replace")
    assert parse_line(json.dumps({"name": "vllm.entrypoints.logger", "message": text}).encode()).events == ()
    path = quote(line, safe="\"'{}[]()<>=,;:|\\^`~!@#$&*+./?")
    (request,) = parse_line(f'INFO:     10.0.0.7:5 - "GET /{path[:8000]} HTTP/1.1" 200 OK'.encode()).events
    assert isinstance(request, AccessRequest)
    assert (request.method, request.status) == ("GET", 200)


def _check_labels(lines: list[bytes]) -> None:
    """All series that a log makes have labels of plain words, and numbers."""
    batch = LogReader().read(lines, ArrivalTimes(NOW))
    if not batch.events:
        return
    state = ServerState(ServerSettings("s", has_log=True, metrics_interval=None))
    state.apply_log(batch)
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
    for sample in server_samples(state.snapshot(NOW + 1)):
        assert len(sample.labels) == len(SERIES[sample.name].labels)
        assert all(_LABEL.fullmatch(label) for label in sample.labels), sample
        assert math.isfinite(sample.value), sample
