# SPDX-License-Identifier: Apache-2.0
"""Rules on the size of the KV cache, and what is worth knowing about a full one and is no flag to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_watch.analysis.advice.advice_model import Advice, Note
from vllm_watch.analysis.advice.advice_subject import Subject, Window
from vllm_watch.analysis.advice.rule import OFF, Expected, Judgement, Measure, Proposal, Rule, observed
from vllm_watch.analysis.loadtest.server_history import Growth, Point
from vllm_watch.daemon.capacity.saturation import KV_AT_LIMIT
from vllm_watch.daemon.catalog.number_texts import count, percent, significant


_MOST_OF_THE_TIME = 0.5
_FEW_PREEMPTIONS = 10
_SHARE, _OVERRIDE, _BYTES = "gpu-memory-utilization", "num-gpu-blocks-override", "kv-cache-memory-bytes"
_DTYPE = "kv-cache-dtype"
_STEP, _MOST = 0.02, 0.95
_ROOM_IN_BATCH = 0.9
_WIDE = frozenset({"auto", "float16", "bfloat16", "half", "float32", "float"})

_LARGER: Expected = (
    ("kv_cache_capacity_tokens", "rises"),
    ("requests_running", "rises"),
    ("preemptions_total", "falls"),
    ("requests_waiting", "falls"),
)
_HEAVY = 0.6
_WEIGHTS_GIB, _CACHE_GIB = "model_memory_gib", "kv_cache_memory_gib"


def when_cache_is_short(subject: Subject) -> Window:
    """Return when the KV cache may have been too small: requests waited or were preempted, or it was full."""

    def is_short(old: Point, new: Point) -> bool:
        gauges = new.gauges
        is_busy = gauges.get("requests_waiting", 0.0) > 0 or gauges.get("kv_cache_usage_ratio", 0.0) >= KV_AT_LIMIT
        return is_busy or bool(Growth((old, new)).counter("preemptions_total"))

    return subject.work.where(is_short)


def judge_full_cache(_subject: Subject, window: Window) -> Judgement:
    """Return whether the KV cache is what requests wait for."""
    highest = window.highest("kv_cache_usage_ratio")
    if highest is None:
        return "how full the KV cache is is not known"
    full = window.share(lambda _old, new: new.gauges.get("kv_cache_usage_ratio", 0.0) >= KV_AT_LIMIT)
    preempted = window.increase("preemptions_total")
    if full < _MOST_OF_THE_TIME and not (highest >= KV_AT_LIMIT and (preempted or 0.0) >= _FEW_PREEMPTIONS):
        return f"the KV cache is full only {percent(full)} % of this time (highest: {percent(highest)} %)"
    found = [
        observed(
            window,
            "kv_cache_usage_ratio",
            Measure("share_of_time", full, _MOST_OF_THE_TIME),
            f"is {percent(KV_AT_LIMIT)} % or more for {percent(full)} % of this time, {percent(highest)} % at most",
        )
    ]
    if preempted is not None:
        text = f"grows by {count(preempted)}: so many requests lost their place and are computed again"
        found.append(
            observed(
                window, "preemptions_total", Measure("increase", preempted), text if preempted else "does not grow"
            )
        )
    waiting = window.mean("requests_waiting")
    if waiting is not None:
        text = f"is {significant(waiting)} on average"
        found.append(observed(window, "requests_waiting", Measure("mean", waiting), text))
    return tuple(found)


def _judge_share(subject: Subject, window: Window) -> Judgement:
    fixed = next((flag for flag in (_OVERRIDE, _BYTES) if flag in subject.flags), None)
    if fixed is not None:
        return f"{fixed} sets the size of the KV cache, whatever this flag is"
    if subject.device == "cpu":
        return "on a CPU its memory is shared with everything else"
    return judge_full_cache(subject, window)


def _propose_share(subject: Subject, _window: Window) -> Proposal | str:
    now = subject.number(_SHARE) or 0.0
    if now >= _MOST - _STEP / 2:
        return f"it is {now:g} already, and above {_MOST:g} servers run out of memory"
    return Proposal(f"{now:g}", f"{min(now + _STEP, _MOST):.2f}")


def _judge_dtype(subject: Subject, window: Window) -> Judgement:
    if subject.device == "cpu":
        return "there is no such precision on a CPU"
    if subject.flags[_DTYPE] not in _WIDE:
        return f"it is {subject.flags[_DTYPE]} already"
    judged = judge_full_cache(subject, window)
    running, seats = window.mean("requests_running"), subject.seats
    if isinstance(judged, str) or running is None or seats is None:
        return judged
    if running >= _ROOM_IN_BATCH * seats:
        return (
            f"the batch is full, too ({significant(running)} of {seats:g} requests): a larger cache would not be used"
        )
    text = f"is {significant(running)} on average, and its limit is {seats:g}"
    return (*judged, observed(window, "requests_running", Measure("mean", running, _ROOM_IN_BATCH * seats), text))


OVERRIDE = Rule(
    name="num-gpu-blocks-override-off",
    flag=_OVERRIDE,
    cause="kv_cache_full",
    says="The KV cache is full, and its size is fixed by a flag, whatever memory there is.",
    during=when_cache_is_short,
    when="the KV cache is full or requests wait",
    judge=judge_full_cache,
    propose=lambda subject, _window: Proposal(subject.flags[_OVERRIDE], OFF),
    expects=_LARGER,
    risk="The server takes as much memory as gpu-memory-utilization allows: nothing else may need it.",
    guard="tpot_ms.mean > +25%",
)

SHARE = Rule(
    name="gpu-memory-utilization-up",
    flag=_SHARE,
    cause="kv_cache_full",
    says="The KV cache is full: requests wait for it, or lose their place in it.",
    during=when_cache_is_short,
    when="the KV cache is full or requests wait",
    judge=_judge_share,
    propose=_propose_share,
    expects=_LARGER,
    risk="Out of memory under load, not at the start. Only if this server is alone on its GPUs and nvidia-smi shows "
    "that a tenth of their memory is free; go in steps of 0.02.",
    guard="tpot_ms.mean > +25%",
)

FP8 = Rule(
    name="kv-cache-dtype-fp8",
    flag=_DTYPE,
    cause="kv_cache_full",
    says="The KV cache is full, and each of its values has 16 bits.",
    also=("max-num-seqs",),
    during=when_cache_is_short,
    when="the KV cache is full or requests wait",
    judge=_judge_dtype,
    propose=lambda subject, _window: Proposal(subject.flags[_DTYPE], "fp8"),
    expects=_LARGER,
    risk="Answers change: test them with prompts of your own. Not all hardware has it, drafts may be accepted less "
    "often, and steps may take longer or shorter.",
    guard="tpot_ms.mean > +10%",
)


def notes(subject: Subject, advice: Sequence[Advice]) -> Iterator[Note]:
    """Yield what is worth knowing with some advice."""
    if any(each.cause == "kv_cache_full" for each in advice):
        for text in (_lengths(subject), _weights(subject.hardware)):
            if text is not None:
                yield Note(text=text, server=subject.name)


def _lengths(subject: Subject) -> str | None:
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
        weights, cache = float(hardware[_WEIGHTS_GIB]), float(hardware[_CACHE_GIB])
    except (KeyError, ValueError):
        return None
    share = weights / (weights + cache) if weights + cache > 0 else 0.0
    if share <= _HEAVY:
        return None
    return (
        f"The weights take {percent(share)} % of the memory that they and the KV cache have: quantised weights, or a "
        "larger tensor-parallel-size where the GPUs are linked, would leave more. Test that by itself: answers change."
    )
