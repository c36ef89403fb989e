# SPDX-License-Identifier: Apache-2.0
"""
A cheap prefilter: it rejects nearly all irrelevant lines, at a fifth of the cost of parsing.

It may let an irrelevant line pass and never rejects one with an event; a test checks both over the corpus.
"""

from __future__ import annotations

from vllm_watch_parsers.achieved_work import WORK_START
from vllm_watch_parsers.engine_stats import STATS_STARTS
from vllm_watch_parsers.failures import MAX_ERROR_NAME, ROCR_STARTS, SHM_TIMEOUT_START
from vllm_watch_parsers.kv_transfer_line import KV_START
from vllm_watch_parsers.spec_decode import SPEC_STARTS
from vllm_watch_parsers.startup import STARTS


_HEAD_END = b"] "
_MAX_HEAD = 400
_NO_RECORDS = b"({[I\x1b"
"""How lines start that are not plain text: process groups, JSON, C++, uvicorn, colours."""

_LETTERS = 4
_STARTS = frozenset(
    start[:_LETTERS]
    for start in (
        *STARTS,
        SHM_TIMEOUT_START,
        *(start.encode() for start in (*STATS_STARTS, *SPEC_STARTS, KV_START, WORK_START)),
    )
)
_FIRST_SIGNS = b" 0123456789#"
"""How messages start that have no first letter; the logo's lines start with a blank."""
_KV_CACHE_SIZE = b" KV cache size: "
_MAX_DEVICE = 60


def is_irrelevant(line: bytes) -> bool:
    """Return whether a line that neither continues nor opens a record certainly has no event."""
    if b"\x1b" in line:
        return False  # The colours must be removed first.
    at = line.find(_HEAD_END, 0, _MAX_HEAD)
    if at < 0:
        return (
            line[:1] not in _NO_RECORDS
            and line.find(b"Error", 0, MAX_ERROR_NAME) < 0
            and not line.startswith(ROCR_STARTS)
        )
    level = line.find(b"INFO ", 0, at)
    if level < 0:
        level = line.find(b"WARNING ", 0, at)
    start = at + len(_HEAD_END)
    return (
        level >= 0
        and line[start : start + _LETTERS] not in _STARTS
        and line[start : start + 1] not in _FIRST_SIGNS
        and line.find(_KV_CACHE_SIZE, start, start + _MAX_DEVICE) < 0
        # JSON, and the last lines of tracebacks, are recognized before any level that they quote.
        and line.find(b"{", 0, level) < 0
        and line.find(b"Error", 0, level) < 0
    )
