# SPDX-License-Identifier: Apache-2.0
r"""
The bytes of a log to the lines that vLLM wrote, in bounded memory.

Lines are split only at ``\n``: untrusted text within a line may contain ``\r``, form feeds and Unicode's line
separators, and must not be read as lines. For the same reason a dropped line leaves a mark: the reader must know
whether the record continues after it.

Container runtimes wrap each line: Docker's json-file writes ``{"log":"…\n","stream":"stdout","time":"…"}`` and cuts
lines at 16 KiB; Kubernetes' CRI writes ``2026-11-21T02:17:58.1Z stdout F …`` with ``P`` for a part of a line. The parts
of both streams may alternate. A client that can make a line long can choose the text after a cut. So one part is never
treated as a whole line: if the parts before it were dropped or are not known, everything up to the real end of the line
is dropped too.
"""

from __future__ import annotations

import re

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec


MAX_LINE = 64 * 1024
"""Longer lines have prompts in them, never statistics."""

CUT = b"\0"
"""Marks where the rest of a shortened line was dropped. No other line has a NUL."""

KEPT = 1024
"""So many bytes are kept of a line that is dropped: the start of the record that it may open."""

MAX_WRAPPED = 128 * 1024
"""Docker's 16 KiB take six times as many bytes where each must be escaped."""

MAX_FOREIGN = 100
"""After this many lines in a row without wrapping there is none: the first line was untrusted text."""

_ENOUGH = 64
"""So many bytes of a file show how its lines are wrapped."""

_ENDS = b"\r\n"
_STREAMS = ("stdout", "stderr")
_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?::\S*)? ?(.*)", re.DOTALL
)
_DOCKER_START = b'{"log":"'


def shortened(line: bytes, *, ends_open: bool, kept: int = KEPT) -> bytes:
    r"""
    Return what replaces a line that is dropped.

    Args:
        line: The line's start, or nothing where it is not known.
        ends_open: Whether the line ends in ``\r``: then the next line may continue its record.
        kept: How many bytes of the start are kept.
    """
    return line[:kept] + CUT + (b"\r" if ends_open else b"")


class LineFramer:
    """
    Cuts a stream of bytes into lines and keeps the unfinished one.

    `long_lines` counts lines dropped for their length, `nul_bytes` the NUL bytes removed: a log whose writer does
    not append (``> file``) has a hole of them where it was truncated. `max_line` may be changed between two pieces.
    """

    def __init__(self, max_line: int = MAX_LINE) -> None:
        self.max_line = max_line
        self._partial = b""
        self._is_dropping = False
        self._last = b""
        self.long_lines = 0
        self.nul_bytes = 0

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line are held."""
        return 0 if self._is_dropping else len(self._partial)

    def feed(self, data: bytes) -> list[bytes]:
        r"""Return the lines that `data` completes, without their ``\n``; long ones are `shortened`."""
        if b"\0" in data:
            data = self._without_nuls(data)
        lines = data.split(b"\n")
        if self._is_dropping:
            self._last = lines[0][-1:] or self._last
            if len(lines) == 1:
                return []
            self._is_dropping = False
            lines[0] = self._shorten(self._partial, self._last)
        elif self._partial:
            lines[0] = self._partial + lines[0]
        self._keep(lines.pop())
        if max(map(len, lines), default=0) > self.max_line:
            return self._without_long(lines)
        return lines

    def go_to_line(self) -> None:
        """Continue at the start of a line: the unfinished one is forgotten."""
        self._partial = b""
        self._is_dropping = False

    def go_inside_line(self) -> None:
        """Continue inside a line, whose start is not known: it is dropped up to its end."""
        self._partial = self._last = b""
        self._is_dropping = True

    def _keep(self, partial: bytes) -> None:
        if len(partial) > self.max_line:
            self.long_lines += 1
            self._is_dropping = True
            self._last = partial[-1:]
            partial = partial[:KEPT]
        self._partial = partial

    def _without_long(self, lines: list[bytes]) -> list[bytes]:
        self.long_lines += sum(len(line) > self.max_line for line in lines)
        return [self._shorten(line, line[-1:]) if len(line) > self.max_line else line for line in lines]

    def _shorten(self, line: bytes, last: bytes) -> bytes:
        return shortened(line, ends_open=last == b"\r", kept=min(KEPT, self.max_line // 2))

    def _without_nuls(self, data: bytes) -> bytes:
        self.nul_bytes += data.count(b"\0")
        return data.translate(None, b"\0")  # Holes are made of them: `replace` takes fifty times as long there.


class _DockerLine(msgspec.Struct, frozen=True):
    log: str
    stream: Literal["stdout", "stderr"] = "stdout"


_decode_docker = msgspec.json.Decoder(_DockerLine).decode


class _Dropped(NamedTuple):
    """A line that is dropped: its start, if that is known, and the last byte so far."""

    start: bytes = b""
    last: bytes = b""


_Unwrap = Callable[[bytes], "tuple[str, bytes, bool] | None"]


class Unwrapper:
    """
    Removes a container runtime's wrapping, once a file's first line has shown that there is one.

    `is_decided` is whether a first line was seen. `long_lines` counts the lines that were dropped: for their length,
    or because their start is not known.
    """

    def __init__(self) -> None:
        self._unwrap: _Unwrap | None = None
        self.is_decided = False
        self._parts: dict[str, bytes] = {}
        self._dropping: dict[str, _Dropped] = {}
        self._unwrapped_lines = 0
        self.long_lines = 0

    @property
    def is_wrapping(self) -> bool:
        """Whether the file's lines are known to be wrapped."""
        return self._unwrap is not None

    def feed(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines as vLLM wrote them; those of a file without wrapping are returned as they are."""
        if not self.is_decided:
            first = next((line for line in lines if line.strip(_ENDS) and CUT not in line), None)
            if first is not None:
                self.decide(first)
        if self._unwrap is None:
            return lines
        return [whole for line in lines if (whole := self._join(line)) is not None]

    def decide(self, first: bytes) -> None:
        """Find out from a file's first line, or its start, how its lines are wrapped, if that is not known yet."""
        first = _start_of(first)
        if self.is_decided or not first:
            return
        self.is_decided = True
        if first.startswith(_DOCKER_START):
            self._unwrap = _unwrap_docker
        elif _CRI.match(first):
            self._unwrap = _unwrap_cri

    def lose_place(self) -> None:
        """Continue elsewhere: it is not known whether the next part of a stream starts a line."""
        self._parts.clear()
        self._dropping = dict.fromkeys(_STREAMS, _Dropped())

    def follow(self, other: Unwrapper) -> None:
        """Continue where another file ended: runtimes start a new one in the middle of a line."""
        self._parts = dict(other._parts)
        self._dropping = dict(other._dropping)

    def _join(self, line: bytes) -> bytes | None:
        """Return the line that `line` completes, if it does; one that is dropped is `shortened`."""
        if self._unwrap is None:
            return line  # Lines before it in the same block have shown that there is no wrapping.
        unwrapped = self._unwrap(line)
        if unwrapped is None:
            if line.strip(_ENDS):
                self._note_unwrapped()
            return None
        self._unwrapped_lines = 0
        stream, text, is_complete = unwrapped
        dropped = self._dropping.pop(stream, None)
        if dropped is not None:
            return self._drop(stream, dropped, text, is_complete=is_complete)
        joined = self._parts.pop(stream, b"") + text
        if len(joined) > MAX_LINE:
            return self._drop(stream, _Dropped(joined[:KEPT]), joined, is_complete=is_complete)
        if is_complete:
            return joined
        self._parts[stream] = joined
        return None

    def _drop(self, stream: str, dropped: _Dropped, text: bytes, *, is_complete: bool) -> bytes | None:
        """Drop a line up to its end; then it is `shortened`."""
        last = text[-1:] or dropped.last
        if not is_complete:
            self._dropping[stream] = dropped._replace(last=last)
            return None
        self.long_lines += 1
        return shortened(dropped.start, ends_open=last == b"\r")

    def _note_unwrapped(self) -> None:
        """Take in a line that is not wrapped: it was torn, or too long, and may be any part of any line."""
        self.lose_place()
        self._unwrapped_lines += 1
        if self._unwrapped_lines >= MAX_FOREIGN:
            self._unwrap = None


class LineReader(LineFramer):
    """
    Bytes of a log to the lines that vLLM wrote: framing and unwrapping together.

    `long_lines` counts those that either has dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._unwrapper = Unwrapper()

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, as vLLM wrote them."""
        unwrapper = self._unwrapper
        # Where a part of the first line came before, the whole line decides.
        if not unwrapper.is_decided and not self.pending and len(_start_of(data)) >= _ENOUGH:
            unwrapper.decide(data)
        self.max_line = MAX_WRAPPED if unwrapper.is_wrapping else MAX_LINE
        dropped = unwrapper.long_lines
        lines = unwrapper.feed(super().feed(data))
        self.long_lines += unwrapper.long_lines - dropped
        return lines

    def start_file(self) -> None:
        """Continue at the start of a file, whatever was read before."""
        self.go_to_line()
        self._unwrapper = Unwrapper()

    def lose_place(self, first: bytes) -> None:
        """
        Continue somewhere in a file.

        Args:
            first: The start of the file.
        """
        self._unwrapper.decide(first)
        self._unwrapper.lose_place()

    def follow(self, other: LineReader) -> None:
        """Continue in a new file where the old one ended."""
        self._unwrapper.follow(other._unwrapper)


def _start_of(data: bytes) -> bytes:
    """Return the start of a file's first line, as it will be framed."""
    return data.translate(None, b"\0").lstrip(_ENDS)


def _unwrap_docker(line: bytes) -> tuple[str, bytes, bool] | None:
    try:
        record = _decode_docker(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    text = record.log.replace("\0", "").encode("utf-8", "backslashreplace")
    is_complete = text.endswith(b"\n")
    return record.stream, text[:-1] if is_complete else text, is_complete


def _unwrap_cri(line: bytes) -> tuple[str, bytes, bool] | None:
    found = _CRI.match(line)
    return (found[1].decode(), found[3], found[2] == b"F") if found else None
