# SPDX-License-Identifier: Apache-2.0
"""
A quick look at a line that tells of nearly every uninteresting one that it is: a fifth of what parsing costs.

It may let an uninteresting line pass, and never dismisses one that says something; a test holds both over the corpus.
"""

from __future__ import annotations

from vllm_watch_parsers.failures import MAX_ERROR_NAME, SHM_TIMEOUT_START
from vllm_watch_parsers.startup import STARTS


_HEAD_END = b"] "
_MAX_HEAD = 400
_NO_RECORDS = b"({[I\x1b"
"""How lines begin that are no plain text: process groups, JSON, C++, uvicorn, colours."""

_LETTERS = 4
_BEGINNINGS = frozenset(
    start[:_LETTERS]
    for start in (
        *STARTS,
        SHM_TIMEOUT_START,
        b"Avg prompt",
        b"Running: ",
        b"Prefix cache",
        b"SpecDecoding",
        b"Speculative",
    )
)
_FIRST_SIGNS = b"0123456789#"
_KV_CACHE_SIZE = b" KV cache size: "
_MAX_DEVICE = 60


def is_irrelevant(line: bytes) -> bool:
    """Tell of a line that neither continues nor opens a record that it certainly says nothing."""
    if b"\x1b" in line:
        return False  # It must be cleaned first.
    at = line.find(_HEAD_END, 0, _MAX_HEAD)
    if at < 0:
        return line[:1] not in _NO_RECORDS and line.find(b"Error", 0, MAX_ERROR_NAME) < 0
    level = line.find(b"INFO ", 0, at)
    if level < 0:
        level = line.find(b"WARNING ", 0, at)
    start = at + len(_HEAD_END)
    return (
        level >= 0
        and line[start : start + _LETTERS] not in _BEGINNINGS
        and line[start : start + 1] not in _FIRST_SIGNS
        and line.find(_KV_CACHE_SIZE, start, start + _MAX_DEVICE) < 0
        # JSON and tracebacks' last lines show themselves before whatever level they quote.
        and line.find(b"{", 0, level) < 0
        and line.find(b"Error", 0, level) < 0
    )
