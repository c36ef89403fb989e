# SPDX-License-Identifier: Apache-2.0
"""
What the server's side of a report says agrees with what the benchmark measured, on recorded load tests.

Within 1 % where both count requests and tokens, 5 % where one of them sees only the sums of a histogram.

Two numbers are not of the same thing. TTFT and E2EL of a client have its own share in them: HTTP, and the reading of
the stream, on the two cores that it shared with the server. That share is the same in both, so what remains of E2EL is
compared. And a client that cannot keep up reads several chunks of a stream at once: with more than eight requests at
once its inter-token latency is its own, while its time per output token is still the server's.
"""

from __future__ import annotations

import pytest

from tests.loadtest.load_tests import FOLDER, LOAD_TESTS, report_of


pytestmark = pytest.mark.slow

KEEPS_UP = 8
"""The streams that the recorded client reads at once without falling behind."""

STARVED = {"prefix-on-run5"}
"""Other programs took so much of the client's processor that its E2EL is 5.2 % longer than the server's."""

STRANGERS = {"curve: bench4": 2}
"""Requests of another program with a wrong key: the server rejected them, and the client knows nothing of them."""

COUNTS = (
    *("successful", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "output_throughput", "total_token_throughput", "duration_s"),
)

EVERY_TEST = pytest.mark.parametrize("path", LOAD_TESTS, ids=lambda path: path.stem)


def runs(path):
    """Return the runs in a recording."""
    return report_of(path).runs


def views(run):
    """Return the client's view of a run, and the server's."""
    assert [view.view for view in run.views] == ["client", "server"], run.name
    return run.views


def at_once(run):
    """Return how many streams the client reads at once: as it was told, or on average."""
    return run.load.max_concurrency or run.use.running


@EVERY_TEST
def test_counts_and_rates_agree_within_one_per_cent(path):
    """Requests, tokens and throughput are the same on both sides; no request failed, but for those of others."""
    for run in runs(path):
        client, server = views(run)

        for name in COUNTS:
            assert getattr(server, name) == pytest.approx(getattr(client, name), rel=0.01), name
        assert (client.failed, server.failed) == (0, STRANGERS.get(run.name, 0))


@EVERY_TEST
def test_latencies_agree_within_five_per_cent(path):
    """TPOT has the same mean on both sides; so have ITL and E2EL as long as the client keeps up."""
    for run in runs(path):
        client, server = views(run)
        keeps_up = at_once(run) <= KEEPS_UP

        for name in ("tpot_ms", *(["itl_ms"] * keeps_up), *(["e2el_ms"] * (keeps_up and run.name not in STARVED))):
            assert getattr(server, name).mean == pytest.approx(getattr(client, name).mean, rel=0.05), name


@EVERY_TEST
def test_the_client_s_percentiles_are_between_the_server_s_bounds(path):
    """A percentile from buckets says between which values it is, and there it is, to 5 %."""
    for run in runs(path):
        client, server = views(run)

        for quantile in ("p50", "p90", "p95"):
            value, bounds = getattr(client.tpot_ms, quantile), server.tpot_ms.bounds[quantile]
            assert value is None or 0.95 * bounds.low <= value <= 1.05 * bounds.high, quantile


def test_a_long_test_has_a_sound_steady_window():
    """Three minutes at a rate that the server carries are steady for more than one: what comes is answered."""
    (run,) = runs(FOLDER / "long-open.jsonl.xz")
    steady = run.steady

    assert steady.problem is None
    assert steady.end - steady.start >= 60
    assert steady.use.offered_requests_per_second == pytest.approx(steady.result.request_throughput, rel=0.01)
    assert steady.result.request_throughput == pytest.approx(run.load.request_rate, rel=0.05)
    assert {phase.phase for phase in run.phases} >= {"ramp", "steady"}


def test_eight_loads_in_one_recording_are_eight_runs():
    """Each benchmark of the curve is a run with its own requests, and latency turns at one of them."""
    (path,) = (each for each in LOAD_TESTS if each.name.startswith("curve"))
    report = report_of(path)

    assert [run.load.max_concurrency for run in report.runs] == [1, 2, 4, 8, 16, 24, 40, None]
    assert [run.views[1].successful for run in report.runs] == [80, 160, 260, 450, 600, 700, 800, 700]
    assert report.latency_turn.run in {run.name for run in report.runs[1:-1]}
