# SPDX-License-Identifier: Apache-2.0
"""The first and last time that some lines print: what a log's times are counted from."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.reading.containers import Unwrapper
from vllm_watch_parsers.prefix import parse_head, strip_ansi


def first_printed_time(block: bytes) -> str:
    """Return the first time printed in a block that begins with a whole line, or nothing."""
    return _first(Unwrapper().feed(block.split(b"\n")))


def last_printed_time(block: bytes) -> str:
    """Return the last time printed in a block that may begin inside a line, or nothing."""
    lines = block.split(b"\n")
    return _first(Unwrapper().feed(lines[1:])[::-1]) or _first(Unwrapper().feed(lines[:1]))


def _first(lines: Sequence[bytes]) -> str:
    times = (parse_head(strip_ansi(line)).time for line in lines)
    return next((time for time in times if time), "")
