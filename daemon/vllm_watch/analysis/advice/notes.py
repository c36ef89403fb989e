# SPDX-License-Identifier: Apache-2.0
"""What is worth knowing beside advice: a lack of memory, how long the requests in a full KV cache are, the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_watch.analysis.advice.advice_model import Advice, Note
from vllm_watch.analysis.advice.advice_subject import Subject
from vllm_watch.analysis.advice.batch_rules import CACHE_IS_SHORT
from vllm_watch.analysis.loadtest.planning import memory_gib
from vllm_watch.daemon.catalog.language import _
from vllm_watch.daemon.catalog.number_texts import moment, percent, significant


_HEAVY = 0.6
"""Weights that take more than this of the memory that they and the KV cache have are worth a note."""


def notes(subject: Subject, advice: Sequence[Advice]) -> Iterator[Note]:
    """Yield what is worth knowing, with some advice or where there is none, and is no flag to change."""
    if subject.has_run_out_of_memory:
        yield Note(text=_crash(subject.ran_out_at), server=subject.name)
    if any(each.cause == "kv_cache_full" for each in advice):
        texts = (_lengths(subject), _weights(subject.hardware))
        yield from (Note(text=text, server=subject.name) for text in texts if text is not None)


def _crash(at: float | None) -> str:
    if at is None:
        return _(
            "Its log tells of a lack of memory: nothing that takes more memory is advised. The runbook "
            "VllmEngineCrashed says which flags free some."
        )
    return _(
        "Its log tells of a lack of memory, last at {time} UTC: nothing that takes more memory is advised. The runbook "
        "VllmEngineCrashed says which flags free some.",
        time=moment(at),
    )


def _lengths(subject: Subject) -> str | None:
    window, limit = CACHE_IS_SHORT.window(subject), subject.number("max-model-len")
    running, ratio = window.mean("requests_running"), window.mean("kv_cache_usage_ratio")
    kv_cache_tokens = subject.facts.get("kv_cache_capacity_tokens")
    if subject.era != "V1" or not (running and ratio and kv_cache_tokens and limit):
        return None
    each = ratio * kv_cache_tokens / running
    if each > limit:
        return None
    return _(
        "A lower max-model-len (now {limit:,.0f}) would not make room: the KV cache is filled by the requests that "
        "run, which hold {tokens} tokens each on average.",
        limit=limit,
        tokens=significant(each),
    )


def _weights(hardware: Mapping[str, str]) -> str | None:
    weights, cache = memory_gib(hardware) or (0.0, 0.0)
    share = weights / (weights + cache) if weights + cache > 0 else 0.0
    if share <= _HEAVY:
        return None
    return _(
        "The weights take {share} % of the memory that they and the KV cache have: quantised weights, or a "
        "larger tensor-parallel-size where the GPUs are linked, would leave more. Test that by itself: answers change.",
        share=percent(share),
    )
