# SPDX-License-Identifier: Apache-2.0
"""The recorded load tests: real servers under `vllm bench serve`, each with the benchmark's own result in it."""

from __future__ import annotations

import functools

from pathlib import Path

from tests.support.shared import shared

from vllm_watch.analysis.loadtest.joining import join
from vllm_watch.analysis.loadtest.load_test import Report
from vllm_watch.analysis.loadtest.report_sources import Sources, read_sources


FOLDER = Path(__file__).parent / "recordings"
LOAD_TESTS = [path for path in sorted(FOLDER.glob("*.jsonl.xz")) if path.name != "bursts.jsonl.xz"]
"""Those with the client's results."""


@functools.lru_cache(maxsize=32)
def sources_of(name: str) -> Sources:
    """Return what is in a recorded load test; nobody may change it, for each is read once in a run."""
    return shared(_read, str(FOLDER / f"{name}.jsonl.xz"))


def report_of(path: Path) -> Report:
    """Return the report of a recorded load test."""
    sources = sources_of(path.name.removesuffix(".jsonl.xz"))
    return join(sources.clients, sources.histories)


def _read(path: str) -> Sources:
    return read_sources([path])
