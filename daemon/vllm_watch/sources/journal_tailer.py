# SPDX-License-Identifier: Apache-2.0
"""
One unit's lines from systemd's journal, through ``journalctl``: it knows the journal's formats, rights and rotations.

The journal cuts what a service prints into entries, and where it cuts inside a line (after LineMax, 48 KiB by default,
at a NUL, or when the process changes) the pieces cannot be rejoined: entries of other processes stand between them.
All pieces of such a line are dropped and counted, for what comes after a cut is text that a stranger can choose.
For the same reason a later run goes on only where no line and no record was open.
"""

from __future__ import annotations

import itertools
import os
import selectors
import subprocess
import threading

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from vllm_watch.catalog.reasons import LogReason
from vllm_watch.reading.framing import KEPT, MAX_LINE, LineFramer, shortened
from vllm_watch.reading.log_reader import LogReader, TailedBatch
from vllm_watch.reading.times import ArrivalTimes
from vllm_watch.state.server import LogStatus
from vllm_watch.state.snapshot import TailCounts


HISTORY_LINES = 2000
QUEUE_SIZE = 4 * 1024 * 1024
"""Bytes that wait to be taken in; beyond them the child waits."""

MAX_ENTRY = 1024 * 1024
"""Longer entries are no lines of a log: a message of `MAX_LINE` bytes takes five characters for each at most."""

FIRST_DELAY = 1.0
MAX_DELAY = 60.0
SETTLED_AFTER = 10.0
"""Seconds after which a child that says nothing has shown what there was, and reads well."""

_READ_SIZE = 64 * 1024
_ERRORS_SIZE = 4096
_CHECK_SECONDS = 0.2
_PATIENCE = 0.8
_MAX_CUT_STREAMS = 64
_MAX_SURE_STREAMS = 1024

MAX_REPEATED = 1000
"""Entries that a later run may read again; a line or record that stays open longer holds nothing up."""

_END_OF_STREAM = "eof"
_FIELDS = "MESSAGE,_LINE_BREAK,_STREAM_ID"
# The last of them ends the hint that others' messages are not shown.
_NO_PERMISSION = (b"insufficient permissions", b"Permission denied", b"turn off this notice")


class _Raw(msgspec.Struct, frozen=True):
    """An entry as ``journalctl -o json`` prints it: what is no printable UTF-8 comes as numbers."""

    cursor: str = msgspec.field(name="__CURSOR")
    written: str = msgspec.field(name="__REALTIME_TIMESTAMP")
    message: str | list[int] | None = msgspec.field(default=None, name="MESSAGE")
    line_break: str | None = msgspec.field(default=None, name="_LINE_BREAK")
    stream: str = msgspec.field(default="", name="_STREAM_ID")


_decode = msgspec.json.Decoder(_Raw).decode


class _Entry(NamedTuple):
    cursor: str
    written: float
    message: bytes
    is_cut: bool
    is_last: bool
    stream: str


class _Line(NamedTuple):
    """A line of journalctl's: an entry, or nothing that can be read."""

    entry: _Entry | None
    size: int


class _Moment(NamedTuple):
    """What lines have in common that are read together."""

    at: float
    is_history: bool


class JournalTailer:
    """
    Follows one unit's lines.

    Args:
        unit: The unit's name.
        cursor: Where to go on, from an earlier run; without it the last lines are read as history.
        command: How journalctl is called, before its options.
        wall: Returns what the wall clock says, or said, at a moment of `poll`: entries bear its times.

    Attributes:
        unit: The unit's name.
        cursor: Where a later run goes on: the cursor of the last line taken in after which nothing was open.
    """

    directory: str | None = None
    """There is no folder whose changes would be a hint."""

    def __init__(
        self,
        unit: str,
        *,
        cursor: str | None = None,
        command: Sequence[str] = ("journalctl",),
        wall: Callable[[float], float] = lambda moment: moment,
    ) -> None:
        self.unit = unit
        self.cursor = cursor
        self._read_to = cursor
        self._repeated = 0
        self._command = tuple(command)
        self._wall = wall
        self._ahead = 0.0
        """By how much the wall clock was ahead of the times of `poll` when the child was started."""
        self._child: _Child | None = None
        self._reader = LogReader()
        self._cut_streams: dict[str, bytes] = {}
        """Streams in the middle of a line that was cut, and how the line began."""
        self._sure_streams: set[str] | None = None
        """After an entry that could not be read: the streams that were at a line's end since."""
        self._started_at = self._retry_at = float("-inf")
        self._delay = FIRST_DELAY
        self._is_cold = self._is_backlog = self._has_read = self._has_more = self._is_settled = False
        self._is_after_gap = False
        self._reason: LogReason = "no_entries" if cursor is None else "ok"
        self._lines = self._size = self._long_lines = self._nul_bytes = self._skipped = 0

    @property
    def is_waiting(self) -> bool:
        """Whether journalctl was started and has not yet shown whether there is anything."""
        return self._child is not None and not self._has_read and not self._is_settled

    @property
    def has_more(self) -> bool:
        """Whether the last look found as many lines as may wait: the child has more."""
        return self._has_more

    def poll(self, now: float) -> list[TailedBatch]:
        """Take in what came since the last look, without waiting; start the child where it is due."""
        self._has_more = False
        if self._child is None and now >= self._retry_at:
            self._start(now)
        child = self._child
        if child is None:
            return []
        is_over = child.is_over  # Asked first: then no line comes after those taken now.
        lines, self._has_more = child.take()
        batches = self._take_in(lines, now)
        self._judge(child, now, is_silent=not lines)
        if is_over:
            self._give_up(child, now)
        return batches

    def status(self) -> LogStatus:
        """Return how reading goes."""
        is_up = self._reason == "ok" and self._child is not None
        counts = TailCounts(
            lines=self._lines,
            size=self._size,
            lag=self._child.pending if is_up and self._child else None,
            long_lines=self._long_lines + (self._child.long_lines if self._child else 0),
            nul_bytes=self._nul_bytes,
            skipped_bytes=self._skipped,
        )
        return LogStatus(is_up, self._reason, counts)

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.close()
            self._long_lines += self._child.long_lines
            self._child = None

    def _start(self, now: float) -> None:
        self._is_cold = self._read_to is None
        self._is_backlog, self._has_read, self._is_settled = True, False, False
        self._started_at, self._ahead = now, self._wall(now) - now
        if self._is_cold:
            self._reader = LogReader()
            self._cut_streams.clear()
            self._sure_streams = None
        try:
            self._child = _Child(self._arguments())
        except (FileNotFoundError, NotADirectoryError):
            self._fail("journalctl_missing", now)
        except PermissionError:
            self._fail("permission_denied", now)
        except OSError:
            self._fail("journal_failed", now)

    def _arguments(self) -> list[str]:
        # Without --all, a message over 4 KiB is left out; without --no-tail, --follow shows the last ten lines only.
        options = ["--output=json", f"--output-fields={_FIELDS}", "--all", "--follow", "--no-pager"]
        begin = (
            [f"--lines={HISTORY_LINES}"] if self._read_to is None else ["--no-tail", f"--after-cursor={self._read_to}"]
        )
        return [*self._command, *options, f"--unit={self.unit}", *begin]

    def _judge(self, child: _Child, now: float, *, is_silent: bool) -> None:
        """Believe a child that has shown lines, or none for a while; a failure is named until then."""
        self._is_settled = is_silent and now - self._started_at >= SETTLED_AFTER
        if self._is_settled:
            self._is_backlog = False  # Times alone do not tell: the wall clock may have been set back.
        if self._has_read:
            self._reason, self._delay = "ok", FIRST_DELAY
        elif _is_permission(child.last_error):
            self._reason = "permission_denied"
        elif self._is_settled and not child.is_over:
            # Silence after a cursor is that of the unit; without one there is no line of it at all.
            self._reason, self._delay = "no_entries" if self._is_cold else "ok", FIRST_DELAY

    def _give_up(self, child: _Child, now: float) -> None:
        self.close()
        error = child.last_error
        if b"cursor" in error and not self._has_read:
            self.cursor = self._read_to = None  # Not one of this machine's journal; the last lines are read instead.
            self._is_after_gap = True
        self._fail("permission_denied" if _is_permission(error) else "journal_failed", now)

    def _fail(self, reason: LogReason, now: float) -> None:
        self._reason = reason
        self._retry_at = now + self._delay
        self._delay = min(2 * self._delay, MAX_DELAY)

    def _take_in(self, lines: list[bytes], now: float) -> list[TailedBatch]:
        batches = []
        groups = itertools.groupby(map(_parse_line, lines), lambda line: self._moment(line.entry, now))
        for moment, group in groups:
            if moment is None:
                self._lose_place(group)
                continue
            entries = [line.entry for line in group if line.entry is not None]
            texts = [text for entry in entries if (text := self._text(entry)) is not None]
            batches.append(self._read(texts, moment))
            self._go_on(entries)
        return batches

    def _go_on(self, entries: list[_Entry]) -> None:
        self._read_to, self._has_read = entries[-1].cursor, True
        self._repeated += len(entries)
        if self._repeated > MAX_REPEATED or not (self._cut_streams or self._reader.is_in_record):
            self.cursor, self._repeated = self._read_to, 0

    def _lose_place(self, lines: Iterable[_Line]) -> None:
        """Nobody knows what was in lines that are no entries: one may have been cut, or have opened a record."""
        self._skipped += sum(line.size for line in lines)
        self._reader.skip()
        self._sure_streams = set()
        self._is_after_gap = True

    def _moment(self, entry: _Entry | None, now: float) -> _Moment | None:
        """Return the journal's time, to the second, for lines from before the child, and else that of arrival."""
        if entry is None:
            return None
        written = entry.written - self._ahead
        if self._is_backlog and written <= self._started_at:
            return _Moment(float(int(written)), self._is_cold)
        self._is_backlog = False
        return _Moment(now, is_history=False)

    def _read(self, texts: list[bytes], moment: _Moment) -> TailedBatch:
        batch = self._reader.read(texts, ArrivalTimes(moment.at))._replace(is_after_gap=self._is_after_gap)
        self._is_after_gap = False
        if not moment.is_history:
            self._lines += batch.lines
            self._size += batch.size
        return TailedBatch(batch, moment.is_history)

    def _text(self, entry: _Entry) -> bytes | None:
        """Return the line that an entry holds or completes, `shortened` if it was cut; nothing for a piece of one."""
        beginning = self._cut_streams.pop(entry.stream, None)
        if beginning is None and not self._is_sure(entry.stream):
            beginning = b""
        if beginning is None and not entry.is_cut and len(entry.message) <= MAX_LINE:
            return self._first_line(entry.message)
        self._skipped += len(entry.message)
        self._long_lines += beginning is None
        if beginning is None:
            beginning = entry.message[:KEPT].replace(b"\0", b"")
        if not entry.is_cut:
            return shortened(beginning, ends_open=entry.message.endswith(b"\r"))
        if not entry.is_last:
            self._cut_streams[entry.stream] = beginning
            while len(self._cut_streams) > _MAX_CUT_STREAMS:
                del self._cut_streams[next(iter(self._cut_streams))]  # The oldest has ended.
        return None

    def _is_sure(self, stream: str) -> bool:
        """Tell whether an entry of a stream begins a line, as far as is known: only streams are cut."""
        if self._sure_streams is None or not stream or stream in self._sure_streams:
            return True
        self._sure_streams.add(stream)
        if len(self._sure_streams) > _MAX_SURE_STREAMS:
            self._sure_streams = None
        return False

    def _first_line(self, message: bytes) -> bytes:
        r"""Take away NULs, and what follows a ``\n``: that is one record's text and no line of its own."""
        self._nul_bytes += message.count(b"\0")
        line, end, rest = message.replace(b"\0", b"").partition(b"\n")
        self._skipped += len(rest)
        return line.removesuffix(b"\r") if end else line


class _Child:
    """A running journalctl, and the thread that reads what it prints."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # The configured command; no shell.
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "LC_ALL": "C"},  # Its errors are told apart by their words.
            start_new_session=True,  # A terminal's Ctrl-C is for the daemon.
        )
        self._framer = LineFramer(MAX_ENTRY)
        self._lines: list[bytes] = []
        self._errors = b""
        self._is_closed = False
        self._changed = threading.Condition()
        self.pending = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing will come any more."""
        return not self._thread.is_alive()

    @property
    def long_lines(self) -> int:
        """How many entries were dropped for their length."""
        return self._framer.long_lines

    @property
    def last_error(self) -> bytes:
        """The last line of its complaints, or nothing."""
        return self._errors.rstrip().rpartition(b"\n")[2]

    def take(self) -> tuple[list[bytes], bool]:
        """Return the lines that wait, and whether they were as many as may wait."""
        with self._changed:
            lines, self._lines = self._lines, []
            was_full = self.pending >= QUEUE_SIZE
            self.pending = 0
            self._changed.notify_all()
        return lines, was_full

    def close(self) -> None:
        """End the process and the thread, and let go of the pipes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._end_process()
        self._thread.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _end_process(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map() and not self._is_closed:
                ready = selector.select(_CHECK_SECONDS)
                if not ready and self._process.poll() is not None:
                    return  # Another process may hold the pipes for ever.
                for key, _ in ready:
                    if not self._read(key.fd):
                        selector.unregister(key.fileobj)

    def _read(self, descriptor: int) -> bool:
        """Read once; return whether there may be more."""
        data = os.read(descriptor, _READ_SIZE)
        if self._process.stdout is not None and descriptor == self._process.stdout.fileno():
            self._put(self._framer.feed(data))
        else:
            self._errors = (self._errors + data)[-_ERRORS_SIZE:]
        return bool(data)

    def _put(self, lines: list[bytes]) -> None:
        """Let lines wait to be taken; while there are too many, wait too."""
        with self._changed:
            self._lines += lines
            self.pending += sum(map(len, lines))
            self._changed.wait_for(lambda: self.pending < QUEUE_SIZE or self._is_closed)


def _parse_line(line: bytes) -> _Line:
    return _Line(_parse(line), len(line))


def _parse(line: bytes) -> _Entry | None:
    """Read an entry, or return `None` for what is none."""
    try:
        raw = _decode(line)
        message = _message(raw.message)
        written = int(raw.written) / 1e6
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError, RecursionError):
        return None
    if not raw.cursor or "\0" in raw.cursor:  # It becomes an argument.
        return None
    is_cut, is_last = raw.line_break is not None, raw.line_break == _END_OF_STREAM
    return _Entry(raw.cursor, written, message, is_cut, is_last, raw.stream)


def _message(message: str | list[int] | None) -> bytes:
    if isinstance(message, str):
        return message.encode("utf-8", "backslashreplace")
    return bytes(message or ())


def _is_permission(error: bytes) -> bool:
    return any(words in error for words in _NO_PERMISSION)
