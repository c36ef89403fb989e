# SPDX-License-Identifier: Apache-2.0
"""What the tests already hold, as inputs to begin with, and the words that logs and pages are made of."""

from __future__ import annotations

import re

from functools import cache
from pathlib import Path

from tests.support.corpus import all_bodies


TESTS = Path(__file__).parents[1]

LOG_TOKENS = (
    b"\r", b"\n", b"\r\n", b"\x1b[0m", b"\x1b[36m", b"] ", b"INFO ", b"ERROR ", b"WARNING ", b"DEBUG ", b"CRITICAL ",
    b"11-21 02:35:10 ", b"[loggers.py:300] ", b"loggers.py", b"metrics.py:349] ", b"log_stats.rs:1] ",
    b"[logger.py:40] ", b"[core.py:700] ", b"(APIServer pid=7) ", b"(EngineCore_DP1 pid=9) ", b"(ApiServer_3 pid=9) ",
    b"INFO:     ", b'127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK', b"Application startup complete.",
    b"Finished server process [1]", b"Engine 000: ", b"2 Engines Aggregated: ",
    b"Avg prompt throughput: 12.3 tokens/s, ", b"Avg generation throughput: 45.6 tokens/s, ", b"Running: 7 reqs, ",
    b"Waiting: 8 reqs, ", b"Deferred: 1 reqs, ", b"GPU KV cache usage: 9.1%, ", b"Prefix cache hit rate: 55.5%",
    b"SpecDecoding metrics: Mean acceptance length: 2.50, ", b"Draft acceptance rate: 75.0%",
    b"Per-position acceptance rate: 0.900, 0.600, ", b"Speculative metrics: ", b"Number of speculative tokens: 3, ",
    b"nan", b"inf", b"-1", b"1e9", b"101.0%", b"{'model': 'm', ", b"non-default args: ",
    b"vLLM API server version 0.12.0", b"EngineCore encountered a fatal error.",
    b"torch.OutOfMemoryError: CUDA out of memory.", b"RuntimeError('NCCL error",
    b"[rank0]:[E1121 04:47:39.123456789 ProcessGroupNCCL.cpp:1] Watchdog caught collective operation timeout: ",
    b"No available shared memory broadcast block found in 60 seconds.", b'{"message": "',
    b'", "levelname": "INFO", "name": "vllm.v1.metrics.loggers"}', b'"name": "uvicorn.access", ',
    b'"asctime": "2026-11-21 02:39:36,679", ', b'"exc_info": "', b'"vllm_process_name": "EngineCore_DP0", ',
    b" [repeated 3x across cluster]", b"GPU KV cache size: 1,024 tokens",
    b"vllm cache_config_info with initialization after num_gpu_blocks is: 5", b"json:1] ", b"uvicorn:1] ", "٣".encode(),
    "\u2028".encode(), b"\x85", b"\xff",
)  # fmt: skip


@cache
def log_shapes() -> tuple[bytes, ...]:
    """Return the different lines of all logs, numbers aside, the shorter ones."""
    logs = sorted((TESTS / "corpus").glob("*/vllm.log"))
    by_shape = {
        re.sub(rb"\d+", b"0", line): line for log in logs for line in log.read_bytes().split(b"\n") if len(line) <= 600
    }
    return tuple(sorted(by_shape.values()))


def log_excerpts(length: int) -> list[list[bytes]]:
    """Return the stretches of so many lines of which all logs are made, shapes seen before left out."""
    seen: set[bytes] = set()
    stretches = []
    for log in sorted((TESTS / "corpus").glob("*/vllm.log")):
        lines = [line for line in log.read_bytes().split(b"\n") if len(line) <= 600]
        for at in range(0, len(lines), length):
            stretch = lines[at : at + length]
            shapes = {re.sub(rb"\d+", b"0", line) for line in stretch}
            if len(shapes - seen) > length // 4:
                stretches.append(stretch)
            seen |= shapes
    return stretches


def pages() -> list[bytes]:
    """Return all recorded pages of the corpus."""
    return [body for _, body in all_bodies()]


def configurations() -> list[bytes]:
    """Return the good configurations of the tests, and the wrong ones."""
    wrong = re.findall(rb"(?ms)^=== \w+\n(.*?)^>>> ", (TESTS / "config" / "mistakes.txt").read_bytes())
    return [*(file.read_bytes() for file in sorted((TESTS / "config").glob("*/*.yml"))), *wrong]
