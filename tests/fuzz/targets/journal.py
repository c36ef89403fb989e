# SPDX-License-Identifier: Apache-2.0
"""
What journalctl prints: entries are read as JSON's other parser reads them, in whatever pieces they come.

The input is lines; the number of lines before the first empty one is the length of a piece.
"""

from __future__ import annotations

import json
import math
import os

from collections import Counter

from tests.fuzz import seeds as sources

from vllm_watch.daemon.reading.framing import MAX_LINE
from vllm_watch.daemon.sources.journal_reader import MAX_CUT_STREAMS, CutLines, JournalEntry, JournalReader, parse_entry
from vllm_watch_parsers.prefix import ACCESS_START


NOW = 1_795_000_000.0
WHOLE = 1_000_000

TOKENS = (
    *sources.LOG_TOKENS,
    b'{"__CURSOR":"s=1;i=2","__REALTIME_TIMESTAMP":"1795000000000000","MESSAGE":"', b'"}\n', b'","_LINE_BREAK":"',
    b"line-max", b"nul", b"eof", b'","_STREAM_ID":"', b'"MESSAGE":[72,101,108,0,10,255]', b'"MESSAGE":null', b"\\n",
    b"\\u0000", b"\\ud83d\\ude00", b"\\ud800", b"-1", b"256", b"1.5", b"1e999",
)  # fmt: skip


def seeds() -> list[bytes]:
    """Return entries as journalctl prints them, whole, cut and in numbers."""
    found = []
    for lines in sources.log_excerpts(4)[:40]:
        entries = []
        for number, line in enumerate(lines):
            entry = {"__CURSOR": f"s=1;i={number}", "__REALTIME_TIMESTAMP": str(int(NOW - 9 + number) * WHOLE)}
            entry["MESSAGE"] = list(line[:60]) if number == 2 else line.decode("utf-8", "replace")
            entry["_STREAM_ID"] = "ab" if number % 2 else "cd"
            if number == 1:
                entry["_LINE_BREAK"] = "line-max"
            entries.append(json.dumps(entry, ensure_ascii=False).encode())
        found.append(b"\n".join([*entries[:1], b"", *entries[1:]]))
    return found


def check(data: bytes) -> None:
    """Raise AssertionError where an entry is read as something else."""
    lines = data.split(b"\n")
    entries = [_check_entry(line) for line in lines]
    size = max(1, lines.index(b"") if b"" in lines else 1)
    reader, texts = _read(lines, size)
    messages = [entry.message for entry in entries if entry]
    # The first of uvicorn's lines decides, for all that are read with it, whether a terminal wrote the log.
    if not (any(ACCESS_START in each for each in messages) and any(each.endswith(b"\r") for each in messages)):
        assert _summary((reader, texts)) == _summary(_read(lines, len(lines)))
    assert len(reader.cut_lines._cut_streams) <= MAX_CUT_STREAMS
    assert reader.cursor == next((entry.cursor for entry in reversed(entries) if entry), None)


def _check_entry(line: bytes) -> JournalEntry | None:
    entry = parse_entry(line)
    if entry is None:
        return None
    assert math.isfinite(entry.written)
    assert entry.cursor
    assert b"\0" not in os.fsencode(entry.cursor)
    theirs = json.loads(line.decode("utf-8", "replace"))  # Fields that nobody reads may hold anything.
    message = theirs.get("MESSAGE")
    expected = message.encode() if isinstance(message, str) else bytes(message or ())
    assert entry.message == expected
    assert entry.line_break == theirs.get("_LINE_BREAK")
    text = CutLines().line(entry)
    if text is not None:
        assert entry.line_break is None
        assert b"\n" not in text
        assert b"\0" not in text.removesuffix(b"\r").removesuffix(b"\0")
        assert len(text) <= MAX_LINE
    return entry


def _read(lines: list[bytes], size: int) -> tuple[JournalReader, tuple]:
    """Let a reader read lines in pieces, and return it and all that was read."""
    reader = JournalReader()
    events, requests, number = [], Counter(), 0
    for at in range(0, len(lines), size):
        for batch in reader.read(lines[at : at + size], NOW):
            events += [timed.event for timed in batch.events]
            requests.update(batch.requests)
            number += batch.lines
    return reader, (events, requests, number)


def _summary(taken: tuple[JournalReader, tuple]) -> tuple:
    reader, texts = taken
    return reader.cursor, texts, _counts(reader)


def _counts(reader: JournalReader) -> tuple[int, ...]:
    cut_lines = reader.cut_lines
    return (
        reader.lines,
        reader.size,
        reader.skipped_bytes,
        cut_lines.long_lines,
        cut_lines.nul_bytes,
        cut_lines.skipped_bytes,
    )
