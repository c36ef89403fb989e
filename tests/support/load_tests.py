# SPDX-License-Identifier: Apache-2.0
"""Runs of load tests made by hand: plausible in all that a test is not about."""

from __future__ import annotations

import math
import random

from msgspec.structs import replace

from vllm_watch.analysis.comparison.comparison_model import Side
from vllm_watch.analysis.loadtest.load_test import Goodput, Latency, Load, Objective, Result, Run, ServerUse


CHAT = Objective(name="chat", limits={"ttft_ms": 500.0, "tpot_ms": 50.0})
LOAD = Load(
    endpoint="online",
    request_rate="inf",
    max_concurrency=16,
    num_prompts=2000,
    mean_input_tokens=200.0,
    mean_output_tokens=100.0,
    temperature=0.0,
)
OPEN = replace(LOAD, request_rate=4.0, max_concurrency=None)


def latency(mean, count=2000, **changes):
    """Return a latency whose percentiles are multiples of its mean."""
    return replace(
        Latency(mean=mean, p50=mean * 0.9, p90=mean * 1.6, p95=mean * 1.9, p99=mean * 2.5, count=count), **changes
    )


def result(speed=1.0, view="client", goodput=None, **changes):
    """Return a result block of a server that is so many times as fast as the usual one."""
    found = Result(
        view=view,
        successful=2000,
        failed=0,
        duration_s=100.0 / speed,
        total_input_tokens=400_000,
        total_output_tokens=200_000,
        request_throughput=20.0 * speed,
        output_throughput=2000.0 * speed,
        total_token_throughput=6000.0 * speed,
        ttft_ms=latency(80.0 / speed),
        tpot_ms=latency(7.0 / speed),
        itl_ms=latency(7.0 / speed),
        e2el_ms=latency(780.0 / speed),
        goodput=None if goodput is None else Goodput(objective=CHAT, request_goodput=goodput, ratio=goodput / 20),
    )
    return replace(found, **changes)


def run(name="run", speed=1.0, *, load=LOAD, config=None, goodput=None, start=None, use=None, steady=None, **changes):
    """Return a run; what is not named here changes its result."""
    given = {"max-num-seqs": "32"} if config is None else config
    return Run(
        source=(f"{name}.json",),
        name=name,
        start=start,
        model="Qwen3-8B",
        version="0.32.0",
        config=given,
        load=load,
        result=result(speed, goodput=goodput, **changes),
        use=use or ServerUse(),
        steady=steady,
    )


def runs(name, number, speed=1.0, cv=0.02, seed=1, start=None, interval=2, **how):
    """Return runs of one configuration that vary by a factor; they take turns if each side starts at another time."""
    generator = random.Random(seed)
    return tuple(
        run(
            f"{name}{at + 1}",
            speed * math.exp(generator.gauss(0, cv)),
            start=None if start is None else start + at * interval,
            **how,
        )
        for at in range(number)
    )


def side(name, number=5, speed=1.0, **how):
    """Return a side of so many runs."""
    return Side(name=name, runs=runs(name, number, speed, seed=len(name) + ord(name[-1]), **how))


def changed(found, **changes):
    """Return a side whose runs are changed; of a run and its number a function makes the new value."""
    return Side(
        name=found.name,
        runs=tuple(
            replace(each, **{name: new(each, at) if callable(new) else new for name, new in changes.items()})
            for at, each in enumerate(found.runs)
        ),
    )


def single(name, speed=1.0, **how):
    """Return a side of one run."""
    return Side(name=name, runs=(run(name, speed, **how),))


def row(comparison, metric):
    """Return the row of a metric."""
    return next(each for each in comparison.metrics if each.metric == metric)


def called_different(comparison):
    """Return the metrics in which a comparison shows a difference."""
    return [each.metric for each in comparison.metrics if each.grade == "shown"]
