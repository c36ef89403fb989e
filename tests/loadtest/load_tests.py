# SPDX-License-Identifier: Apache-2.0
"""The recorded load tests: real servers under `vllm bench serve`, each with the benchmark's own result in it."""

from __future__ import annotations

from pathlib import Path


FOLDER = Path(__file__).parent / "recordings"
LOAD_TESTS = sorted(FOLDER.glob("*.jsonl.xz"))
