# SPDX-License-Identifier: Apache-2.0
"""Runs, reports and comparisons to render: whole ones, a sweep of loads, and ones of which little is known."""

from __future__ import annotations

import math

import msgspec

from vllm_watch.analysis.comparison.comparison_model import (
    Comparison,
    Comparisons,
    ConfigDifference,
    Decision,
    MatrixRow,
    Row,
    Side,
)
from vllm_watch.analysis.loadtest.load_test import (
    Bounds,
    Capacity,
    Distribution,
    Event,
    Goodput,
    Latency,
    Load,
    Objective,
    Phase,
    Report,
    Result,
    Run,
    ServerUse,
    Steady,
    Timeline,
)


START = 1795324400.0
HOSTILE = "<script>alert('x')</script>\"&|`*_[a](http://b)\x1b[31m\u202e\nnext"
BUCKETS = (10.0, 25.0, 50.0, 75.0, 100.0, 150.0, 250.0, 500.0, 1000.0)
OBJECTIVE = Objective(name="chat", limits={"ttft_ms": 500.0, "tpot_ms": 50.0})


def latency(middle, count=2400, **more):
    """Return a latency whose percentiles lie around the middle."""
    values = {"mean": middle * 1.1, "median": middle, "std": middle * 0.3, "p50": middle}
    values |= {"p90": middle * 1.6, "p95": middle * 1.9, "p99": middle * 3.2, "count": count}
    return Latency(**values | more)


def client_result(factor=1.0):
    """Return what a benchmark's client measured; `factor` scales the rates, and the latencies the other way."""
    return Result(
        view="client",
        successful=2400,
        failed=0,
        duration_s=512.3,
        total_input_tokens=482_610,
        total_output_tokens=240_000,
        request_throughput=4.68 * factor,
        output_throughput=468.5 * factor,
        total_token_throughput=1410.5 * factor,
        ttft_ms=latency(58.0 / factor),
        tpot_ms=latency(3.24 / factor),
        itl_ms=latency(15.1 / factor, count=238_000),
        e2el_ms=latency(378.0 / factor),
        goodput=Goodput(objective=OBJECTIVE, request_goodput=4.61, ratio=0.985),
        cost_per_million_output_tokens=1.42 / factor,
        cost_per_million_tokens=0.473 / factor,
    )


def server_result():
    """Return what the server's histograms say of the same load."""
    bounds = {"p50": Bounds(low=50.0, high=75.0), "p90": Bounds(low=75.0, high=100.0)}
    bounds |= {"p95": Bounds(low=100.0, high=150.0), "p99": Bounds(low=1000.0)}
    bucketed = Latency(mean=61.3, count=2401, bounds=bounds)
    goodput = Goodput(objective=OBJECTIVE, bounds=Bounds(low=0.97, high=0.99))
    few = Latency(
        mean=3.2, count=80, bounds={"p50": Bounds(high=10.0), "p99": Bounds(low=812.0)}, too_few=("p95", "p99")
    )
    return Result(view="server", successful=2401, duration_s=514.0, ttft_ms=bucketed, tpot_ms=few, goodput=goodput)


def server_use(factor=1.0):
    """Return what a server did in a period."""
    return ServerUse(
        prompt_tokens_per_second=940.0 * factor,
        generation_tokens_per_second=468.0 * factor,
        requests_per_second=4.68,
        offered_requests_per_second=4.7,
        running=7.6,
        max_running=8.0,
        waiting=0.0,
        max_waiting=3.0,
        kv_cache_usage_ratio=0.183,
        max_kv_cache_usage_ratio=0.22,
        preemptions=0,
        prefix_cache_hit_ratio=0.124,
        acceptance_length=2.71,
        position_acceptance=(0.91, 0.8),
        drafted_tokens=176_000,
        wasted_draft_tokens=25_000,
    )


def distributions(factor=1.0):
    """Return how latencies are spread: many narrow buckets for one, a server's wide ones for the other."""
    narrow = tuple(1.2 * 1.05**at for at in range(80))
    counts = tuple(round(400 * math.exp(-(((at - 24 + 8 * math.log(factor)) / 12) ** 2))) for at in range(81))
    wide = Distribution(bounds=BUCKETS, counts=(0, 0, 300, 1400, 500, 150, 30, 15, 5, 1))
    return {"ttft_ms": wide, "tpot_ms": Distribution(bounds=narrow, counts=counts)}


def timeline(seconds=600, step=2, start=START):
    """Return what a server did over time: a ramp, waves, a spike of one point, and a part in which nothing is known."""
    times = tuple(start + at for at in range(0, seconds, step))
    tokens, running, waiting, cache, accepted = [], [], [], [], []
    for at in range(0, seconds, step):
        level = min(1.0, at / 60) * (1 + 0.1 * math.sin(at / 9))
        is_known = not 0.40 < at / seconds < 0.44
        tokens.append(470 * level if is_known else None)
        running.append(float(round(8 * min(1.0, at / 60))) if is_known else None)
        waiting.append((40.0 if at == 300 else float(at % 14 == 0)) if is_known else None)
        cache.append(0.2 * level if is_known else None)
        accepted.append(2.7 + 0.2 * math.sin(at / 30) if is_known and at > 20 else None)
    names = ("generation_tokens_per_second", "requests_running", "requests_waiting", "kv_cache_usage_ratio")
    values = dict(zip(names, map(tuple, (tokens, running, waiting, cache)), strict=True))
    values["prompt_tokens_per_second"] = tuple(None if value is None else value * 2.1 for value in tokens)
    values["spec_decode_mean_acceptance_length"] = tuple(accepted)
    return Timeline(times=times, values=values)


def phases(seconds=600, start=START):
    """Return phases of every kind that a test of some minutes has."""
    parts = (("starting", 0.0), ("idle", 0.05), ("ramp", 0.1), ("steady", 0.2), ("saturated", 0.7), ("down", 0.96))
    ends = [at for _, at in parts[1:]] + [1.0]
    return tuple(
        Phase(
            phase=phase,
            start=start + at * seconds,
            end=start + end * seconds,
            result=server_use() if phase in {"steady", "saturated"} else ServerUse(),
        )
        for (phase, at), end in zip(parts, ends, strict=True)
    )


def whole_run(name="draft2-run1", seconds=600, step=2, factor=1.0, **more):
    """Return a run of which everything is known."""
    steady = Steady(
        start=START + 120,
        end=START + 420,
        method="MSER-5 on output tokens/s",
        result=msgspec.structs.replace(
            server_result(),
            mean_watts=612.0,
            energy_joules=183_600.0,
            joules_per_output_token=1.31 / factor,
            tokens_per_joule=1.9 * factor,
        ),
        use=server_use(factor),
    )
    capacity = Capacity(tokens_per_second=812.0, low=771.0, high=853.0, basis="saturated", explanation="8 s of waiting")
    known = {
        "source": ("runs/draft2-run1.rec", "runs/draft2-run1.json"),
        "name": name,
        "start": START,
        "end": START + seconds,
        "model": "Qwen3.6-27B",
        "version": "0.32.0",
        "hardware": {"device": "cpu", "gpu": "none"},
        "cost_per_hour": 2.4,
        "config": {"max-num-batched-tokens": "8192", "num-speculative-tokens": "2", "enable-prefix-caching": "true"},
        "load": Load(
            endpoint="online",
            backend="openai",
            request_rate="inf",
            max_concurrency=8,
            num_prompts=2400,
            mean_input_tokens=201.1,
            mean_output_tokens=100.0,
            temperature=0.0,
        ),
        "result": client_result(factor),
        "views": (client_result(factor), server_result()),
        "phases": phases(seconds),
        "steady": steady,
        "capacity": capacity,
        "use": server_use(factor),
        "events": (Event(at=START + 30, text="engine started"), Event(at=START + 300, text="32 requests waiting")),
        "timeline": timeline(seconds, step),
        "distributions": distributions(factor),
        "warnings": ("The client was slow: its TTFT is 12 % above the server's.",),
    }
    return Run(**known | more)


def sweep():
    """Return a report of one configuration at several loads: a curve."""
    runs = []
    for at, concurrency in enumerate((1, 2, 4, 8, 16, 24, 32, 40)):
        served = 900 * concurrency / (concurrency + 9)
        waited = 40 + (2.0 * concurrency if concurrency < 20 else 12.0 * (concurrency - 16))
        result = msgspec.structs.replace(
            client_result(),
            output_throughput=served,
            ttft_ms=latency(waited),
            tpot_ms=latency(1000 * concurrency / served),
        )
        load = Load(request_rate="inf", max_concurrency=concurrency, num_prompts=400)
        runs.append(
            whole_run(f"concurrency {concurrency}", result=result, views=(result,), load=load, start=START + at)
        )
    return Report(runs=tuple(runs))


def report(**more):
    """Return a report of one run of which everything is known, but for what is given."""
    return Report(runs=(whole_run(**more),))


def emptied():
    """Yield the name of each field that a run may lack, and a report without it."""
    for field in msgspec.structs.fields(Run):
        if not field.required:
            value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            yield field.name, report(**{field.name: value})


def bare():
    """Return a report of a run of which nothing is known but where it is from."""
    return Report(runs=(Run(source=("a.log",), name="a"),))


def hostile():
    """Return a report in which every text is one that no format may take for markup."""
    return report(
        name=HOSTILE,
        source=(HOSTILE,),
        model=HOSTILE,
        version=HOSTILE,
        hardware={HOSTILE: HOSTILE},
        config={HOSTILE: HOSTILE},
        load=Load(backend=HOSTILE, metadata={HOSTILE: HOSTILE}),
        events=(Event(at=START + 3, text=HOSTILE),),
        warnings=(HOSTILE,),
        steady=Steady(start=START, end=START + 60, method=HOSTILE, problem=HOSTILE),
        capacity=Capacity(tokens_per_second=1.0, low=1.0, high=1.0, basis="curve", explanation=HOSTILE),
    )


ROW = ("a", "b", "difference", "percent", "low", "high")
UNKNOWN = dict.fromkeys(ROW)


def row(metric="output_throughput", unit="tokens/s", grade="shown", **more):
    """Return one metric compared."""
    known = dict(zip(ROW, (468.5, 520.2, 51.7, 11.0, 8.1, 14.0), strict=True))
    return Row(metric=metric, unit=unit, grade=grade, **{"higher_is_better": True, "runs": (5, 5), **known, **more})


def latency_row(metric, grade, *values, **more):
    """Return one latency compared."""
    return row(metric, "ms", grade, **{"higher_is_better": False, **dict(zip(ROW, values, strict=True)), **more})


def comparison(baseline="draft2", candidate="draft4", **more):
    """Return two configurations that can be compared, with a row of each grade."""
    undecided = ("ttft_ms.p50", "not_decided", 58.0, 57.4, -0.6, -1.03, -6.2, 4.4)
    few = {"low": None, "high": None, "runs": (1, 1), "note": "P99 of fewer than 299 requests may be too low."}
    chunks = "The chunks of a stream hold several tokens with drafts."
    rows = (
        row(is_headline=True),
        latency_row("ttft_ms.p99", "shown", 185.6, 240.1, 54.5, 29.4, 12.0, 49.0),
        latency_row(*undecided, reason="The interval holds 0.", needed_runs=9),
        latency_row("tpot_ms.mean", "likely", 3.24, 3.22, -0.02, -0.6, -1.1, -0.1),
        row("e2el_ms.p99", "ms", "likely", higher_is_better=False, **few),
        row("itl_ms.mean", "ms", "not_decided", reason=chunks, **UNKNOWN),
    )
    known = {
        "comparable": True,
        "sentence": f"{candidate} is faster: output 520 against 468 tokens/s, +11 % (shown).",
        "view": "client",
        "warnings": ("The prefix cache's hit ratio differs by 6 points.",),
        "config": (ConfigDifference(flag="num-speculative-tokens", a="2", b="4"), ConfigDifference(flag="seed", a="1")),
        "common_config": {"model": "Qwen3.6-27B", "max-num-batched-tokens": "8192"},
        "metrics": rows,
    }
    return Comparison(baseline=baseline, candidate=candidate, **known | more)


def comparisons(candidates=("draft4",), **more):
    """Return sides compared with the first, draft2; of more than two, with matrix and decisions."""
    names = ("draft2", *candidates)
    sides = tuple(
        Side(name=name, runs=tuple(whole_run(f"{name}-run{at}", factor=1 + 0.1 * side) for at in range(2)))
        for side, name in enumerate(names)
    )
    pairs = tuple(comparison(candidate=name, **more) for name in candidates)
    if len(names) == 2:
        return Comparisons(baseline="draft2", sides=sides, pairs=pairs)
    matrix = tuple(
        MatrixRow(
            name=name,
            config={"num-speculative-tokens": str(at), "seed": "1"},
            values={"ttft_ms.p50": 58.0 + at, "tpot_ms.mean": 3.2, "output_throughput": 468.0 + 30 * at},
        )
        for at, name in enumerate(names)
    )
    decisions = (
        Decision(criterion="Lowest TTFT", metric="ttft_ms.p50", winner="draft2"),
        Decision(criterion="Least memory", metric="kv_cache_usage_ratio", note="no difference is shown"),
    )
    return Comparisons(baseline="draft2", sides=sides, pairs=pairs, matrix=matrix, decisions=decisions)


def hostile_comparisons():
    """Return a comparison in which every text is one that no format may take for markup."""
    name = HOSTILE
    pair = comparison(
        name,
        f"{name}2",
        warnings=(name,),
        config=(ConfigDifference(flag=name, a=name, b=name),),
        common_config={name: name},
        metrics=(row(note=name), row(name, name)),
    )
    sides = (Side(name=name, runs=hostile().runs), Side(name=f"{name}2", runs=hostile().runs))
    return Comparisons(baseline=name, sides=sides, pairs=(pair,))
