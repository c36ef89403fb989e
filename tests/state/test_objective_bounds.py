# SPDX-License-Identifier: Apache-2.0
"""Another objective counts anew: the bound that requests are judged by is a label of their counters."""

from __future__ import annotations

from tests.support.pages import ScrapedServer, histogram, page

from vllm_watch.daemon.exposition.samples import server_samples


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


def test_an_objective_above_all_bounds_is_kept_by_all():
    """The last bound is infinite, and is written as Prometheus writes it."""
    assert judged(60.0)["slo_good_requests_total", ("time_to_first_token", "+Inf")] == 100
