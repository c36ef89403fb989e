# SPDX-License-Identifier: Apache-2.0
"""
What a recording keeps of logs, results and command lines: what vllm-watch reads, and nothing else.

A list of what is private is never complete: any plugin prints what it likes. So it is the other way round. Of a log
line the head stays (process, level, time, file) and as much of the message as the parsers need to report the same; of
an access line the address and what is unknown of the target go; of statistics, which quote nobody, all stays.
"""

from __future__ import annotations

import json
import re

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, get_args

from vllm_watch.daemon.reading.framing import CUT
from vllm_watch.daemon.reading.log_reader import EventFilter, KeptLines, LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes, LineTimes
from vllm_watch.daemon.state.http_source import HANDLERS
from vllm_watch_parsers.benchmark import read_lines
from vllm_watch_parsers.benchmark_printed import READ_ARGUMENTS
from vllm_watch_parsers.benchmark_result import reason_of
from vllm_watch_parsers.events import AccessRequest, Event, Failure, Lifecycle, StartupFact
from vllm_watch_parsers.failures import parse_cause
from vllm_watch_parsers.flags import read_arguments
from vllm_watch_parsers.line import UNKNOWN_RECORD, parse_line
from vllm_watch_parsers.prefix import (
    ACCESS_HEAD,
    ACCESS_START,
    PEER_END,
    STATS_SITES,
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

lines: log lines of which text is removed. addresses: clients', in access lines. queries: query strings, and paths that
vLLM does not have. arguments: values on the command line of the benchmark. results: texts in its results.
"""

KINDS: tuple[Kind, ...] = get_args(Kind)

REMOVED = "[removed]"
"""What is written in place of what was removed."""

_REMOVED = REMOVED.encode()
_PEER = b"0.0.0.0:0"
_READ_QUERY = re.compile(rb"(?:level|mode|tags)=\w{1,32}")
"""What is read of ``/sleep?level=1`` and ``/pause?mode=keep``."""

_ARGUMENTS = re.compile(rb"(.{0,200}?(?:args|with config): )(.*)", re.DOTALL)
_REQUEST_ID = re.compile(rb"\ARequest \S+ ")
_LONGEST_READ = 1000
"""No message that is read is longer, but for statistics and arguments."""

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
        stripped = strip_ansi(line)
        text = stripped.rstrip(b"\r")
        end = stripped[len(text) :]
        if record is None and (access := ACCESS_HEAD.match(text)) and (request := _request(text[access.end() :])):
            return self._access(access[0], *request) + end
        read = _Line(parse_line(line, record), record, end)
        self._record = read.parsed.record
        text = text.replace(CUT, b"")
        if record is not None and not record.is_unknown and text.startswith(record.head):
            return self._left(record.head, text[len(record.head) :], read) + end
        return self._line(text, read) + end

    def _line(self, text: bytes, read: _Line) -> bytes:
        """Redact a line that continues no record."""
        process, rest = split_process(text)
        if rest.startswith(ACCESS_START):
            return self._left(process + ACCESS_START, rest[len(ACCESS_START) :], read)
        head = parse_head(text)
        if head.site and rest.startswith(b"{"):
            return self._json(process, json.loads(rest), read)
        if not head.site and b"] " in text and (prefixed := parse_prefixed_head(text)):
            if not self._filter.has_own_prefix(read.parsed):  # A client's text.
                self._record = read.record
                return self._without()
            head = prefixed
        if not head.site:
            return self._left(process, rest, read) if read.is_read else self._left(b"", text, read)
        if head.site in STATS_SITES:
            return text
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
            return self._access(peer + sign, *request) if request is not None else self._without()
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
        if size == len(text):
            return text
        self.removed["lines"] += 1
        marked = text[:size] + b" " + _REMOVED
        return marked if is_same(marked) else text[:size]

    def _access(self, head: bytes, request: bytes, is_shortened: bool) -> bytes:  # noqa: FBT001 - As `_request` has it.
        """Return an access line; its head has the client's address."""
        start, level, peer = head.rpartition(ACCESS_START)
        self.removed["addresses"] += peer.removesuffix(PEER_END) not in {b"", b"None"}
        self.removed["queries"] += is_shortened
        return start + level + _PEER + PEER_END + request

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


@lru_cache(maxsize=4096)  # A log has few of them, again and again.
def _request(text: bytes) -> tuple[bytes, bool] | None:
    """Return ``GET /health HTTP/1.1" 200 OK`` without what is not read, and whether anything was removed."""
    if parse_request(text) is None:
        return None
    method, _, rest = text.partition(b" ")
    target, _, version = rest.rpartition(b" HTTP/")
    path, sign, query = target.partition(b"?")
    if path.decode("utf-8", "replace") not in HANDLERS and path != b"/":
        return b"%s /%s HTTP/%s" % (method, _REMOVED, version), True
    kept = b"&".join(item for item in query.split(b"&") if _READ_QUERY.fullmatch(item))
    return b"%s %s%s HTTP/%s" % (method, path, sign + kept if kept else b"", version), kept != query


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


def start_lines(batch: LogBatch) -> Iterator[tuple[float, bytes]]:
    """Yield those of a batch's lines that tell how the server was started, each record with its time."""
    if batch.kept is None:
        return
    reader = LogReader()
    times = iter([timed.at for timed in batch.events])
    record: list[bytes] = []
    at, is_wanted = batch.end, False
    for line in batch.kept.lines:
        record = [*record, line] if reader.is_in_record else [line]
        for timed in reader.read([line], ArrivalTimes(batch.end)).events:
            at = next(times, batch.end)
            is_wanted = is_wanted or isinstance(timed.event, StartupFact | Lifecycle)
        if is_wanted and not reader.is_in_record:
            yield at, b"".join(line + b"\n" for line in record)
            is_wanted = False


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?|inf")
_WORD = re.compile(r"[A-Za-z_./-]{1,128}")


def redact_arguments(argv: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """
    Return a command line with the values of the options that are read, numbers, and the names of all options.

    And how many values were removed. Words of letters before the first option are the command.
    """
    left = list(argv[:1])
    option = ""
    for argument in argv[1:]:
        name, sign, value = argument.partition("=")
        if argument.startswith("-") and not _NUMBER.fullmatch(argument):
            option = name.lstrip("-").replace("-", "_")
            left.append(name + sign + _value(option, value) if sign else argument)
        else:
            left.append(_value(option, argument) if option or not _WORD.fullmatch(argument) else argument)
    return tuple(left), sum(new != old for new, old in zip(left, argv, strict=True))


def _value(option: str, value: str) -> str:
    is_read = option in READ_ARGUMENTS or _NUMBER.fullmatch(value) is not None
    return value if is_read else REMOVED


_PRIVATE_NAME = re.compile(r"key|token$|secret|password|credential|auth|header|cookie", re.IGNORECASE)


def redact_result(text: str) -> tuple[str, int]:
    """
    Return a result of a benchmark, in JSON or as it was printed, with what is read of it; and how many texts went.

    In JSON all numbers stay, and texts beside them, among them the user's metadata, but for names of keys. Of errors
    only the reason stays.
    """
    if text.lstrip()[:1] not in {"{", "["}:
        left = read_lines(text)
        return left, text.count("\n") - left.count("\n")
    decoder, at, parts, removed = json.JSONDecoder(), 0, [], Counter[str]()
    try:
        while (at := len(text) - len(text[at:].lstrip())) < len(text):
            value, at = decoder.raw_decode(text, at)
            entries = [_redacted(entry, removed) for entry in (value if isinstance(value, list) else [value])]
            parts.append(json.dumps(entries if isinstance(value, list) else entries[0], ensure_ascii=False))
    except (ValueError, RecursionError):
        removed[""] += 1  # It is cut off, and of no use.
    return "\n".join(parts) + "\n", removed.total()


def _redacted(value: Any, removed: Counter[str], name: str = "") -> Any:  # noqa: ANN401 - Any JSON.
    """Return a value of a result without its texts, but for those of the object itself."""
    if isinstance(value, dict):
        return {
            key: each if isinstance(each, str) and not name and not _PRIVATE_NAME.search(key)
            else _redacted(each, removed, key)
            for key, each in value.items()
        }  # fmt: skip
    if isinstance(value, list):
        return [_redacted(each, removed, name) for each in value]
    if not isinstance(value, str) or not value:
        return value
    left = reason_of(value) if name == "errors" else REMOVED
    removed[name] += left != value
    return left
