# SPDX-License-Identifier: Apache-2.0
"""The trend test."""

from __future__ import annotations

import random

import pytest

from vllm_watch.daemon.statistics.trend import mann_kendall


def autoregressive(generator, count, rho, drift=0.0):
    """Return values around 100 that resemble their neighbours, with a drift from end to end."""
    values, noise = [], 0.0
    for place in range(count):
        noise = rho * noise + generator.gauss(0, 1)
        values.append(100 + noise + drift * place / count)
    return values


@pytest.mark.parametrize(("rho", "most"), [(0.0, 0.08), (0.4, 0.1), (0.7, 0.12)])
def test_autocorrelation_is_not_taken_for_a_trend(rho, most):
    """Of 300 series without a trend few have one found; the plain test finds one in 20 to 40 %."""
    generator = random.Random(11)
    false = sum(mann_kendall(autoregressive(generator, 60, rho)).p < 0.05 for _ in range(300))

    assert false / 300 <= most


def test_a_drift_is_found_and_measured():
    """Of 100 series that rise by 10 at a standard deviation of 1, the trend is found in all, with its size."""
    generator = random.Random(12)
    found = [mann_kendall(autoregressive(generator, 60, 0.3, drift=10)) for _ in range(100)]

    assert all(each.p < 0.05 for each in found)
    assert sum(each.drift for each in found) / 100 == pytest.approx(10, rel=0.05)


def test_constant_values_have_no_trend():
    """Of equal values, and of fewer than eight, there is none."""
    assert mann_kendall([5.0] * 20) == (0.0, 1.0)
    assert mann_kendall([1.0, 2.0, 3.0]) is None
