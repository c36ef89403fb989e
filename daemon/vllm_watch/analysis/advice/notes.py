# SPDX-License-Identifier: Apache-2.0
"""What is worth knowing about a full KV cache, and is no flag to change: lengths, weights and more GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_watch.analysis.advice.kv_cache_rules import when_cache_is_short
from vllm_watch.analysis.advice.model import Advice, Note
from vllm_watch.analysis.advice.subject import Subject
from vllm_watch.daemon.catalog.number_texts import percent, significant


_HEAVY = 0.6
_WEIGHTS, _CACHE = "model_memory_gib", "kv_cache_memory_gib"


def notes(subject: Subject, advice: Sequence[Advice]) -> Iterator[Note]:
    """Yield what is worth knowing with some advice."""
    if any(each.cause == "kv_cache_full" for each in advice):
        for text in (_lengths(subject), _weights(subject.hardware)):
            if text is not None:
                yield Note(text=text, server=subject.name)


def _lengths(subject: Subject) -> str | None:
    """Return that a lower limit of the length would not help, if requests are shorter than it."""
    window, limit = when_cache_is_short(subject), subject.number("max-model-len")
    running, ratio = window.mean("requests_running"), window.mean("kv_cache_usage_ratio")
    kv_cache_tokens = subject.facts.get("kv_cache_capacity_tokens")
    if subject.era != "V1" or not (running and ratio and kv_cache_tokens and limit):
        return None
    each = ratio * kv_cache_tokens / running
    if each > limit:
        return None
    return (
        f"A lower max-model-len (now {limit:,.0f}) would not make room: the KV cache is filled by the requests that "
        f"run, which hold {significant(each)} tokens each on average."
    )


def _weights(hardware: Mapping[str, str]) -> str | None:
    try:
        weights, cache = float(hardware[_WEIGHTS]), float(hardware[_CACHE])
    except (KeyError, ValueError):
        return None
    share = weights / (weights + cache) if weights + cache > 0 else 0.0
    if share <= _HEAVY:
        return None
    return (
        f"The weights take {percent(share)} % of the memory that they and the KV cache have: quantised weights, or a "
        "larger tensor-parallel-size where the GPUs are linked, would leave more. Test that by itself: answers change."
    )
