# SPDX-License-Identifier: Apache-2.0
r"""
The wrapping that container runtimes put around each line: Docker's json-file and Kubernetes' CRI.

Docker writes ``{"log":"…\n","stream":"stdout","time":"…"}`` and cuts lines at 16 KiB; CRI writes
``2026-11-21T02:17:58.1Z stdout F …`` with ``P`` for a part of a line. Both streams may take turns.
"""

from __future__ import annotations

import re

from collections.abc import Callable
from typing import Literal

import msgspec


MAX_PARTIAL = 64 * 1024
"""Longer lines are left out whole: their ends are text that a stranger can choose."""

_CRI = re.compile(
    rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}(?:Z|[+-]\d\d:\d\d) (stdout|stderr) ([FP])(?::\S*)? ?(.*)", re.DOTALL
)
_DOCKER_START = b'{"log":"'


class _DockerLine(msgspec.Struct, frozen=True):
    log: str
    stream: Literal["stdout", "stderr"] = "stdout"


_decode_docker = msgspec.json.Decoder(_DockerLine).decode


class Unwrapper:
    """Takes away a container runtime's wrapping, once a file's first line has shown that there is one."""

    def __init__(self) -> None:
        self._unwrap: Callable[[bytes], tuple[str, bytes, bool] | None] | None = None
        self._is_decided = False
        self._parts: dict[str, bytes | None] = {}
        """By stream, the parts of an unfinished line; `None` for one that is too long."""

    def feed(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines as vLLM wrote them; those of a file without wrapping are returned as they are."""
        start = 0
        if not self._is_decided:
            start = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
            self._decide(lines[start:])
        if self._unwrap is None:
            return lines
        return lines[:start] + [whole for line in lines[start:] if (whole := self._join(line)) is not None]

    def _decide(self, lines: list[bytes]) -> None:
        if not lines:
            return
        first = lines[0]
        self._is_decided = True
        if first.startswith(_DOCKER_START):
            self._unwrap = _unwrap_docker
        elif _CRI.match(first):
            self._unwrap = _unwrap_cri

    def _join(self, line: bytes) -> bytes | None:
        """Return the line that `line` completes, if it does; a line without wrapping is dropped."""
        unwrapped = self._unwrap(line) if self._unwrap else None
        if unwrapped is None:
            return None
        stream, text, is_complete = unwrapped
        before = self._parts.pop(stream, b"")
        joined = None if before is None or len(before) + len(text) > MAX_PARTIAL else before + text
        if is_complete:
            return joined
        self._parts[stream] = joined
        return None


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
