# SPDX-License-Identifier: Apache-2.0
"""How long requests took in the last minute: means beside quantiles, and nothing that the buckets cannot tell."""

from __future__ import annotations

import math

import pytest

from tests.support.pages import ScrapedServer, histogram, page

from vllm_watch.daemon.state.latencies import coarse_bounds, is_wide
from vllm_watch_parsers.scrape import Histogram


QUEUE = "request_queue_time_seconds"


def queued(counts, total):
    """Return pages before and after requests waited as long as the buckets say."""
    before = dict.fromkeys(counts, 0)
    return [page(extra=histogram(QUEUE, before, 0)), "", page(extra=histogram(QUEUE, counts, total))]


def engine_after(counts, total):
    """Return what is known of an engine after its requests waited as long as the buckets say."""
    return ScrapedServer().scrape_all(queued(counts, total))


def test_the_mean_stands_beside_the_quantiles():
    """The mean is the sum by the count of the last minute, whatever the buckets are."""
    engine = engine_after({"0.3": 50, "1.0": 100, "+Inf": 100}, 40.0)

    assert engine.latencies.means["queue"].value == pytest.approx(0.4)


def test_a_quantile_in_the_first_bucket_is_not_made_up():
    """Requests that waited for microseconds are not said to have waited for half of the first bucket."""
    engine = engine_after({"0.3": 100, "1.0": 100, "+Inf": 100}, 0.0027)

    assert [key for key in engine.latencies.quantiles if key[0] == "queue"] == []
    assert engine.latencies.first_bounds["queue"].value == 0.3
    assert engine.latencies.means["queue"].value == pytest.approx(27e-6)


def test_a_histogram_without_a_finite_bound_tells_no_quantile():
    """Where all that is known is that it took some time, there is a mean and nothing else."""
    engine = engine_after({"+Inf": 10}, 20.0)

    assert (
        engine.latencies.means["queue"].value,
        dict(engine.latencies.quantiles),
        dict(engine.latencies.first_bounds),
    ) == (2.0, {}, {})


class TestAfterAGap:
    """Pages that could not be read for minutes."""

    def test_what_was_done_in_the_gap_is_not_of_now(self):
        """Rates, means and quantiles of an engine that is idle again do not tell of ten minutes ago."""
        server = ScrapedServer()
        slow = histogram(QUEUE, {"0.3": 0, "+Inf": 900}, 9000)
        server.scrape_all(
            [page(generated=number * 500, extra=histogram(QUEUE, {"0.3": 0, "+Inf": 0}, 0)) for number in range(9)]
        )
        for _ in range(120):
            server.scrape(None)
        first = server.scrape(page(generated=66_000, extra=slow)).engines[0]
        second = server.scrape(page(generated=66_000, extra=slow)).engines[0]
        third = server.scrape(page(generated=66_000, extra=slow)).engines[0]

        shown = [engine.gauges.get("generation_tokens_per_second") for engine in (first, second, third)]
        assert [reading and reading.value for reading in shown] == [None, None, 0.0]
        assert [dict(engine.latencies.means) for engine in (first, second, third)] == [{}, {}, {}]

    @pytest.mark.parametrize("interval", [5.0, 20.0, 26.0, 27.0, 40.0, 60.0])
    def test_pages_that_come_seldom_have_rates(self, interval):
        """At every interval that can be configured, and with one page missing, there are rates."""
        server = ScrapedServer(interval)
        for number in (0, 1, 2, 4, 5):
            snapshot = server.scrape(page(generated=number * interval * 7), after=interval * (2 if number == 4 else 1))
            if number * interval >= 10:
                assert snapshot.engines[0].gauges["generation_tokens_per_second"].value == pytest.approx(7)


@pytest.mark.parametrize(
    ("counts", "bounds", "wide"),
    [
        ((1.0, 1.0, 1.0, 1.0, 9.0, 9.0), (160.0, 640.0), True),
        ((1.0, 1.0, 1.0, 1.0, 1.0, 9.0), (640.0, math.inf), True),
        ((1.0, 1.0, 9.0, 9.0, 9.0, 9.0), (40.0, 80.0), False),
        ((1.0, 9.0, 9.0, 9.0, 9.0, 9.0), None, False),
        ((9.0, 9.0, 9.0, 9.0, 9.0, 9.0), None, False),
    ],
)
def test_coarse_and_wide_buckets(counts, bounds, wide):
    """
    A bucket that doubles is coarse, those as vLLM's of 160 to 640 s and above the last bound are wide besides.

    One that is half as wide as its start is neither, nor is the first, which has no start.
    """
    histogram = Histogram((30.0, 40.0, 80.0, 160.0, 640.0, math.inf), counts, 0.0)

    assert bounds == coarse_bounds(histogram, 0.5)
    assert wide == (bounds is not None and is_wide(bounds))
