# SPDX-License-Identifier: Apache-2.0
"""Messages of vLLM that have text of clients, made anew from what is harmless."""

from __future__ import annotations

import json
import re

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

from vllm_watch.analysis.recorder.private_text import REMOVED, PrivateText, redact_json
from vllm_watch.daemon.reading.framing import CUT
from vllm_watch.daemon.reading.log_reader import EventFilter, KeptLines, LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes, LineTimes
from vllm_watch.daemon.state.http_source import HANDLERS
from vllm_watch_parsers.events import Lifecycle, StartupFact
from vllm_watch_parsers.flags import top_level_items
from vllm_watch_parsers.line import ECHOING_SITES, UNKNOWN_RECORD, LogLine, Record, parse_line
from vllm_watch_parsers.prefix import (
    ACCESS_START,
    PEER_END,
    Head,
    parse_head,
    parse_prefixed_head,
    split_process,
    strip_ansi,
)


_CLIENT_SITE = re.compile(r"(?:\w*tool\w*|\w*parser|harmony\w*|connection|validation|exception|vllm_error|http)\.py")
"""Files whose records quote what a client sent, or what the model answered."""

_HANDLER_SITE = re.compile(r"(?:\w*serving\w*|\w*api_router|chat_utils|\w*preprocess\w*|input_processor)\.py")
"""Files whose warnings and errors do."""

_QUOTE = re.compile(r": |(?=['\"\[{(=])")
"""Where such a message begins to quote."""

LITERAL = re.compile(r"""'(?:[^'\\]|\\.)+'|"(?:[^"\\]|\\.)+"|[\[{].+[\]}]""", re.DOTALL)
"""A printed string, list or object."""

_RECEIVED = re.compile(r"(Received request )(.*?)(: (?=prompt: |params: |.*params: ))(.*)", re.DOTALL)
_PARAMS = re.compile(r"(?:^|, )params: (\w{1,40})\((.*)\)", re.DOTALL)
_GENERATED = re.compile(
    r"(Generated response )(.*?)((?: \(streaming (?:delta|complete)\))?(?: details)?: output.*)", re.DOTALL
)
_FINISH = re.compile(r", finish_reason: ([a-z_]{1,20}|None)\Z")
_REJECTED = re.compile(
    r"(Request queue full - rejecting request )(.*)( \(current=\d+, n=\d+, max=\d+\)\.?)\Z", re.DOTALL
)
_ENDED = re.compile(
    r"(Request )(.*?)( (?:aborted\b|failed\b)(?: with an internal error during generation| \([a-z ]{1,30}\))?)(.*)",
    re.DOTALL,
)
_NAMED_REQUEST = re.compile(
    r"((?:Added|Finished|Aborted|Abort|Aborting|Rejecting|Preempting) requests?(?:\(s\))? "
    r"|.{0,60} caught\. Request id: )(.*?)(\.?)\Z",
    re.DOTALL,
)
_DUMPED = re.compile(r"(Dumping scheduler output[^:]{0,80}: ?|(?=SchedulerOutput\())(.+)", re.DOTALL)
_SCHEDULED = re.compile(r"\btotal_num_scheduled_tokens=(\d{1,10})\b")


class ClientMessages:
    """Knows vLLM's messages about requests."""

    def __init__(self, private: PrivateText) -> None:
        self._private = private

    def made_anew(self, site: str, level: str, message: str) -> str | None:
        """Return a message with text of a client, made anew from what is harmless; `None` if it is no such message."""
        for pattern, form in (
            (_RECEIVED, self._received),
            (_GENERATED, self._generated),
            (_REJECTED, self._around_id),
            (_ENDED, self._ended),
            (_NAMED_REQUEST, self._around_id),
            (_DUMPED, self._scheduled),
        ):
            found = pattern.match(message)
            if found is not None:
                return form(found)
        if site in ECHOING_SITES or level == "DEBUG":
            return self._private.clean(self._private.remove("prompts", message))
        return None

    def _received(self, found: re.Match[str]) -> str:
        start, request, colon, rest = found.groups()
        if "prompts" in self._private.removes:
            rest = self._params(rest)
        return start + self._private.remove("request-ids", request) + colon + self._private.clean(rest)

    def _params(self, rest: str) -> str:
        if rest.startswith("prompt: "):
            self._private.remove("prompts", rest)
        prompt = f"prompt: {REMOVED}, " if rest.startswith("prompt: ") else ""
        found = _PARAMS.search(rest)
        if found is None:
            return prompt + self._private.remove("prompts", rest)
        items = [f"{name}={self._private.remove('prompts', value)}" for name, value in top_level_items(found[2])]
        lora = ", lora_request: None." if rest.endswith(", lora_request: None.") else f", {REMOVED}"
        return f"{prompt}params: {found[1]}({', '.join(items)}){lora}"

    def _generated(self, found: re.Match[str]) -> str:
        start, request, rest = found.groups()
        finish = _FINISH.search(rest)
        if "prompts" in self._private.removes:
            self._private.remove("prompts", rest)
            rest = f": output: {REMOVED}{finish[0] if finish else ''}"
        return start + self._private.remove("request-ids", request) + rest

    def _ended(self, found: re.Match[str]) -> str:
        start, request, how, rest = found.groups()
        if rest.strip("."):
            rest = " " + self._private.clean(self._private.remove("prompts", rest.strip()))
        return start + self._private.remove("request-ids", request) + how + rest

    def _around_id(self, found: re.Match[str]) -> str:
        start, request, end = found.groups()
        return start + self._private.remove("request-ids", request) + end

    def _scheduled(self, found: re.Match[str]) -> str:
        start, output = found.groups()
        if "prompts" not in self._private.removes:
            return start + self._private.clean(output)
        tokens = _SCHEDULED.search(output)
        self._private.remove("prompts", output)
        return f"{start}SchedulerOutput({tokens[0] if tokens else ''}) {REMOVED}"

    def without_quoted(self, site: str, level: str, message: str) -> str | None:
        """Return the start of a message about a request, up to where it quotes. `None` if the site has others."""
        if not _CLIENT_SITE.fullmatch(site) and (level == "INFO" or not _HANDLER_SITE.fullmatch(site)):
            return None
        found = _QUOTE.search(message)
        if found is None:
            return self._private.clean(message)
        quoted = self._private.clean(self._private.remove("prompts", message[found.end() :]))
        return self._private.clean(message[: found.start()]) + found[0] + quoted


_REQUEST_TRACEBACK = "Exception in ASGI application"
_EXCEPTION = re.compile(
    r"([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Failure))(: ?)(.+)", re.DOTALL
)
_MIN_LITERAL = 24

_UVICORN_START = re.compile(r"(?:TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL): +")

_PEER = "0.0.0.0:0"
"""An address as parsers expect one, and of nobody."""

_PATH = f"/{REMOVED}"

_READ_QUERIES = frozenset({"level", "mode", "tags"})
"""What is read of ``/sleep?level=1`` and ``/pause?mode=keep``."""

_LONG = b" [removed: the line is too long]"


class LogRedactor:
    """Redacts one log line by line, in order. A copy continues another file of the same log."""

    def __init__(self, private: PrivateText) -> None:
        self._private = private
        self._messages = ClientMessages(private)
        self._filter = EventFilter()
        self._record: Record | None = None
        self._is_of_client = False
        """Whether the open record has text of a client."""
        self._drops_bare = False
        """Whether lines without a head may continue such a record."""
        self._is_request_failure = False
        """Whether the traceback that is being printed is one of a request."""

    def lose_place(self) -> None:
        """Continue elsewhere: the next line may continue a record of which nothing is known."""
        self._record = UNKNOWN_RECORD
        self._is_of_client = self._drops_bare = True

    def start_file(self) -> None:
        """Continue at the start of a file: the next line continues no record."""
        self._record = None
        self._is_of_client = self._drops_bare = self._is_request_failure = False

    def redact(self, line: bytes) -> bytes:
        r"""Return what is left of a line (without its ``\n``)."""
        record, parsed = self._record, parse_line(line, self._record)
        self._record = parsed.record
        if not self._private.removes:
            return line
        stripped = strip_ansi(line)
        text = stripped.rstrip(b"\r")
        if record is not None and not record.is_unknown and text.startswith(record.head):
            left = record.head + self._continued(text[len(record.head) :], parsed)
        else:
            left = self._line(text, parsed)
        return left + stripped[len(text) :]

    def _continued(self, message: bytes, parsed: LogLine) -> bytes:
        """Redact a line that continues a record of vLLM; it repeats the record's head."""
        if self._is_of_client and not parsed.events:
            return self._dropped(message)
        return _encoded(self._traceback_line(_decoded(message), parsed, is_of_client=False))

    def _line(self, text: bytes, parsed: LogLine) -> bytes:
        process, rest = split_process(text)
        if rest.startswith(b"{"):
            fields = _json_fields(rest)
            if fields is not None:
                return process + self._json(fields, parse_head(text), parsed)
        head = parse_head(text)
        if not head.site and b"] " in text and (prefixed := parse_prefixed_head(text)):
            if self._filter.has_own_prefix(parsed):
                head = prefixed
            elif parsed.events:  # Text of a client that looks like a record, after anything.
                self._private.remove("prompts", _decoded(text))
                return REMOVED.encode()
        if head.site:
            return self._recorded(text, head, parsed)
        if _UVICORN_START.match(bare := _decoded(head.message)):
            return process + _encoded(self._uvicorn(bare))
        return process + self._bare(head.message, parsed)

    def _recorded(self, text: bytes, head: Head, parsed: LogLine) -> bytes:
        at = text.rindex(head.message)
        message = self._message(head.site, head.level, _decoded(head.message), parsed)
        return text[:at] + _encoded(message) + text[at + len(head.message) :]

    def _message(self, site: str, level: str, message: str, parsed: LogLine) -> str:
        self._is_of_client = self._is_request_failure = False
        clean = self._private.clean
        if not parsed.events:
            made = self._messages.made_anew(site, level, message)
            if made is not None:
                self._is_of_client = "prompts" in self._private.removes
                self._drops_bare = self._is_of_client
                return made
            quoting = self._messages.without_quoted(site, level, message)
            if quoting is not None:
                self._is_of_client = quoting != message
                self._drops_bare = self._is_of_client
                return quoting
        self._drops_bare = False
        return clean(message)

    def _json(self, fields: dict[str, Any], head: Head, parsed: LogLine) -> bytes:
        first, *others = fields["message"].split("\n")
        lines = [self._message(head.site, head.level, first, parsed)]
        if head.site.startswith("uvicorn"):
            lines = [self._uvicorn(ACCESS_START.decode() + first).removeprefix(ACCESS_START.decode())]
        is_of_client = self._is_of_client
        lines += [self._traceback_line(line, parsed, is_of_client=is_of_client) for line in others]
        redacted = redact_json({key: value for key, value in fields.items() if key != "message"}, self._private)
        redacted["message"] = "\n".join(lines)
        if isinstance(exception := fields.get("exc_info"), str):
            redacted["exc_info"] = "\n".join(
                self._traceback_line(line, parsed, is_of_client=is_of_client) for line in exception.split("\n")
            )
        return json.dumps(redacted, ensure_ascii=False).encode("utf-8", "surrogateescape")

    def _uvicorn(self, text: str) -> str:
        self._drops_bare = False
        self._is_request_failure = _REQUEST_TRACEBACK in text
        return redact_access(self._private, text)

    def _bare(self, text: bytes, parsed: LogLine) -> bytes:
        if self._drops_bare and not parsed.events:
            return self._dropped(text) if text.strip() else text
        return _encoded(self._traceback_line(_decoded(text), parsed, is_of_client=False))

    def _traceback_line(self, line: str, parsed: LogLine, *, is_of_client: bool) -> str:
        if is_of_client:
            return self._private.remove("prompts", line)
        exception = _EXCEPTION.match(line)
        if exception is None or parsed.events:
            return self._private.clean(line)
        name, colon, said = exception.groups()
        if self._is_request_failure:
            return name + colon + self._private.clean(self._private.remove("prompts", said))
        return name + colon + self._private.clean(LITERAL.sub(self._long_literal, said))

    def _long_literal(self, found: re.Match[str]) -> str:
        return self._private.remove("prompts", found[0]) if len(found[0]) >= _MIN_LITERAL else found[0]

    def _dropped(self, text: bytes) -> bytes:
        return _encoded(self._private.remove("prompts", _decoded(text)))


def _json_fields(text: bytes) -> dict[str, Any] | None:
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and isinstance(fields.get("message"), str) else None


def _decoded(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def redact_access(private: PrivateText, text: str) -> str:
    """Return one of uvicorn's lines without what is private: of the access log, or any other."""
    peer, sign, request = text.partition(PEER_END.decode())
    if not sign:
        return private.clean(text)
    level = _UVICORN_START.match(peer)
    start = level[0] if level else ""
    client = peer[len(start) :]
    if client not in {"", "None"} and private.remove("addresses", client) != client:
        client = _PEER
    return start + client + sign + _request(private, request)


def _request(private: PrivateText, request: str) -> str:
    """Return a request line whose target is known; others are what any client thinks up."""
    method, blank, rest = request.partition(" ")
    at = rest.rfind(" HTTP/")
    target, version = (rest, "") if at < 0 else (rest[:at], rest[at:])
    path, query, values = target.partition("?")
    if path not in HANDLERS and path != "/" and private.remove("prompts", path) != path:
        path = _PATH
    if query:
        values = "&".join(_query_value(private, each) for each in values.split("&"))
    return method + blank + path + query + values + version


def _query_value(private: PrivateText, item: str) -> str:
    name, _, value = item.partition("=")
    if name in _READ_QUERIES and value.isalnum():
        return item
    return private.remove("keys", item)


class RedactingReader(LogReader):
    """A `LogReader`, for one thread, whose batches have their lines without what is private."""

    def __init__(self, private: PrivateText) -> None:
        super().__init__()
        self._private = private
        self._redactor = LogRedactor(private)

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
        self._redactor.start_file()

    def lose_place(self) -> None:
        """Continue elsewhere."""
        super().lose_place()
        self._redactor.lose_place()

    def skip_lines(self, lines: Sequence[bytes]) -> None:
        """Read lines only to learn what is open after them."""
        self._redacted(self.as_written(lines))
        super().skip_lines(lines)

    def _redacted(self, lines: Sequence[bytes]) -> KeptLines:
        self._private.counts = Counter()
        kept = tuple(self._redactor.redact(_without_mark(line)) for line in lines)
        return KeptLines(kept, self._private.counted)


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


def _without_mark(line: bytes) -> bytes:
    """Return a line that was shortened with words for the mark, which is no text."""
    start, mark, end = line.partition(CUT)
    return start + _LONG + end if mark else line
