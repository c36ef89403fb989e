# SPDX-License-Identifier: Apache-2.0
"""Requests that kept an objective are counted at bounds that vLLM's histograms have."""

from __future__ import annotations

import math

import pytest

from tests.support.pages import ScrapedServer, histogram, page
from tests.support.recordings import recording

from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.state.latencies import attainments
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import HistogramReading
from vllm_watch_parsers.scrape import Histogram


CHAT = {"slo_time_to_first_token_seconds": 0.5, "slo_time_per_output_token_seconds": 0.05}
FIRST_TOKEN = HistogramReading(Histogram((0.25, 0.5, 1.0, 2.5, math.inf), (3.0, 5.0, 6.0, 8.0, 10.0), 20.0), 1000.0)


@pytest.mark.parametrize(
    ("seconds", "bound", "good"), [(0.5, 0.5, 5), (2.0, 2.5, 8), (0.1, 0.25, 3), (60.0, math.inf, 10)]
)
def test_the_bound_is_the_next_one_that_is_not_below(seconds, bound, good):
    """An objective between two bounds is judged by the one above it: who is called bad is bad."""
    (kept,) = attainments({"slo_time_to_first_token_seconds": seconds}, {"time_to_first_token_seconds": FIRST_TOKEN})

    assert ("time_to_first_token", bound, good, 10, 1000.0) == kept


def test_without_a_histogram_nothing_is_said():
    """A server without the histogram (before 0.11, or a log alone) has no count of good requests."""
    assert [] == attainments(CHAT, {})


def test_a_recorded_overload_misses_its_objective():
    """In the recorded overload most requests miss half a second to the first token; in the light load none did."""
    played = recording("day")
    state = ServerState(ServerSettings("day", has_log=True, metrics_interval=5.0, slo=CHAT))
    shares = {}
    for snapshot in run_recording(played, state, 10.0):
        values = {
            sample.name: sample.value
            for sample in server_samples(snapshot)
            if sample.name.startswith("slo_") and "time_to_first_token" in sample.labels
        }
        if values.get("slo_requests_total"):
            shares[round(snapshot.at - played.started)] = (
                values["slo_good_requests_total"] / values["slo_requests_total"]
            )

    assert shares[110] > 0.95
    assert shares[450] < 0.5


def judged(seconds):
    """Return the counters of an objective as labels and values."""
    server = ScrapedServer(slo={"slo_time_to_first_token_seconds": seconds})
    counts = {"0.5": 70, "2.5": 99, "+Inf": 100}
    snapshot = server.scrape(page(extra=histogram("time_to_first_token_seconds", counts, 40)))
    return {
        (sample.name, sample.labels[3:]): sample.value
        for sample in server_samples(snapshot)
        if sample.name in {"slo_requests_total", "slo_good_requests_total", "slo_bound_seconds"}
    }


def test_a_tightened_objective_has_counters_of_its_own():
    """The same requests by two objectives are different series: Prometheus takes none for the other's reset."""
    assert judged(2.0) == {
        ("slo_requests_total", ("time_to_first_token", "2.5")): 100,
        ("slo_good_requests_total", ("time_to_first_token", "2.5")): 99,
        ("slo_bound_seconds", ("time_to_first_token",)): 2.5,
    }
    assert judged(0.4).keys().isdisjoint(judged(2.0).keys() - {("slo_bound_seconds", ("time_to_first_token",))})
