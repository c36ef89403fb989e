# SPDX-License-Identifier: Apache-2.0
"""A checkpoint file with any content: it is refused with a reason, or every position in it can be gone to."""

from __future__ import annotations

import json
import os

from typing import get_args

from msgspec.structs import astuple, replace
from tests.fuzz.targets import scratch_folder

from vllm_watch.daemon.catalog.reasons import CheckpointReason
from vllm_watch.daemon.sources import checkpoint
from vllm_watch.daemon.sources.checkpoint import CHECKED_SIZE, CheckpointFile, FilePosition, JournalPosition, Positions


NOW = 1_795_000_000.0

TOKENS = (
    b'"version": 1', b'"written": ', b'"files": [', b'"journals": [', b'"path": "', b'"device": ', b'"inode": ',
    b'"offset": ', b'"head_size": ', b'"head_crc": ', b'"marker_size": ', b'"marker_crc": ', b'"unit": "',
    b'"cursor": "', b"\\u0000", b"\\ud800", b"\\udcff", b"NaN", b"-1", b"Infinity", b"1e400", b"18446744073709551616",
    b"9223372036854775808", b"true", b"null", b"[" * 40, b"{}", b"1.0", b"\xff", b"}, {", b"9" * 4301,
)  # fmt: skip


def seeds() -> list[bytes]:
    """Return documents of different lengths."""
    file = FilePosition("/var/log/vllm/vllm.log", 64768, 1311, 123_456, 256, 0xDEADBEEF, 256, 7)
    odd = replace(file, path="/var/log/\udcff", offset=0, head_size=0, marker_size=0)
    journal = JournalPosition("vllm.service", "s=6c;i=4f2;b=1e;m=9;t=5;x=a1")
    documents = (Positions(), Positions((file,)), Positions((), (journal,)), Positions((file, odd), (journal, journal)))
    return [checkpoint._encode(positions, NOW) for positions in documents]


def check(data: bytes) -> None:
    """Raise AssertionError where a checkpoint is used that cannot be."""
    path = scratch_folder() / "checkpoint.json"
    path.write_bytes(data)
    loaded = CheckpointFile(str(path)).load(NOW)
    if loaded.reason != "ok":
        assert loaded.reason in get_args(CheckpointReason)
        assert loaded.positions == Positions()
        return
    content = json.loads(data)
    assert 0 <= content["written"] <= NOW + checkpoint.MAX_FUTURE
    assert content["version"] == checkpoint.VERSION
    for file in loaded.positions.files:
        assert all(value >= 0 for value in astuple(file)[1:])
        assert max(file.head_size, file.marker_size) <= CHECKED_SIZE
        assert file.marker_size <= file.offset < 2**63
        assert max(file.head_crc, file.marker_crc) < 2**32
        _check_argument(file.path)
    for journal in loaded.positions.journals:
        _check_argument(journal.unit)
        _check_argument(journal.cursor)
    path.write_bytes(checkpoint._encode(loaded.positions, NOW))
    assert CheckpointFile(str(path)).load(NOW).positions == loaded.positions


def _check_argument(text: str) -> None:
    """The system takes it, as a name of a file or as a command's argument."""
    name = os.fsencode(text)
    assert name
    assert b"\0" not in name
