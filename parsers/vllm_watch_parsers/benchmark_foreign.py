# SPDX-License-Identifier: Apache-2.0
"""JSON and blocks that look like a result of vLLM's benchmarks and are not: who wrote them."""

from __future__ import annotations

import re

from collections.abc import Set as AbstractSet


_SGLANG = "a result of SGLang's bench_serving"
_BY_KEYS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"total_output_tokens_retokenized"}), _SGLANG),
    (frozenset({"mean_e2e_latency_ms"}), _SGLANG),
    (frozenset({"benchmarks", "args"}), "a report of GuideLLM"),
    (frozenset({"benchmarks", "metadata"}), "a report of GuideLLM"),
    (frozenset({"request_throughput", "input_config"}), "a profile of AIPerf or GenAI-Perf"),
    (frozenset({"load_summary", "successes"}), "a summary of inference-perf"),
    (frozenset({"metrics", "root_group"}), "a summary of k6"),
    (frozenset({"Time taken for tests (s)"}), "a summary of EvalScope"),
    (frozenset({"results_num_completed_requests"}), "a summary of LLMPerf"),
    (frozenset({"results", "versions", "config"}), "a result of lm-evaluation-harness"),
    (frozenset({"mm_processor_stats"}), "a result of vllm bench mm-processor, which measures no load"),
    (frozenset({"runs"}), "a report of vllm-watch"),
    (frozenset({"pairs", "sides"}), "a comparison of vllm-watch"),
)
_BY_LINE: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"Total generated tokens \(retokenized\):|Mean E2E Latency \(ms\):"),
        "a result of SGLang's bench_serving",
    ),
)
_PYTORCH = {"benchmark", "metric", "model"}


def foreign_object(keys: AbstractSet[str]) -> str | None:
    """Return what a JSON object with these keys is, if it is known and nothing of ours."""
    return next((what for wanted, what in _BY_KEYS if wanted <= keys), None)


def foreign_list(first: object) -> str | None:
    """Return what a JSON list with this first entry is, if it is known."""
    if isinstance(first, dict) and first.keys() >= _PYTORCH:
        return "a record for PyTorch's benchmark database; the result is in the file without .pytorch in its name"
    return None


def foreign_line(line: str) -> str | None:
    """Return what a block with this line is, if it is not of vLLM."""
    return next((what for form, what in _BY_LINE if form.search(line)), None)
