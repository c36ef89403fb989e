# SPDX-License-Identifier: Apache-2.0
"""
How many LoRA adapters have requests now: what vLLM says of it, read without keeping any of it.

`vllm:lora_requests_info` has one series for each list of adapters that ever ran together, by the ten thousand on a
server of many. The value of each is when it was last true, so that only the newest counts, and any may be it. Its
labels are names that the server's users have given: only their number leaves this module.
"""

from __future__ import annotations

import re

from typing import Literal, NamedTuple, get_args


LORA_REQUESTS = "vllm:lora_requests_info"

LORA_START = LORA_REQUESTS.encode() + b"{"
"""How its lines start."""

MAX_TIME = 3e9
"""A time in the year 2065. Several API server processes add theirs up, and no sum of two is below it."""

MAX_ADAPTERS = 1_000_000

_VALUE = re.compile(rb"\d{1,20}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?")
_LABEL = re.compile(rb'([a-z_]{1,64})="((?:[^"\\\n]|\\.)*)"')
_MAX_LABEL, _RUNNING_LABEL = b"max_lora", b"running_lora_adapters"

LoraUnknown = Literal["several_engines", "several_processes", "long_line", "not_listed"]
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


class NewestLora:
    """Takes in the lines of this family, and keeps the newest; of several with one time the first."""

    def __init__(self) -> None:
        self._at = -1.0
        self._labels = b""
        self._unknown: LoraUnknown | None = None

    def take(self, line: bytes, *, is_whole: bool = True) -> None:
        """Take in a line; one that is not whole may be the newest, and then nothing is known."""
        if not is_whole:
            self._unknown = "long_line"
            return
        labels, _, written = line.rpartition(b"} ")
        try:
            at = float(written)
        except ValueError:
            return
        # First by its value: of ten thousands, few are newer than all before.
        if at > self._at and _VALUE.fullmatch(written.rstrip(b"\r")):
            self._at, self._labels = at, labels

    def finish(self) -> LoraRequests | None:
        """Return what the newest series says; `None` if there is none."""
        if not self._labels:
            return LoraRequests(None, None, self._unknown) if self._unknown is not None else None
        found = {name: value.decode("utf-8", "replace") for name, value in _LABEL.findall(self._labels)}
        running, most = found.get(_RUNNING_LABEL), found.get(_MAX_LABEL, "")
        limit = int(most) if most.isascii() and most.isdigit() and 0 < int(most[:8]) <= MAX_ADAPTERS else None
        if most.isdigit() and limit is None:
            return LoraRequests(None, None)
        unknown = "several_processes" if self._at > MAX_TIME else self._unknown
        if unknown is not None or running is None:
            return LoraRequests(None, limit, unknown or "not_listed")
        return LoraRequests(len([name for name in running.split(",") if name]), limit)
