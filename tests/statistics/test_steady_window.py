# SPDX-License-Identifier: Apache-2.0
"""The steady window: warm-up and drain out, no drift, long enough."""

from __future__ import annotations

import random

from vllm_watch.daemon.statistics.steady_window import find_steady_window


GENERATOR = random.Random(21)
TIMES = [1000.0 + 2 * place for place in range(150)]


def tpot(place, drift=0.0, noise=0.3):
    """Return a time per output token: it falls through the first 20 values and varies around 20 ms."""
    return 20 + max(20 - place, 0) * 2 + drift * place / 150 + GENERATOR.gauss(0, noise)


def running(place):
    """Return running requests: eight, but for the ramp and for the drain at the end."""
    return min(place, 8, max(150 - place, 0) // 2)


def load(**how):
    """Return what decides, over 300 s."""
    return {
        "time per output token": [tpot(place, **how) for place in range(150)],
        "running requests": [running(place) for place in range(150)],
    }


def test_warm_up_and_drain_are_left_out():
    """The window begins after the ramp of 40 s, ends with the last request that was issued, and has no problem."""
    found = find_steady_window(TIMES, load(), issued=(1000.0, 1260.0))

    assert found.problem is None
    assert 1024 <= found.start <= 1080
    assert found.end == 1260


def test_what_drifts_has_a_problem():
    """Time per output token that rises by a third through the window is no steady state, and the problem says so."""
    found = find_steady_window(TIMES, load(drift=8.0), issued=(1000.0, 1260.0))

    assert found.problem.startswith("no steady state: time per output token ")


def test_a_small_drift_is_ignored():
    """A rise of 2 % from end to end is real and does not matter."""
    assert find_steady_window(TIMES, load(drift=0.4, noise=0.01), issued=(1000.0, 1260.0)).problem is None


def test_a_short_window_has_a_problem():
    """A window of less than 60 s, or of less than five times the P99 latency, is too short."""
    short = find_steady_window(TIMES, load(), issued=(1000.0, 1080.0))
    slow = find_steady_window(TIMES, load(), issued=(1000.0, 1260.0), p99_latency=60.0)

    assert "60 s are needed" in short.problem
    assert "300 s are needed" in slow.problem


def test_noise_needs_a_longer_window():
    """If the mean is known to more than 5 % only, the window is too short for it."""
    noisy = {"time per output token": [GENERATOR.expovariate(0.05) for _ in TIMES]}

    assert "so much that its mean is known to" in find_steady_window(TIMES, noisy).problem


def test_missing_values_are_not_zeros():
    """Times without a value do not count, and a quantity of too few values decides nothing."""
    values = load()
    values["time per output token"][40:60] = [None] * 20
    values["running requests"] = [None] * 145 + [1.0] * 5

    found = find_steady_window(TIMES, values, issued=(1000.0, 1260.0))

    assert found.problem is None
    assert found.start > 1020


def test_what_rises_throughout_is_never_steady():
    """What rises all the time has no part that is unlike the rest: it is kept whole, and is no steady state."""
    found = find_steady_window(TIMES, {"running requests": [float(place) for place in range(150)]})

    assert (found.start, found.end) == (1000.0, 1298.0)
    assert found.problem == (
        "no steady state: running requests drifted by +200 % of its mean from the start to the end of the window"
    )
