# SPDX-License-Identifier: Apache-2.0
"""
How many LoRA adapters have requests now: what vLLM says of it, read without keeping any of it.

`vllm:lora_requests_info` has one series for each list of adapters that ever ran together, by the ten thousand on a
server of many. The value of each is when it was last true, so that only the newest counts. Its labels are names that
the server's users have given: only their number leaves this module.
"""

from __future__ import annotations

import re

from typing import NamedTuple


LORA_REQUESTS = "vllm:lora_requests_info"

MAX_LORA_LINE = 64 * 1024
"""A longer line of this family is not read, and then nothing is known: it may be the newest."""

MAX_TIME = 3e9
"""A time in the year 2065. Several API server processes add theirs up, and no sum of two is below it."""

MAX_ADAPTERS = 1_000_000

_START = LORA_REQUESTS.encode() + b"{"
_VALUES = re.compile(rb"^" + re.escape(_START) + rb".*\} (\d{1,20}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?)\r?$", re.MULTILINE)
_LABEL = re.compile(rb'([a-z_]{1,64})="((?:[^"\\\n]|\\.)*)"')
_MAX_LABEL, _RUNNING_LABEL = b"max_lora", b"running_lora_adapters"


class LoraRequests(NamedTuple):
    """
    What the newest series says.

    Args:
        active: How many adapters have requests, on V0 running ones; `None` if that cannot be told. V1 fills the label
            of running ones with all that have requests, and a name with a comma cannot be told from two names.
        most: How many adapters a batch may use (``--max-loras``); `None` where it is not there, or LoRA is off.
    """

    active: int | None
    most: int | None


class LoraScan:
    """Takes in a body in pieces of any size, and keeps the newest of these series."""

    def __init__(self) -> None:
        self._rest = b""
        self._newest: tuple[float, bytes] | None = None
        self._is_uncertain = False

    def feed(self, piece: bytes) -> None:
        """Take in the next bytes."""
        text = self._rest + piece if self._rest else piece
        end = text.rfind(b"\n") + 1
        at = text.find(_START, 0, end)
        if at >= 0:
            self._take(text[text.rfind(b"\n", 0, at) + 1 : end])
        rest = text[end:]
        if len(rest) > MAX_LORA_LINE:
            self._is_uncertain |= rest.startswith(_START)
            rest = b"#"  # What comes until the line's end is no line of this family.
        self._rest = rest

    def finish(self) -> LoraRequests | None:
        """Return what the newest series says; `None` if there is none."""
        if self._newest is None:
            return LoraRequests(None, None) if self._is_uncertain else None
        at, labels = self._newest
        found = {name: value.decode("utf-8", "replace") for name, value in _LABEL.findall(labels)}
        running, most = found.get(_RUNNING_LABEL), found.get(_MAX_LABEL, "")
        active = len([name for name in running.split(",") if name]) if running is not None else None
        limit = int(most) if most.isascii() and most.isdigit() and 0 < int(most[:8]) <= MAX_ADAPTERS else None
        is_off = most.isdigit() and limit is None
        return LoraRequests(None if self._is_uncertain or is_off or at > MAX_TIME else active, limit)

    def _take(self, lines: bytes) -> None:
        """Take in whole lines, of which some are of this family."""
        values = _VALUES.findall(lines)
        if not values:
            return
        times = list(map(float, values))
        newest = max(times)
        if self._newest is not None and newest <= self._newest[0]:
            return  # Of several with one time the first counts, in whatever pieces they come.
        written = re.escape(values[times.index(newest)])
        line = re.search(rb"^" + re.escape(_START) + rb"(.*)\} " + written + rb"\r?$", lines, re.MULTILINE)
        if line is not None:
            self._newest = newest, line[1]
