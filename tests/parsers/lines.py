# SPDX-License-Identifier: Apache-2.0
"""Lines as vLLM writes them, for tests of one line at a time."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Any, NamedTuple

from vllm_watch.daemon.reading.log_reader import LogReader, TimedEvent
from vllm_watch.daemon.reading.times import LineTimes
from vllm_watch_parsers import events as event_types
from vllm_watch_parsers.events import EngineStats, Event, SpecDecoding
from vllm_watch_parsers.line import parse_line


TIME = "11-21 02:35:10"

STATS_MESSAGE = (
    "Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 45.6 tokens/s, "
    "Running: 7 reqs, Waiting: 8 reqs, GPU KV cache usage: 9.1%, Prefix cache hit rate: 55.5%"
)
STATS = EngineStats(
    engine="0",
    prompt_tokens_per_second=12.3,
    generation_tokens_per_second=45.6,
    requests_running=7,
    requests_waiting=8,
    kv_cache_usage_ratio=0.091,
    prefix_cache_hit_ratio=0.555,
)

SPEC_MESSAGE = (
    "SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 30.00 tokens/s, "
    "Drafted throughput: 40.00 tokens/s, Accepted: 300 tokens, Drafted: 400 tokens, "
    "Per-position acceptance rate: 0.900, 0.600, Avg Draft acceptance rate: 75.0%"
)
SPEC = SpecDecoding(
    mean_acceptance_length=2.5,
    accepted_tokens_per_second=30.0,
    drafted_tokens_per_second=40.0,
    accepted_tokens=300,
    drafted_tokens=400,
    acceptance_ratio=0.75,
    position_acceptance_ratio=(0.9, 0.6),
)


class Message(NamedTuple):
    """A row of `messages.tsv`: what a message of one era means."""

    era: str
    site: str
    level: str
    text: str
    events: tuple[Event, ...]


def _event(kind: str, fields: dict[str, Any]) -> Event:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    if "flags" in values:
        values["flags"] = tuple(map(tuple, values["flags"]))
    return getattr(event_types, kind)(**values)


def _message(row: str) -> Message:
    era, site, level, text, written = row.split("\t")
    found = [] if written == "-" else json.loads(written)
    return Message(era, site, level, text, tuple(_event(*item) for event in found for item in event.items()))


_TABLE = Path(__file__).with_name("messages.tsv").read_text(encoding="utf-8").splitlines()
MESSAGES = [_message(row) for row in _TABLE if not row.startswith("# ")]
CAUSES = [row for row in MESSAGES if row.site == "cause"]
"""Last lines of tracebacks."""


def record(message: str, site: str = "loggers.py", level: str = "INFO", process: str = "") -> bytes:
    """Return a record as releases from 0.8.0 write it."""
    return f"{process}{level} {TIME} [{site}:300] {message}".encode()


def old_record(message: str, site: str = "metrics.py", level: str = "INFO", process: str = "") -> bytes:
    """Return a record as releases up to 0.7.3 write it."""
    return f"{process}{level} {TIME} {site}:349] {message}".encode()


def json_record(message: str, **fields: object) -> bytes:
    """Return a record of `--logging-config.formatter json` (0.32 and later)."""
    named = {
        "asctime": "2026-11-21 02:39:36,679",
        "levelname": "INFO",
        "name": "vllm.v1.metrics.loggers",
        "processName": "MainProcess",
        "process": 6589,
        "message": message,
        "vllm_process_name": "APIServer",
    }
    return json.dumps({**named, **fields}, ensure_ascii=False).encode()


def events(line: bytes) -> tuple[Event, ...]:
    """Return what one line says on its own."""
    return parse_line(line).events


def events_of(lines: bytes) -> list[Event]:
    """Return what a piece of log says, line after line."""
    found: list[Event] = []
    open_record = None
    for line in lines.split(b"\n"):
        parsed = parse_line(line, open_record)
        open_record = parsed.record
        found += parsed.events
    return found


def read_line(reader: LogReader, line: bytes, times: LineTimes) -> tuple[TimedEvent, ...]:
    """Read one line and return its events, those of the access log included."""
    batch = reader.read([line], times)
    return (*batch.events, *(TimedEvent(batch.end, request) for request in batch.requests))
