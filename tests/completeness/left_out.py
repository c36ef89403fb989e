# SPDX-License-Identifier: Apache-2.0
"""
What vLLM says and vllm-watch does not show, each with its reason.

Both lists are closed: what is neither shown nor listed fails a test, and so does an entry that is shown, or that no
recorded release has.
"""

from __future__ import annotations


_REPORT = "`vllm-watch report` has it; it is no series"
_PROCESS = "of the Python interpreter of the API server, whose memory and processor time are shown"
_HTTP = "of the HTTP layer: until the headers or the whole stream, no latency of a generation"
_SIZE = "bytes of JSON with all its names; the tokens are shown"
_SAME = "V0's own rate of a counter whose rate is shown"

FIELDS: dict[str, str] = {
    "EngineStats.kv_fetch": "KV transfers are not shown yet; deferred requests are",
    "StartupFact.gpu": _REPORT,
    "Lifecycle.rank": "several ranks' starts are one of the server: the reader of lines tells them apart by it",
    "Failure.engine": "failures are counted for the server: the log of a crash rarely says whose it was first",
    "AccessRequest.target": "text of a client's; the path alone is looked up in a closed list",
}
"""Fields of the log's events."""

QUANTITIES: dict[str, str] = {}
"""What is read of a page."""

FAMILIES: dict[str, str] = {
    "*_created": "when a series began, not what it says",
    "http_request_duration_*": _HTTP,
    "http_request_size_bytes": _SIZE,
    "http_response_size_bytes": _SIZE,
    "process_virtual_memory_bytes": "address space, most of which is no memory",
    "python_*": _PROCESS,
    "vllm:avg_generation_throughput_toks_per_s": _SAME,
    "vllm:avg_prompt_throughput_toks_per_s": _SAME,
}
"""Families of /metrics, by name or pattern."""
