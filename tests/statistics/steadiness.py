# SPDX-License-Identifier: Apache-2.0
"""
What the steady window keeps of series with known truth: `python -m tests.statistics.steadiness [SEEDS]` prints a table.

Two quantities each, of mean 1 where the server has settled, with a spread of 5 %; neighbours resemble each other as
`rho` says. `kept` is the mean share of the time, `half` in how many a half was cut away, `none` in how many there is no
steady state, `error` the mean error of the window's mean, and `whole` that of the whole load's.
"""

from __future__ import annotations

import math
import random
import sys

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import NamedTuple

from vllm_watch.daemon.statistics.steady_window import Server, SteadyWindow, find_steady_window


POINTS = (24, 30, 60, 150, 300)
SPREAD = 0.05
STALL = (0.45, 0.6)


class Kept(NamedTuple):
    """What became of a kind of series: see the table's heads."""

    kept: float
    half: float
    none: float
    error: float
    whole: float


def noise(generator: random.Random, count: int, rho: float) -> list[float]:
    """Return values of mean 0 and a spread of 5 %, whose neighbours are correlated by `rho`."""
    values = [generator.gauss(0, 1)]
    while len(values) < count:
        values.append(rho * values[-1] + math.sqrt(1 - rho * rho) * generator.gauss(0, 1))
    return [SPREAD * value for value in values]


def constant(_share: float) -> float:
    """Return the level of a settled server."""
    return 1.0


def warm_up(length: float) -> Callable[[float], float]:
    """Return a level that rises evenly from 0.4 to 1 in this share of the time."""
    return lambda share: 0.4 + 0.6 * min(share / length, 1.0)


SHAPES: dict[str, tuple[Callable[[float], float], float]] = {
    "white noise": (constant, 0.0),
    "AR(1) 0.3": (constant, 0.3),
    "AR(1) 0.6": (constant, 0.6),
    "AR(1) 0.8": (constant, 0.8),
    "warm-up of 10 %": (warm_up(0.1), 0.3),
    "warm-up of 20 %": (warm_up(0.2), 0.3),
    "warm-up of 40 %": (warm_up(0.4), 0.3),
    "drain of 20 %": (lambda share: warm_up(0.2)(1 - share), 0.3),
    "ramp throughout": (lambda share: 0.4 + 1.2 * share, 0.3),
    "drift of 30 %": (lambda share: 0.85 + 0.3 * share, 0.3),
    "stall in the middle": (lambda share: 0.0 if STALL[0] <= share < STALL[1] else 1.0, 0.3),
    "queue that grows": (constant, 0.3),
}
STATIONARY = ("white noise", "AR(1) 0.3", "AR(1) 0.6", "AR(1) 0.8")


def window(name: str, count: int, seed: int) -> tuple[SteadyWindow, list[float]]:
    """Return what is found of a series, one value a second, and its values."""
    level, rho = SHAPES[name]
    generator = random.Random(f"{name} {count} {seed}")
    series = [
        [level(at / count) * (1 + each) for at, each in enumerate(noise(generator, count, rho))] for _ in range(2)
    ]
    serves = [not (name.startswith("stall") and STALL[0] <= at / count < STALL[1]) for at in range(count)]
    queue = [2.0 * at if name.startswith("queue") else 0.0 for at in range(count)]
    times = [float(at) for at in range(count)]
    quantities = {"time per output token": series[0], "requests in the server": series[1]}
    found = find_steady_window(times, quantities, server=Server(serves, [8.0] * count, queue))
    assert found is not None
    return found, series[0]


def kept(name: str, count: int, seeds: Sequence[int]) -> Kept:
    """Return what becomes of a kind of series of so many values."""
    found = [window(name, count, seed) for seed in seeds]
    shares = [(each.end - each.start) / (count - 1) for each, _ in found]
    steady = [(each, values) for each, values in found if not (each.problem or "").startswith("no steady state")]
    return Kept(
        fmean(shares),
        fmean(share <= 0.55 for share in shares),
        1 - len(steady) / len(found),
        fmean(abs(fmean(values[int(each.start) + 1 : int(each.end) + 1]) - 1) for each, values in steady or found),
        fmean(abs(fmean(values) - 1) for _, values in found),
    )


def table(seeds: Sequence[int]) -> str:
    """Return the table of all kinds and lengths, in per cent."""
    lines = [f"{'series':21}{'points':>7}{'kept':>7}{'half':>7}{'none':>7}{'error':>7}{'whole':>7}"]
    for name in SHAPES:
        for count in POINTS:
            values = "".join(f"{100 * value:7.1f}" for value in kept(name, count, seeds))
            lines.append(f"{name:21}{count:7}{values}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(table(range(int(sys.argv[1]) if len(sys.argv) > 1 else 100)))
