# SPDX-License-Identifier: Apache-2.0
"""The curve of throughput by concurrency."""

from __future__ import annotations

import pytest

from vllm_watch.daemon.statistics.throughput_fit import fit_throughput


def curve(alpha, beta, concurrencies):
    """Return points of a known curve."""
    return [(n, n / (alpha + beta * n)) for n in concurrencies]


def test_a_known_curve_is_found():
    """Points on a curve give back its coefficients, and values between and beyond them."""
    found = fit_throughput(curve(0.02, 0.0005, [1, 2, 4, 8, 16, 32]))

    assert found == pytest.approx((0.02, 0.0005))
    assert found.at(64) == pytest.approx(64 / (0.02 + 0.032))


def test_noisy_first_points_do_not_decide():
    """A first point that is 40 % off moves the curve at the end by less than 3 %: the fit is in X, not in 1/X."""
    points = curve(0.02, 0.0005, [1, 8, 16, 32, 64, 128])
    points[0] = (1, points[0][1] * 0.6)

    assert fit_throughput(points).at(128) == pytest.approx(128 / (0.02 + 0.064), rel=0.03)


@pytest.mark.parametrize(
    "points",
    [[], [(1, 50.0), (8, 300.0)], [(1, 50.0), (1, 51.0), (1, 49.0), (8, 300.0)], [(1, 10.0), (10, 200.0), (20, 900.0)]],
    ids=["none", "two", "two-concurrencies", "bent-upwards"],
)
def test_no_curve_where_there_is_none(points):
    """Fewer than three concurrencies, or throughput that grows faster than concurrency, have no such curve."""
    assert fit_throughput(points) is None
