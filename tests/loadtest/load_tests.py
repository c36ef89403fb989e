# SPDX-License-Identifier: Apache-2.0
"""The recorded load tests: real servers under `vllm bench serve`, each with the benchmark's own result in it."""

from __future__ import annotations

import functools

from pathlib import Path

from tests.support.shared import shared

from vllm_watch.analysis.loadtest.report_sources import Report, read_report


FOLDER = Path(__file__).parent / "recordings"
LOAD_TESTS = sorted(FOLDER.glob("*.jsonl.xz"))


@functools.lru_cache(maxsize=32)
def report_of(path: Path) -> Report:
    """Return what is read of a recorded load test; nobody may change it, for each is read once in a run."""
    return shared(_read, str(path))


def _read(path: str) -> Report:
    return read_report([path])
