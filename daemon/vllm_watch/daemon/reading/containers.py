# SPDX-License-Identifier: Apache-2.0
r"""
The formats in which container runtimes wrap each line: Docker's json-file and Kubernetes' CRI.

Docker writes ``{"log":"…\n","stream":"stdout","time":"…"}`` and cuts lines at 16 KiB; CRI writes
``2026-11-21T02:17:58.1Z stdout F …`` with ``P`` for a part of a line. The parts of both streams may alternate.

A client that can make a line long can choose the text after a cut. So one part is never treated as a whole line: if
the parts before it were dropped or are not known, everything up to the real end of the line is dropped too.
"""

from __future__ import annotations

import re

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from vllm_watch.daemon.reading.framing import CUT, KEPT, MAX_LINE, LineFramer, shortened


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


class LineReader:
    """
    Bytes of a log to the lines that vLLM wrote: framing and unwrapping together.

    `long_lines` and `nul_bytes` count as in `LineFramer` and `Unwrapper`.
    """

    def __init__(self) -> None:
        self._framer = LineFramer()
        self._unwrapper = Unwrapper()
        self._long_lines = 0

    @property
    def pending(self) -> int:
        """How many bytes of an unfinished line are held."""
        return self._framer.pending

    @property
    def long_lines(self) -> int:
        """How many lines were dropped."""
        return self._long_lines + self._framer.long_lines + self._unwrapper.long_lines

    @property
    def nul_bytes(self) -> int:
        """How many NUL bytes were removed."""
        return self._framer.nul_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, as vLLM wrote them."""
        self._note_start(data)
        return self._unwrapper.feed(self._framer.feed(data))

    def feed_text(self, data: bytes) -> bytes | None:
        r"""Return the same as one text, each line with its ``\n``; `None` where only `feed` can take the data."""
        self._note_start(data)
        if self._unwrapper.is_wrapping or not self._unwrapper.is_decided:
            return None
        return self._framer.feed_text(data)

    @property
    def is_plain(self) -> bool:
        """Whether the lines are known not to be wrapped, and none is being dropped."""
        return self._unwrapper.is_decided and not self._unwrapper.is_wrapping and not self._framer.is_dropping

    def pass_text(self, rest: bytes) -> None:
        """Continue after lines that were read elsewhere, inside a line of which `rest` is the start."""
        self._framer.pass_text(rest)

    def _note_start(self, data: bytes) -> None:
        # Where a part of the first line came before, the whole line decides.
        if not self._unwrapper.is_decided and not self._framer.pending and len(_start_of(data)) >= _ENOUGH:
            self._unwrapper.decide(data)
        self._framer.max_line = MAX_WRAPPED if self._unwrapper.is_wrapping else MAX_LINE

    def start_file(self) -> None:
        """Continue at the start of a file, whatever was read before."""
        self._framer.drop_partial()
        self._long_lines += self._unwrapper.long_lines
        self._unwrapper = Unwrapper()

    def go_to_line(self) -> None:
        """Continue at the start of a line of the file, without losing the place in the container's streams."""
        self._framer.drop_partial()

    def go_inside_line(self) -> None:
        """Continue inside a line of the file: it is dropped up to its end."""
        self._framer.drop_rest()

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

    def count_hole(self, size: int) -> None:
        """Count NUL bytes that were not read."""
        self._framer.nul_bytes += size


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
