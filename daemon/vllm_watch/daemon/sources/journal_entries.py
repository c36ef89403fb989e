# SPDX-License-Identifier: Apache-2.0
"""
Entries of systemd's journal as journalctl prints them, and the lines that a service printed in them.

This module handles cut lines. The journal cuts what a service prints into entries, and where it cuts inside a line
(after LineMax, 48 KiB by default, at a NUL, or when the process changes) the pieces cannot be joined again: entries of
other processes are between them. All pieces of such a line are dropped and counted, because what follows a cut is
untrusted text.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from vllm_watch.daemon.reading.framing import KEPT, MAX_LINE, shortened


FIELDS = "MESSAGE,_LINE_BREAK,_STREAM_ID"
"""The fields that journalctl is asked for; it always adds the cursor and the time."""

KERNEL_FIELDS = "MESSAGE,_TRANSPORT,SYSLOG_FACILITY"
"""The same for the kernel's own messages: they have no streams, and the last two tell them from others."""

MAX_CUT_STREAMS = 64
MAX_SURE_STREAMS = 1024

_END_OF_STREAM = "eof"
_OF_KERNEL = ("kernel", "0")


class _RawEntry(msgspec.Struct, frozen=True):
    """An entry as ``journalctl -o json`` prints it: a message that is not printable UTF-8 is a list of numbers."""

    cursor: str = msgspec.field(name="__CURSOR")
    written: str = msgspec.field(name="__REALTIME_TIMESTAMP")
    message: str | list[int] | None = msgspec.field(default=None, name="MESSAGE")
    line_break: str | None = msgspec.field(default=None, name="_LINE_BREAK")
    stream: str = msgspec.field(default="", name="_STREAM_ID")
    transport: str = msgspec.field(default="", name="_TRANSPORT")
    facility: str = msgspec.field(default="", name="SYSLOG_FACILITY")


_decode = msgspec.json.Decoder(_RawEntry).decode


class JournalEntry(NamedTuple):
    """
    An entry.

    Attributes:
        cursor: Its place in the journal.
        written: When, in seconds since the epoch.
        message: What the service printed.
        is_cut: Whether the message ends inside a line.
        is_last: Whether the stream ended there.
        stream: Which of the service's streams printed it; empty if the journal did not get it from a stream.
        is_kernel: Whether the kernel itself wrote it, as far as the entry has `KERNEL_FIELDS`. Programs that may write
            to /dev/kmsg have another facility, all others another transport.
    """

    cursor: str
    written: float
    message: bytes
    is_cut: bool
    is_last: bool
    stream: str
    is_kernel: bool = False


def parse_entry(line: bytes) -> JournalEntry | None:
    """Read a line of journalctl's output, or return `None` if it is no entry."""
    try:
        raw = _decode(line)
        message = _message(raw.message)
        written = int(raw.written) / 1e6
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, OverflowError, RecursionError):
        return None
    if not raw.cursor or "\0" in raw.cursor:  # It becomes an argument.
        return None
    is_cut, is_last = raw.line_break is not None, raw.line_break == _END_OF_STREAM
    is_kernel = (raw.transport, raw.facility) == _OF_KERNEL
    return JournalEntry(raw.cursor, written, message, is_cut, is_last, raw.stream, is_kernel)


class CutLines:
    """
    Makes lines of entries, and drops the pieces of lines that were cut.

    Attributes:
        skipped_bytes: Bytes of messages that were dropped.
        long_lines: Lines that were dropped.
        nul_bytes: NUL bytes that were removed.
    """

    def __init__(self) -> None:
        self.skipped_bytes = self.long_lines = self.nul_bytes = 0
        self._cut_streams: dict[str, bytes] = {}
        """Streams in the middle of a line that was cut, and the first bytes of that line."""
        self._sure_streams: set[str] | None = None
        """After output that is no entry: the streams that reached a line's end since."""

    @property
    def cut_streams(self) -> int:
        """How many streams are in the middle of a line that was cut."""
        return len(self._cut_streams)

    def forget(self) -> None:
        """Continue elsewhere in the journal, where nothing is known to be cut."""
        self._cut_streams.clear()
        self._sure_streams = None

    def forget_counts(self) -> None:
        """Count from zero."""
        self.skipped_bytes = self.long_lines = self.nul_bytes = 0

    def lose_place(self) -> None:
        """Continue after output that is no entry: a line may have been cut in it."""
        self._sure_streams = set()

    def line(self, entry: JournalEntry) -> bytes | None:
        """
        Return the line that an entry holds or completes; `shortened` if it was cut.

        Args:
            entry: The next entry. If it is only a piece of a line, nothing is returned.
        """
        first_bytes = self._cut_streams.pop(entry.stream, None)
        if first_bytes is None and not self._starts_line(entry.stream):
            first_bytes = b""
        if first_bytes is None and not entry.is_cut and len(entry.message) <= MAX_LINE:
            return self._first_line(entry.message)
        self.skipped_bytes += len(entry.message)
        self.long_lines += first_bytes is None
        if first_bytes is None:
            first_bytes = entry.message[:KEPT].replace(b"\0", b"")
        if not entry.is_cut:
            return shortened(first_bytes, ends_open=entry.message.endswith(b"\r"))
        if not entry.is_last:
            self._cut_streams[entry.stream] = first_bytes
            while len(self._cut_streams) > MAX_CUT_STREAMS:
                del self._cut_streams[next(iter(self._cut_streams))]  # The oldest has ended.
        return None

    def _starts_line(self, stream: str) -> bool:
        """Tell whether an entry of a stream starts a line, as far as is known: only streams are cut."""
        if self._sure_streams is None or not stream or stream in self._sure_streams:
            return True
        self._sure_streams.add(stream)
        if len(self._sure_streams) > MAX_SURE_STREAMS:
            self._sure_streams = None
        return False

    def _first_line(self, message: bytes) -> bytes:
        r"""Remove NULs, and what follows a ``\n``: that is the text of one record and no line of its own."""
        self.nul_bytes += message.count(b"\0")
        line, end, rest = message.replace(b"\0", b"").partition(b"\n")
        self.skipped_bytes += len(rest)
        return line.removesuffix(b"\r") if end else line


def _message(message: str | list[int] | None) -> bytes:
    if isinstance(message, str):
        return message.encode("utf-8", "backslashreplace")
    return bytes(message or ())
