# SPDX-License-Identifier: Apache-2.0
"""
What the curve says of engines of ten shapes, beside what each sustains in truth: while more requests wait than fit.

``python -m tests.capacity.shapes`` prints the table; a number after it says how many seeds.
"""

from __future__ import annotations

import sys

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import click

from tests.capacity.simulated import Engine, Load, samples

from vllm_watch.daemon.capacity.curve import NoCurve
from vllm_watch.daemon.capacity.load import CapacityRange
from vllm_watch.daemon.capacity.tracker import CapacityTracker, curve_range


def _linear(running: int) -> float:
    return 0.012 + 0.00025 * running


def _knee(at: float) -> Callable[[int], float]:
    """Return a step that takes the same time up to a number of requests, and in proportion above."""
    return lambda running: 0.02 * max(1.0, running / at)


SHAPES: Mapping[str, Engine] = {
    "linear": Engine(_linear),
    "roofline": Engine(lambda running: 0.02 * (1 + (running / 40) ** 4) ** 0.25),
    "knee at 40 of 64": Engine(_knee(40)),
    "knee at 64 of 128": Engine(_knee(64), seats=128),
    "convex": Engine(lambda running: 0.012 + 0.0001 * running + 4e-6 * running**2),
    "cliff above 48": Engine(lambda running: _linear(running) * (1.25 if running > 48 else 1)),
    "concave": Engine(lambda running: 0.004 * running**0.6 + 0.004),
    "KV cache": Engine(_linear, seats=256, kv_tokens=24_000, answer=600),
    "KV cache, short": Engine(_linear, seats=256, kv_tokens=12_000),
    "prefill": Engine(_linear, prompt=3000, answer=100),
    "graphs of 8": Engine(lambda running: _linear(-(-running // 8) * 8)),
}
"""The shapes; a knee with two limits."""

Kind = Literal["users", "rate"]
STEPS = (0.1, 0.2, 0.4)
"""The loads of a ladder below its last, as parts of what fits."""

LOAD_SECONDS = 135.0
TRUTH_SECONDS = 240.0
OVERLOAD_USERS = 40


class Judged(NamedTuple):
    """What is said of an engine, and the truth: both in generated tokens per second."""

    name: str
    kind: Kind
    said: CapacityRange | NoCurve
    truth: float

    @property
    def error(self) -> float | None:
        """By which part of the truth the estimate is above it; `None` if there is none."""
        return None if isinstance(self.said, NoCurve) else self.said.tokens_per_second / self.truth - 1


def judge(name: str, kind: Kind, up_to: float, seed: int) -> Judged:
    """Return what is said of an engine after a ladder of loads up to a part of what fits."""
    engine = SHAPES[name]
    return Judged(name, kind, said_of(engine, kind, up_to, seed), truth(engine, seed))


def said_of(engine: Engine, kind: Kind, up_to: float, seed: int) -> CapacityRange | NoCurve:
    """Return what is said of an engine after such a ladder."""
    tracker = CapacityTracker()
    for sample in samples(engine, _ladder(engine, kind, up_to), seed):
        tracker.add(sample)
    curve = tracker.draw(engine.facts).curve
    return curve if isinstance(curve, NoCurve) else curve_range(curve)


def truth(engine: Engine, seed: int) -> float:
    """Return how many tokens an engine generates in a second while more requests wait than fit."""
    loads = [Load(TRUTH_SECONDS, users=round(engine.fitting) + OVERLOAD_USERS)]
    seen = [each for each in samples(engine, loads, seed) if 60 <= each.at <= TRUTH_SECONDS]
    return ((seen[-1].generated or 0.0) - (seen[0].generated or 0.0)) / (seen[-1].at - seen[0].at)


def _ladder(engine: Engine, kind: Kind, up_to: float) -> list[Load]:
    running = [part * engine.fitting for part in (*STEPS, up_to)]
    if kind == "users":
        return [Load(LOAD_SECONDS, users=max(1, round(each))) for each in running]
    return [Load(LOAD_SECONDS, rate=engine.requests_per_second(each)) for each in running]


def main(seeds: int) -> None:
    """Print a line for each shape, kind of load, ladder and seed."""
    click.echo(f"{'engine':20} {'loads':6} {'up to':>5} {'truth':>6} {'at least':>8} {'best':>6} {'most':>6}  error")
    for name in SHAPES:
        for kind in ("users", "rate"):
            for up_to in (0.5, 0.8, 0.9):
                for seed in range(1, seeds + 1):
                    judged = judge(name, kind, up_to, seed)
                    if isinstance(judged.said, NoCurve):
                        text = f"{judged.said.reason} {dict(judged.said.numbers)}"
                    else:
                        best, low, high, _ = judged.said
                        text = f"{low:8.0f} {best:6.0f} {high:6.0f}  {judged.error or 0:+.1%}"
                    click.echo(f"{name:20} {kind:6} {up_to:5.0%} {judged.truth:6.0f} {text}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
