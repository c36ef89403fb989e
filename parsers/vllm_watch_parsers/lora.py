# SPDX-License-Identifier: Apache-2.0
"""
How many LoRA adapters have requests now: what vLLM says of it, read without keeping any of it.

`vllm:lora_requests_info` has one series for each list of adapters that ever ran together, by the ten thousand on a
server of many. The value of each is when it was last true, so that only the newest counts; any may be the newest, so
that all are read or, of too many, none. Its labels are names that the server's users have given: only their number
leaves this module.
"""

from __future__ import annotations

import re

from typing import Literal, NamedTuple, get_args


LORA_REQUESTS = "vllm:lora_requests_info"

MAX_LORA_LINE = 64 * 1024
"""A longer line of this family is not read, and then nothing is known: it may be the newest."""

MAX_LORA_BYTES = 2 * 1024 * 1024
"""
If the lines of this family are more, then only the first is read, and nobody knows how many adapters are active.

So that no body costs more than ten times an ordinary one. They are twelve thousand lists of four adapters with names of
16 letters.
"""

MAX_TIME = 3e9
"""A time in the year 2065. Several API server processes add theirs up, and no sum of two is below it."""

MAX_ADAPTERS = 1_000_000

_START = LORA_REQUESTS.encode() + b"{"
_VALUES = re.compile(rb"^" + re.escape(_START) + rb".*\} (\d{1,20}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?)\r?$", re.MULTILINE)
_LABEL = re.compile(rb'([a-z_]{1,64})="((?:[^"\\\n]|\\.)*)"')
_MAX_LABEL, _RUNNING_LABEL = b"max_lora", b"running_lora_adapters"

LoraUnknown = Literal["several_engines", "several_processes", "too_many_lists", "long_line", "not_listed"]
"""Why nobody knows how many adapters are active."""

LORA_UNKNOWN: tuple[LoraUnknown, ...] = get_args(LoraUnknown)


class LoraRequests(NamedTuple):
    """
    What the newest series says.

    Args:
        active: How many adapters have requests, on V0 running ones; `None` if that cannot be told, or LoRA is off. V1
            fills the label of running ones with all that have requests, and a name with a comma cannot be told from two
            names.
        most: How many adapters a batch may use (``--max-loras``); `None` where it is not there, or LoRA is off.
        unknown: Why `active` is not known; `None` if it is, or LoRA is off.
    """

    active: int | None
    most: int | None
    unknown: LoraUnknown | None = None


class LoraScan:
    """Takes in a body in pieces of any size, and keeps these series until its end; of too many, the first."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []
        self._size = 0
        self._unknown: LoraUnknown | None = None

    def feed(self, piece: bytes) -> None:
        """Take in the next bytes."""
        if self._size > MAX_LORA_BYTES:
            return
        text = self._rest + piece if self._rest else piece
        end = text.rfind(b"\n") + 1
        at = text.find(_START, 0, end)
        if at >= 0:
            last = text.find(b"\n", text.rfind(_START, at, end)) + 1
            self._keep(text[text.rfind(b"\n", 0, at) + 1 : last])
        rest = text[end:]
        if len(rest) > MAX_LORA_LINE:
            if rest.startswith(_START):
                self._unknown = self._unknown or "long_line"
            rest = b"#"  # What comes until the line's end is no line of this family.
        self._rest = rest

    def finish(self) -> LoraRequests | None:
        """Return what the newest series says; `None` if there is none."""
        newest = _newest(self._lines)
        if newest is None:
            return LoraRequests(None, None, self._unknown) if self._unknown is not None else None
        at, labels = newest
        found = {name: value.decode("utf-8", "replace") for name, value in _LABEL.findall(labels)}
        running, most = found.get(_RUNNING_LABEL), found.get(_MAX_LABEL, "")
        limit = int(most) if most.isascii() and most.isdigit() and 0 < int(most[:8]) <= MAX_ADAPTERS else None
        if most.isdigit() and limit is None:
            return LoraRequests(None, None)
        unknown = self._unknown
        if at > MAX_TIME:
            unknown = "several_processes"
        if unknown is not None or running is None:
            return LoraRequests(None, limit, unknown or "not_listed")
        return LoraRequests(len([name for name in running.split(",") if name]), limit)

    def _keep(self, lines: bytes) -> None:
        """Keep whole lines, of which some are of this family, until all are read."""
        self._lines.append(lines)
        self._size += len(lines)
        if self._size > MAX_LORA_BYTES:
            self._unknown = "too_many_lists"
            self._lines = [self._lines[0][: self._lines[0].find(b"\n") + 1]]


def _newest(blocks: list[bytes]) -> tuple[float, bytes] | None:
    """Return the time and the labels of the newest series; of several with one time the first counts."""
    found = [_newest_of(lines) for lines in blocks]
    return max((newest for newest in found if newest is not None), key=lambda newest: newest[0], default=None)


def _newest_of(lines: bytes) -> tuple[float, bytes] | None:
    values = _VALUES.findall(lines)
    return _with_value(lines, max(values, key=float)) if values else None


def _with_value(lines: bytes, written: bytes) -> tuple[float, bytes] | None:
    """Return the time and the labels of the first series with a value, as it is written."""
    for end in (b"\n", b"\r\n"):
        at = lines.find(b"} " + written + end)
        while at >= 0:
            start = lines.rfind(b"\n", 0, at) + 1
            if lines.startswith(_START, start):
                return float(written), lines[start + len(_START) : at]
            at = lines.find(b"} " + written + end, at + 1)
    return None
