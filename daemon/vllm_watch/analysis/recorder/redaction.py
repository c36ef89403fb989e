# SPDX-License-Identifier: Apache-2.0
"""
What a recording keeps of logs: what vllm-watch reads, and nothing else.

A list of what is private is never complete: any plugin prints what it likes. So it is the other way round. Of a log
line the head stays (process, level, time, file) and as much of the message as the parsers need to report the same; of
an access line the address and what is unknown of the target go.
"""

from __future__ import annotations

import json
import re

from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, get_args

from vllm_watch.daemon.reading.framing import CUT
from vllm_watch.daemon.reading.log_reader import EventFilter, KeptLines, LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes, LineTimes
from vllm_watch.daemon.state.http_source import HANDLERS
from vllm_watch_parsers.events import AccessRequest, Event, Failure, StartupFact
from vllm_watch_parsers.failures import parse_cause
from vllm_watch_parsers.flags import read_arguments
from vllm_watch_parsers.line import UNKNOWN_RECORD, parse_line
from vllm_watch_parsers.prefix import (
    ACCESS_HEAD,
    ACCESS_START,
    PEER_END,
    LogLine,
    Record,
    parse_head,
    parse_prefixed_head,
    parse_request,
    split_process,
    strip_ansi,
)


Kind = Literal["lines", "addresses", "queries", "arguments", "results"]
"""
What is removed.

lines: log lines of which text is removed. addresses: clients', in access lines, and those of Ray's nodes. queries:
query strings, and paths that vLLM does not have. arguments: values on the command line of the benchmark. results: texts
in its results.
"""

KINDS: tuple[Kind, ...] = get_args(Kind)

REMOVED = "[removed]"
"""What is written in place of what was removed."""

_REMOVED = REMOVED.encode()
_PEER = b"0.0.0.0:0"
_NODE = re.compile(rb"( pid=\d{1,10}, ip=)[^()\s]{1,64}\)")
"""What Ray adds to the name of a process."""

_STOP = b". "
"""What may follow the last thing that is read, and says nothing."""

_READ_QUERY = re.compile(rb"(?:level|mode|tags)=\w{1,32}")
"""What is read of ``/sleep?level=1`` and ``/pause?mode=keep``."""

_ARGUMENTS = re.compile(rb"(.{0,200}?(?:args|with config): )(.*)", re.DOTALL)
_REQUEST_ID = re.compile(rb"\ARequest \S+ ")
_LONGEST_READ = 1000
"""No message that is read is longer, but for arguments."""

_JSON_HEAD = ("asctime", "levelname", "name", "process", "processName", "vllm_process_name")


class _Line(NamedTuple):
    """What is read of a line that ends in `end`, while `record` is open."""

    parsed: LogLine
    record: Record | None
    end: bytes

    @property
    def opens_failure(self) -> bool:
        """Whether it is the first line of a record whose other lines may name the cause of a failure."""
        opened = self.parsed.record
        return opened is not None and opened is not self.record and opened.names_causes

    @property
    def is_read(self) -> bool:
        """Whether it reports something."""
        return bool(self.parsed.events) or self.opens_failure

    def is_same(self, left: bytes) -> bool:
        """Return whether another text reports the same in its place."""
        again = self._replace(parsed=parse_line(left + self.end, self.record))
        return again.parsed.events == self.parsed.events and again.opens_failure == self.opens_failure


class LogRedactor:
    """Takes in the lines of one log, in order. A copy continues another file of the same log."""

    def __init__(self) -> None:
        self.removed: Counter[str] = Counter()
        self._filter = EventFilter()
        self._record: Record | None = None

    def lose_place(self) -> None:
        """Continue elsewhere: the next line may continue a record of which nothing is known."""
        self._record = UNKNOWN_RECORD

    def start_file(self) -> None:
        """Continue at the start of a file: the next line continues no record."""
        self._record = None

    def redact(self, line: bytes) -> bytes:
        r"""Return what is left of a line (without its ``\n``)."""
        record = self._record
        stripped, nodes = _NODE.subn(rb"\g<1>0.0.0.0)", strip_ansi(line))
        self.removed["addresses"] += nodes
        text = stripped.rstrip(b"\r")
        end = stripped[len(text) :]
        if record is None and (access := ACCESS_HEAD.match(text)) and (request := _request(text[access.end() :])):
            return self._access(access[0], request) + end
        read = _Line(parse_line(stripped, record), record, end)
        self._record = read.parsed.record
        text = text.replace(CUT, b"")
        if record is not None and not record.is_unknown and text.startswith(record.head):
            return self._left(record.head, text[len(record.head) :], read) + end
        return self._line(text, read) + end

    def _line(self, text: bytes, read: _Line) -> bytes:
        """
        Redact a line that continues no record.

        It is uvicorn's, a record in JSON, a record with an operator's prefix before it or without one, or, without the
        head of a record, anything else.
        """
        process, rest = split_process(text)
        if rest.startswith(ACCESS_START):
            return self._left(process + ACCESS_START, rest[len(ACCESS_START) :], read)
        head = parse_head(text)
        if head.site and rest.startswith(b"{"):
            return self._json(process, json.loads(rest), read)
        if not head.site and b"] " in text and (prefixed := parse_prefixed_head(text)):
            # A line without an event was parsed no further than to see that; what is before it may be anyone's text.
            if not self._filter.has_own_prefix(prefixed._replace(events=read.parsed.events)):
                self._record = read.record
                return self._without()
            head = prefixed
        if not head.site:
            return self._left(process, rest, read) if read.is_read else self._left(b"", text, read)
        at = text.rindex(head.message)
        return self._left(text[:at], text[at:], read)

    def _left(self, head: bytes, message: bytes, read: _Line) -> bytes:
        """Return the head, and of the message what is read."""
        if not message.strip():
            return head + message
        if not read.is_read:
            return head + self._without()
        return head + self._read_part(message, read, lambda left: read.is_same(head + left))

    def _read_part(self, message: bytes, read: _Line, is_same: Callable[[bytes], bool]) -> bytes:
        """Return the shortest start of a message of which the same is read."""
        event = next(iter(read.parsed.events), None)
        if isinstance(event, AccessRequest):
            peer, sign, text = message.partition(PEER_END)
            request = _request(text)
            return self._access(peer + sign, request) if request is not None else self._without()
        if isinstance(event, StartupFact) and event.flags_of and (arguments := _ARGUMENTS.match(message)):
            left = arguments[1] + read_arguments(arguments[2].decode("utf-8", "backslashreplace")).encode()
            self.removed["lines"] += left != message
            return left
        if isinstance(event, Failure):
            message = _REQUEST_ID.sub(b"Request [removed] ", message)
        return self._shortest(message, is_same)

    def _shortest(self, text: bytes, is_same: Callable[[bytes], bool]) -> bytes:
        """Return the shortest start of a text that is the same, and a mark; nothing of it if that is too long."""
        size = next((size for size in range(min(len(text), _LONGEST_READ) + 1) if is_same(text[:size])), None)
        if size is None:
            return self._without()
        if not text[size:].strip(_STOP):
            return text
        self.removed["lines"] += 1
        marked = text[:size] + b" " + _REMOVED
        return marked if is_same(marked) else text[:size]

    def _access(self, head: bytes, request: _Request) -> bytes:
        """Return an access line; its head has the client's address."""
        start, level, peer = head.rpartition(ACCESS_START)
        self.removed["addresses"] += peer.removesuffix(PEER_END) not in {b"", b"None"}
        self.removed["queries"] += request.is_shortened
        return start + level + _PEER + PEER_END + request.text

    def _without(self) -> bytes:
        self.removed["lines"] += 1
        return _REMOVED

    def _json(self, process: bytes, fields: dict[str, Any], read: _Line) -> bytes:
        """Redact a record in JSON: its head stays, and of its traceback the lines with a cause."""
        head = {key: value for key in _JSON_HEAD if isinstance(value := fields.get(key), str | int)}

        def written(message: bytes) -> bytes:
            text = message.decode("utf-8", "backslashreplace")
            return process + json.dumps({**head, "message": text}, ensure_ascii=False).encode("utf-8", "replace")

        if not read.is_read:
            return written(self._without())
        whole = f"{fields['message']}\n{fields.get('exc_info') or ''}".encode("utf-8", "backslashreplace")
        first, *others = whole.split(b"\n")
        named = [line for line in map(bytes.strip, others) if _cause(line)]
        causes = b"".join(b"\n" + self._shortest(line, partial(_is_same_cause, line)) for line in named)
        return written(self._read_part(first, read, lambda left: read.is_same(written(left + causes))) + causes)


def _cause(line: bytes) -> tuple[Event, ...]:
    return parse_cause(line.decode("utf-8", "backslashreplace"))


def _is_same_cause(line: bytes, left: bytes) -> bool:
    return _cause(left) == _cause(line)


class _Request(NamedTuple):
    """``GET /health HTTP/1.1" 200 OK`` without what is not read, and whether anything was removed."""

    text: bytes
    is_shortened: bool


@lru_cache(maxsize=4096)  # A log has few of them, again and again.
def _request(text: bytes) -> _Request | None:
    if parse_request(text) is None:
        return None
    method, _, rest = text.partition(b" ")
    target, _, version = rest.rpartition(b" HTTP/")
    path, sign, query = target.partition(b"?")
    if path.decode("utf-8", "replace") not in HANDLERS and path != b"/":
        return _Request(b"%s /%s HTTP/%s" % (method, _REMOVED, version), is_shortened=True)
    kept = b"&".join(item for item in query.split(b"&") if _READ_QUERY.fullmatch(item))
    left = b"%s %s%s HTTP/%s" % (method, path, sign + kept if kept else b"", version)
    return _Request(left, is_shortened=kept != query)


class RedactingReader(LogReader):
    """A `LogReader`, for one thread, whose batches have their lines: what is read of them, or with `keeps_all` all."""

    def __init__(self, *, keeps_all: bool = False) -> None:
        super().__init__()
        self._redactor = None if keeps_all else LogRedactor()

    def __copy__(self) -> RedactingReader:
        """Return a reader that knows what is open, and goes its own way from here."""
        other = RedactingReader.__new__(RedactingReader)
        other.__dict__.update({**self.__dict__, "_redactor": copy(self._redactor)})
        return other

    def read(self, lines: Sequence[bytes], times: LineTimes) -> LogBatch:
        """Read lines and keep what is left of them; what they report is of use only where they are history."""
        kept = self._redacted(self.as_written(lines))
        if isinstance(times, ArrivalTimes):
            size = sum(map(len, lines)) + len(lines)
            return LogBatch((), {}, len(lines), size, times.at(""), 0, kept=kept)
        return super().read(lines, times)._replace(kept=kept)

    def start_file(self) -> None:
        """Continue at the start of a file."""
        super().start_file()
        if self._redactor is not None:
            self._redactor.start_file()

    def lose_place(self) -> None:
        """Continue elsewhere."""
        super().lose_place()
        if self._redactor is not None:
            self._redactor.lose_place()

    def skip_lines(self, lines: Sequence[bytes]) -> None:
        """Read lines only to learn what is open after them."""
        self._redacted(self.as_written(lines))
        super().skip_lines(lines)

    def _redacted(self, lines: Sequence[bytes]) -> KeptLines:
        if self._redactor is None:
            return KeptLines(tuple(line.replace(CUT, b"") for line in lines), {})
        self._redactor.removed = Counter()
        kept = tuple(map(self._redactor.redact, lines))
        return KeptLines(kept, dict(self._redactor.removed))
