# SPDX-License-Identifier: Apache-2.0
"""Rules on how many requests run at once: the size of the KV cache, and ``max-num-seqs``."""

from __future__ import annotations

import math

from typing import NamedTuple

from vllm_watch.analysis.advice.advice_subject import ACTIVE_SEQS, Holds, Subject, Window
from vllm_watch.analysis.advice.rule import LEAST_SECONDS, LEAST_SHARE, OFF, During, NoAdviceError, Rule, Seen
from vllm_watch.analysis.loadtest.server_history import GPU_MEMORY, Growth, Point
from vllm_watch.analysis.loadtest.server_result import HISTOGRAMS, latency
from vllm_watch.daemon.capacity.saturation import AT_LIMIT, KV_AT_LIMIT
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.number_texts import count, milliseconds, percent, significant


_SHARE, _OVERRIDE, _BYTES = "gpu-memory-utilization", "num-gpu-blocks-override", "kv-cache-memory-bytes"
_DTYPE, _SEATS = "kv-cache-dtype", "max-num-seqs"

_FULL_SHARE = 0.5
_FEW_PREEMPTIONS = 10
_MEMORY_STEP, _MOST_MEMORY = 0.02, 0.95
_ROOM_IN_BATCH = 0.9
_WIDE = frozenset({"auto", "float16", "bfloat16", "half", "float32", "float"})

_AT_LIMIT_SHARE = 0.8
_ROOMY = 0.7
"""A KV cache that is never fuller has room for more requests."""

_STEP = 2
_WORTH_IT = 1.25
"""A batch is made at least this much larger, and at most `_STEP` times as large: less is not worth a restart."""

_LITTLE_FREE = 0.1
"""With less of a GPU's memory free than this, no more of it is taken."""

_LESS = 0.9
"""A smaller batch has at most this part of the present one's seats."""

_GAIN = 1.05
"""A full batch has to give 5 % more tokens a second than half of one, or it gives no more."""

_HALF = (0.4, 0.6)
"""A batch is half full while 40 to 60 % of its seats are taken."""

_NEARLY_FULL = (0.6, 0.9)
_GROWTH = 1 / 3
"""
More seats help if the last ones do: against a batch of 60 to 90 % a full one gives more tokens a second, by at least a
third of the per cent that it has more requests.
"""

_PER_TOKEN = HISTOGRAMS["tpot_ms"]
_NO_FEWER = N_("there are too few to take some away")


def _is_short(old: Point, new: Point) -> bool:
    return _waits(old, new) or _kv_is_full(old, new) or bool(Growth((old, new)).counter("preemptions_total"))


def _kv_is_full(_old: Point, new: Point) -> bool:
    return new.gauges.get("kv_cache_usage_ratio", 0.0) >= KV_AT_LIMIT


def _waits(_old: Point, new: Point) -> bool:
    return new.gauges.get("requests_waiting", 0.0) > 0


def _runs_between(low: float, high: float = math.inf) -> Holds:
    return lambda _old, new: low <= new.gauges.get("requests_running", 0.0) <= high


class _Seats(NamedTuple):
    """How many requests run at once at most: in each engine, as the flag says, and in all together."""

    each: float
    together: float


def _seats(subject: Subject) -> _Seats:
    """Return the seats; raise `NoAdviceError` if they are not known, or if another flag than ``max-num-seqs`` says."""
    if ACTIVE_SEQS in subject.flags:
        raise NoAdviceError(
            "{flag} limits the requests that run at once", flag=f"{ACTIVE_SEQS} {subject.flags[ACTIVE_SEQS]}"
        )
    each, together = subject.number(_SEATS), subject.seats
    if not each or not together:
        raise NoAdviceError("{flag} is not known", (_SEATS,), flag=_SEATS)
    return _Seats(each, together)


def _is_full(subject: Subject) -> Holds:
    return _runs_between(AT_LIMIT * _seats(subject).together)


CACHE_IS_SHORT = During(N_("the KV cache is full or requests wait"), lambda subject: subject.work.where(_is_short))


def _judge_full_cache_with_memory(subject: Subject, window: Window) -> tuple[Seen, ...]:
    """The KV cache is what requests wait for, and memory is free for a larger one, as far as it is read."""
    used = subject.work.highest(GPU_MEMORY)
    if used is not None and used > 1 - _LITTLE_FREE:
        raise NoAdviceError("{share} % of a GPU's memory is in use: a tenth has to be free", share=percent(used))
    return _judge_full_cache(subject, window)


def _judge_full_cache(_subject: Subject, window: Window) -> tuple[Seen, ...]:
    highest = window.highest("kv_cache_usage_ratio")
    if highest is None:
        raise NoAdviceError("how full the KV cache is is not known")
    full, preempted = window.share(_kv_is_full), window.increase("preemptions_total")
    if full < _FULL_SHARE and not (highest >= KV_AT_LIMIT and (preempted or 0.0) >= _FEW_PREEMPTIONS):
        raise NoAdviceError(
            "the KV cache is full only {share} % of this time (highest: {highest} %)",
            share=percent(full),
            highest=percent(highest),
        )
    text = _(
        "is {limit} % or more for {share} % of this time, {highest} % at most",
        limit=percent(KV_AT_LIMIT),
        share=percent(full),
        highest=percent(highest),
    )
    seen = [Seen("kv_cache_usage_ratio", "share_of_time", full, text, _FULL_SHARE)]
    if preempted is not None:
        lost = _("grows by {count}: so many requests lost their place and are computed again", count=count(preempted))
        seen.append(Seen("preemptions_total", "increase", preempted, lost if preempted else _("does not grow")))
    waiting = window.mean("requests_waiting")
    if waiting is not None:
        seen.append(Seen("requests_waiting", "mean", waiting, _("is {value} on average", value=significant(waiting))))
    return tuple(seen)


def _judge_share(subject: Subject, window: Window) -> tuple[Seen, ...]:
    fixed = next((flag for flag in (_OVERRIDE, _BYTES) if flag in subject.flags), None)
    if fixed is not None:
        raise NoAdviceError("{flag} sets the size of the KV cache, whatever this flag is", flag=fixed)
    if subject.device == "cpu":
        raise NoAdviceError("on a CPU its memory is shared with everything else")
    return _judge_full_cache_with_memory(subject, window)


def _propose_share(subject: Subject, _window: Window) -> str:
    now = subject.number(_SHARE) or 0.0
    if now >= _MOST_MEMORY - _MEMORY_STEP / 2:
        limit = _(
            "it is {value:g} already, and above {limit:g} servers run out of memory", value=now, limit=_MOST_MEMORY
        )
        raise NoAdviceError(limit)
    return f"{min(now + _MEMORY_STEP, _MOST_MEMORY):.2f}"


def _judge_dtype(subject: Subject, window: Window) -> tuple[Seen, ...]:
    if subject.device == "cpu":
        raise NoAdviceError("there is no such precision on a CPU")
    if subject.flags[_DTYPE] not in _WIDE:
        raise NoAdviceError("it is {value} already", value=subject.flags[_DTYPE])
    seen = _judge_full_cache(subject, window)
    running, seats = window.mean("requests_running"), subject.seats
    if running is None or seats is None:
        return seen
    if running >= _ROOM_IN_BATCH * seats:
        raise NoAdviceError(
            "the batch is full, too ({running} of {seats:g} requests): a larger cache would not be used",
            running=significant(running),
            seats=seats,
        )
    text = _("is {value} on average, and its limit is {limit:g}", value=significant(running), limit=seats)
    return (*seen, Seen("requests_running", "mean", running, text, _ROOM_IN_BATCH * seats))


def _judge_too_many(subject: Subject, window: Window) -> tuple[Seen, ...]:
    seats = _seats(subject)
    seen = _judge_full_cache(subject, window)
    if not window.increase("preemptions_total"):
        raise NoAdviceError("no request was preempted: waiting costs no computation")
    at_limit = window.share(_is_full(subject))
    if at_limit < LEAST_SHARE:
        raise NoAdviceError(
            "the batch is never at its limit of {limit:g}: a lower one would have to be far lower",
            limit=seats.together,
        )
    text = _("reaches its limit of {limit:g} in {share} % of this time", limit=seats.together, share=percent(at_limit))
    return (*seen, Seen("requests_running", "share_of_time", at_limit, text))


def _propose_fewer(subject: Subject, window: Window) -> str:
    now = _seats(subject).each
    running = (window.mean("requests_running") or 0.0) / subject.engines
    proposed = min(math.floor(_LESS * now), math.ceil(running))
    if not 1 <= proposed < now:
        raise NoAdviceError(_NO_FEWER)
    return str(proposed)


def _judge_too_slow(subject: Subject, window: Window) -> tuple[Seen, ...]:
    """A full batch misses the objective, and half a batch meets it and gives as many tokens a second."""
    limit = None if subject.objective is None else subject.objective.limits.get("tpot_ms")
    if limit is None:
        raise NoAdviceError("the objective has no limit of the time per output token")
    half = _half_full(subject)
    full_time, half_time = (latency(each.histogram(_PER_TOKEN)) for each in (window, half))
    full_rate, half_rate = _tokens_per_second(window), _tokens_per_second(half)
    is_known = full_time is not None and half_time is not None and half.seconds >= LEAST_SECONDS / 2
    if not is_known or full_rate is None or half_rate is None:
        raise NoAdviceError("what half a batch gives is not known")
    slow, quick = ((each and each.mean) or 0.0 for each in (full_time, half_time))
    if slow <= limit or quick > limit:
        raise NoAdviceError(
            "{full} per output token with a full batch, {half} with half of one",
            full=milliseconds(slow),
            half=milliseconds(quick),
        )
    if full_rate >= _GAIN * half_rate:
        raise NoAdviceError(
            "a full batch gives more tokens a second, {full} against {half}",
            full=significant(full_rate),
            half=significant(half_rate),
        )
    compared = N_("is {full} with a full batch, and {half} with half of one")
    text = _(compared, full=milliseconds(slow), half=milliseconds(quick))
    shown = _(compared, full=significant(full_rate), half=significant(half_rate))
    return (
        Seen(_PER_TOKEN, "mean", slow / 1000, text, limit / 1000),
        Seen("generation_tokens_per_second", "mean", full_rate, shown),
    )


def _propose_half(subject: Subject, _window: Window) -> str:
    """As many as ran on average while half the batch was taken: what was measured."""
    proposed = math.floor((_half_full(subject).mean("requests_running") or 0.0) / subject.engines)
    if proposed < 1:
        raise NoAdviceError(_NO_FEWER)
    return str(proposed)


def _half_full(subject: Subject) -> Window:
    return subject.work.where(_runs_between(*(share * _seats(subject).together for share in _HALF)))


def _tokens_per_second(window: Window) -> float | None:
    tokens = window.increase("generation_tokens_total")
    return tokens / window.seconds if tokens is not None and window.seconds else None


def _judge_too_few(subject: Subject, window: Window) -> tuple[Seen, ...]:
    seats = _seats(subject)
    full, kv = window.share(_is_full(subject)), window.highest("kv_cache_usage_ratio")
    if full < _AT_LIMIT_SHARE:
        raise NoAdviceError(
            "while requests wait, the batch is full only {share} % of the time: something else holds them back",
            share=percent(full),
        )
    if kv is None:
        raise NoAdviceError("how full the KV cache is is not known")
    if kv >= _ROOMY:
        raise NoAdviceError(
            "the KV cache is up to {share} % full: more requests at once would fill it", share=percent(kv)
        )
    preempted = window.increase("preemptions_total")
    if preempted:
        raise NoAdviceError(
            "{count:.0f} requests were preempted: the KV cache cannot hold more at once", count=preempted
        )
    gain = _gain(subject)
    waiting = window.mean("requests_waiting") or 0.0
    at_limit = _("is at its limit of {limit:g} for {share} % of this time", limit=seats.together, share=percent(full))
    room = _("is {share} % at most: there is room for more requests", share=percent(kv))
    return (
        Seen("requests_waiting", "mean", waiting, _("is {value} on average", value=significant(waiting))),
        Seen("requests_running", "share_of_time", full, at_limit, _AT_LIMIT_SHARE),
        Seen("kv_cache_usage_ratio", "highest", kv, room, _ROOMY),
        gain,
    )


def _gain(subject: Subject) -> Seen:
    """Return that the last seats of the batch give more tokens, so that more seats may, too."""
    seats = _seats(subject).together
    part = subject.work.where(_runs_between(*(share * seats for share in _NEARLY_FULL)))
    full = subject.work.where(_is_full(subject))
    some, most = _tokens_per_second(part), _tokens_per_second(full)
    running = part.mean("requests_running")
    if part.seconds < LEAST_SECONDS / 2 or not some or most is None or not running:
        raise NoAdviceError(
            "whether more requests at once give more tokens is not known: 60 to 90 % of the batch was not seen for 60 s"
        )
    rates = _(
        "{full} with a full batch, and {part} with {running} requests",
        full=significant(most),
        part=significant(some),
        running=significant(running),
    )
    least = 1 + _GROWTH * (seats / running - 1)
    if most < least * some:
        raise NoAdviceError("more requests at once give hardly more tokens a second: {rates}", rates=rates)
    return Seen("generation_tokens_per_second", "mean", most, _("is {rates}", rates=rates), least * some)


def _propose_more(subject: Subject, window: Window) -> str:
    """Twice as many, but no more than the KV cache and the steps have room for."""
    now, seats = _seats(subject)
    kv, budget = window.highest("kv_cache_usage_ratio") or 0.0, subject.number("max-num-batched-tokens")
    room = [_STEP * now]
    if kv > 0:
        room.append(math.floor(_ROOMY * seats / kv / subject.engines))
    if budget is not None:
        room.append(budget // (1 + (subject.facts.get("num_speculative_tokens") or 0.0)))
    if min(room) < _WORTH_IT * now:
        raise NoAdviceError("the KV cache or the tokens of a step have no room for many more")
    return f"{min(room):g}"


_LARGER_CACHE = (
    "kv_cache_capacity_tokens rises, requests_running rises, preemptions_total falls, requests_waiting falls"
)
_LATER_START = N_("More requests wait before they start: the time to the first token of those rises.")

RULES = (
    Rule(
        name="num-gpu-blocks-override-off",
        flag=_OVERRIDE,
        cause="kv_cache_full",
        says=N_("The KV cache is full, and its size is fixed by a flag, whatever memory there is."),
        during=CACHE_IS_SHORT,
        judge=_judge_full_cache_with_memory,
        propose=lambda _subject, _window: OFF,
        expects=_LARGER_CACHE,
        risk=N_("The server takes as much memory as gpu-memory-utilization allows: nothing else may need it."),
        guard="tpot_ms.mean > +25%",
        takes_memory=True,
    ),
    Rule(
        name="gpu-memory-utilization-up",
        flag=_SHARE,
        cause="kv_cache_full",
        says=N_("The KV cache is full: requests wait for it, or lose their place in it."),
        during=CACHE_IS_SHORT,
        judge=_judge_share,
        propose=_propose_share,
        expects=_LARGER_CACHE,
        risk=N_(
            "Out of memory under load, not at the start. Only if this server is alone on its GPUs and nvidia-smi "
            "shows that a tenth of their memory is free; go in steps of 0.02."
        ),
        guard="tpot_ms.mean > +25%",
        takes_memory=True,
    ),
    Rule(
        name="kv-cache-dtype-fp8",
        flag=_DTYPE,
        cause="kv_cache_full",
        says=N_("The KV cache is full, and each of its values has 16 bits."),
        also=(_SEATS,),
        during=CACHE_IS_SHORT,
        judge=_judge_dtype,
        propose=lambda _subject, _window: "fp8",
        expects=_LARGER_CACHE,
        risk=N_(
            "Answers change: test them with prompts of your own. Not all hardware has it, drafts may be accepted less "
            "often, and steps may take longer or shorter."
        ),
        guard="tpot_ms.mean > +10%",
    ),
    Rule(
        name="max-num-seqs-down",
        flag=_SEATS,
        cause="kv_cache_full",
        says=N_("The batch takes in more requests than the KV cache can hold: they are preempted and computed again."),
        during=CACHE_IS_SHORT,
        judge=_judge_too_many,
        propose=_propose_fewer,
        expects="preemptions_total falls, time_per_output_token_seconds falls, requests_waiting rises",
        risk=_LATER_START,
        guard="ttft_ms.mean > +10%",
    ),
    Rule(
        name="max-num-seqs-down-for-latency",
        flag=_SEATS,
        cause="batch_full",
        says=N_("A full batch misses the objective, and gives no more tokens a second than half of one."),
        during=During(N_("the batch is full"), lambda subject: subject.work.where(_is_full(subject))),
        judge=_judge_too_slow,
        propose=_propose_half,
        expects="requests_running falls, time_per_output_token_seconds falls, requests_waiting rises",
        risk=_LATER_START,
        guard="output_throughput < -5%",
        needs=("objective",),
    ),
    Rule(
        name="max-num-seqs-up",
        flag=_SEATS,
        cause="batch_full",
        says=N_("Requests wait because the batch is full, and the KV cache has room for more at once."),
        during=During(N_("requests wait"), lambda subject: subject.work.where(_waits)),
        judge=_judge_too_few,
        propose=_propose_more,
        expects="requests_running rises, requests_waiting falls, queue_time_seconds falls, "
        "generation_tokens_per_second rises, time_per_output_token_seconds rises, kv_cache_usage_ratio rises",
        risk=N_(
            "Each request gets its tokens more slowly. If the KV cache becomes full, requests are preempted and "
            "computed again. Above the largest captured graph, decode steps run without one."
        ),
        guard="tpot_ms.mean > +25%",
        takes_memory=True,
    ),
)
