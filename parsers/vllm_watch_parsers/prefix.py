# SPDX-License-Identifier: Apache-2.0
"""
The head of a log line, before the message: process, level, time and call site; and uvicorn's access lines.

vLLM has printed five forms since 0.5 (with and without brackets, with the process before
or inside the record), optionally coloured, or as JSON. The call site is what makes a line
trustworthy: text that a client sent can look like any message, but it is printed from the
call site of the code that echoes it.
"""

from __future__ import annotations

import json
import re

from functools import lru_cache
from typing import NamedTuple

from vllm_watch_parsers.events import AccessRequest, Event


STATS_SITES = frozenset({"metrics.py", "loggers.py", "perf.py", "log_stats.rs"})
"""The files whose records are statistics: V0's, V1's (`perf.py` on achieved work), and the Rust front end's."""

UVICORN = "uvicorn:"
UNKNOWN_SITE = "json:"
"""The call site in JSON logs without one; no printed site has this name, for none has a colon."""

_ANSI = re.compile(rb"\x1b\[[0-9;]*m")

# `(APIServer pid=7) `, `(VllmWorker rank=0 pid=9) `, Ray's `(RayWorkerWrapper pid=3, ip=10.0.0.2) `.
_PROCESS = rb"\([A-Za-z][^()\s]{0,80}(?: [^()\s]{1,80})? pid=\d{1,10}(?:, ip=[^()\s]{1,64})?\) ?"

_PROCESSES = rb"(?:" + _PROCESS + rb"){0,4}"
_LEVEL = rb"DEBUG|INFO|WARNING|ERROR|CRITICAL"
_TIME = rb"\d\d-\d\d \d\d:\d\d:\d\d"
_PATH = rb"[^\s:\]\[]"
_LINE_NUMBER = rb":\d{1,7}\]"

_RECORD = re.compile(rb"(%b)(?:(%b) (%b) \[?(%b{1,256})%b)?" % (_PROCESSES, _LEVEL, _TIME, _PATH, _LINE_NUMBER))

# The operator's own VLLM_LOGGING_PREFIX, before the process or after it.
_PREFIXED_RECORD = re.compile(
    rb"(?P<outer>%b)(?P<prefix>[^\r\n(]{1,64}?)(?P<process>%b)(?P<level>%b) (?P<time>%b) \[?(?P<path>%b{1,256})%b ?"
    % (_PROCESSES, _PROCESSES, _LEVEL, _TIME, _PATH, _LINE_NUMBER)
)

_RAY_REPEAT = re.compile(rb" \[repeated \d{1,9}x across cluster\][^\n]{0,80}$")
_RAY_SIGN = b" [repeated "
_RANK = re.compile(r"(?:EngineCore_(?:DP)?|(?:APIServer|Worker|VllmWorker)_DP|ApiServer_)(\d{1,5})(?!\d)")


class Record(NamedTuple):
    """
    A record of several lines, while it is open: what all its lines repeat, and how it started.

    `head` is the text before the message, colour codes removed: process, level, time and call site. Another process
    may write between a record's lines, with another head.
    """

    head: bytes
    process: str
    time: str
    prefix: str
    names_causes: bool
    is_logo: bool

    @property
    def is_unknown(self) -> bool:
        """Whether it is not known which record it is, and whether one is open at all."""
        return self.head == CUT


CUT = b"\0"
"""Marks where a line was cut off that was too long; no other line has it. At its start the whole line is unknown."""


class LogLine(NamedTuple):
    """
    One line: its head, its message as bytes, and, once it is parsed, what it reports.

    `process` is the text of the process groups (``"(APIServer pid=7) "``), `level` and `site` are empty for a line that
    is no vLLM record; a JSON log may leave the level out, too. `time` is as printed: ``11-21 02:35:10`` or, in JSON
    logs, ``2026-11-21 02:39:36,679``. `site` is the file's base name, or the last part of the logger's name with
    ``.py`` for JSON logs (`UVICORN` for its own loggers, `UNKNOWN_SITE` where there is none). `prefix` is the
    operator's own (VLLM_LOGGING_PREFIX), if any: a line with one counts only if the server's first lines had the same.

    `record` is the record that the next line continues, or `None`. `is_bare` is true for text outside any record, as
    tracebacks are when a process dies, and for a record that is one line of a traceback. `is_rejected` is true for a
    line that looks like an event where none is printed: it may be forged.
    """

    process: str = ""
    level: str = ""
    time: str = ""
    site: str = ""
    message: bytes = b""
    prefix: str = ""
    events: tuple[Event, ...] = ()
    record: Record | None = None
    is_bare: bool = False
    is_rejected: bool = False


def split_process(line: bytes) -> tuple[bytes, bytes]:
    """Split a line after the process groups that it starts with, if it does."""
    size = _RECORD.match(line).end(1)  # type: ignore[union-attr]  # All of it is optional.
    return line[:size], line[size:]


def strip_ansi(line: bytes) -> bytes:
    """Remove colour codes: releases up to 0.15 write them into files, too."""
    return _ANSI.sub(b"", line) if b"\x1b" in line else line


@lru_cache(maxsize=1024)
def rank_of(process: str) -> str | None:
    """Return the data-parallel rank or API server number in a process name, or `None`."""
    found = _RANK.search(process)
    return str(int(found[1])) if found else None


def parse_head(line: bytes) -> LogLine:
    """
    Split one line without its line end into head and message.

    Args:
        line: The line's bytes, colour codes removed.

    Returns:
        The head; for a line that is no vLLM record, one with an empty `site` and
        the text after the process groups as message.
    """
    process, level, time, path = _RECORD.match(line).groups()  # type: ignore[union-attr]  # All of it is optional.
    if level is None:
        return _parse_unprefixed(process.decode("ascii", "replace"), line[len(process) :])
    # At most one blank is between the call site and the message; others belong to the message.
    start = line.index(b"]", len(process) + len(level) + len(time) + len(path) + 2) + 1
    message = line[start + 1 :] if line[start : start + 1] == b" " else line[start:]
    site = path.rpartition(b"/")[2]
    if _RAY_SIGN in message:
        message = _RAY_REPEAT.sub(b"", message)
    return LogLine(
        process.decode("ascii", "replace"), level.decode(), time.decode(), site.decode("utf-8", "replace"), message
    )


def _parse_unprefixed(process: str, message: bytes) -> LogLine:
    json_head = _parse_json(process, message) if message.startswith(b"{") else None
    return json_head or LogLine(process, "", "", "", message)


def parse_prefixed_head(line: bytes) -> LogLine | None:
    """
    Parse a record that starts with the operator's VLLM_LOGGING_PREFIX.

    The prefix could be anything, also untrusted text: the caller accepts a record only
    if its prefix is that of the server's own start-up lines.
    """
    found = _PREFIXED_RECORD.match(line)
    if found is None:
        return None
    process = (found["outer"] + found["process"]).decode("ascii", "replace")
    prefix = found["prefix"].decode("utf-8", "backslashreplace")
    return LogLine(
        process,
        found["level"].decode(),
        found["time"].decode(),
        found["path"].rpartition(b"/")[2].decode("utf-8", "replace"),
        line[found.end() :],
        prefix,
    )


def _parse_json(process: str, message: bytes) -> LogLine | None:
    """Read a record of `--logging-config.formatter json` or of a python-json-logger setup."""
    try:
        record = json.loads(message)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(text := record.get("message"), str):
        return None

    def text_of(key: str) -> str:
        value = record.get(key)
        return value if isinstance(value, str) else ""

    name = text_of("name").rpartition(".")[2]
    if name in {"access", "error"} and text_of("name").startswith("uvicorn"):
        site = UVICORN
    else:
        site = f"{name}.py" if name else UNKNOWN_SITE
    exception = text_of("exc_info")
    body = f"{text}\n{exception}" if exception else text
    named = text_of("vllm_process_name") or text_of("processName")
    if not process and named:
        process = f"({named} pid={record.get('process', 0)}) "
    return LogLine(process, text_of("levelname"), text_of("asctime"), site, body.encode("utf-8", "backslashreplace"))


ACCESS_START = b"INFO:     "
PEER_END = b' - "'
"""
The text between the peer and the request.

Peers are IPv4 and IPv6 addresses, ``x:0`` (forwarded), ``None``, or empty (unix socket): without a blank.
"""

ACCESS_HEAD = re.compile(
    rb"(?:(?:\x1b\[[0-9;]*m)?\([A-Za-z][^()\s]{0,80} pid=\d{1,10}\)(?:\x1b\[[0-9;]*m)? )?"
    rb"(?:\x1b\[32m)?INFO(?:\x1b\[0m)?:     [^ ]*" + re.escape(PEER_END)
)
"""
An access line up to its request: with the name of the process from 0.10.2 to 0.20.2, coloured up to 0.15, without it
before and since. A terminal's lines have colours in the rest, too.
"""

# The target may hold quotes and whole fake log lines, percent-encoded or not: it ends at the last
# ` HTTP/x.y" ` of the line, and holds no blank.
_REQUEST = re.compile(rb"([A-Z]{1,16}) (\S{1,8192}) HTTP/\d(?:\.\d)?\" (\d{3})(?: [A-Za-z' -]{0,60})?$")


def parse_request(text: bytes) -> AccessRequest | None:
    """Parse ``GET /health HTTP/1.1" 200 OK``."""
    found = _REQUEST.match(text)
    if found is None:
        return None
    target = found[2].decode("utf-8", "backslashreplace")
    return AccessRequest(found[1].decode(), target.partition("?")[0], int(found[3]), target)
