# SPDX-License-Identifier: Apache-2.0
"""Rates and ratios from two pages of each release, against what a perfect reader finds in them."""

from __future__ import annotations

import json

import pytest

from tests.support.corpus import CORPUS, bodies

from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.scrape import MetricsReading, read_metrics


EXPECTED = sorted(CORPUS.glob("*/metrics*expected.json"))

NEEDS_ONLY_COMPUTED = (0, 16)
"""From this release on pages tell computed prompt tokens from cached ones, and only those are shown."""


def minor(version):
    """Return a version's first two numbers."""
    return tuple(int(part) for part in version.split(".")[:2])


@pytest.fixture(params=EXPECTED, ids=lambda path: f"{path.parent.name}-{path.stem.removesuffix('_expected')}")
def case(request):
    """The expected values of two pages, and the snapshot that they give."""
    expected = json.loads(request.param.read_text())
    state = ServerState(ServerSettings("s", has_log=False, metrics_interval=10.0))
    for at, name in zip((0.0, expected["interval_seconds"]), expected["files"], strict=True):
        reading = read_metrics(bodies(request.param.parent.name)[name])
        assert isinstance(reading, MetricsReading)
        state.apply_scrape(ScrapeResult(1000.0 + at, 0.0, reading, "ok"))
    snapshot = state.snapshot(1000.0 + expected["interval_seconds"])
    return expected, {engine.key.engine: engine for engine in snapshot.engines}


def engines(case):
    """Yield each engine's expected values and its snapshot; releases without the label have one engine."""
    expected, found = case
    for name, values in expected["engines"].items():
        yield values, found["0" if name == "none" else name]


def gauge(engine, name):
    """Return a gauge's value, or `None`."""
    reading = engine.gauges.get(name)
    return None if reading is None else reading.value


def test_rates(case):
    """Generated tokens per second are the counter's increase, as are prompt tokens where pages count no others."""
    expected, _ = case
    for values, engine in engines(case):
        assert gauge(engine, "generation_tokens_per_second") == pytest.approx(
            values["rates"]["generation_tokens_per_second"], rel=1e-6
        )
        if minor(expected["version"]) < NEEDS_ONLY_COMPUTED:
            assert gauge(engine, "prompt_tokens_per_second") == pytest.approx(
                values["rates"]["prompt_tokens_per_second"], rel=1e-6
            )


def test_prompt_tokens_per_second_leave_cached_ones_out(case):
    """Since 0.16 prompt tokens per second are those that were computed: all less the cached ones."""
    expected, _ = case
    if minor(expected["version"]) < NEEDS_ONLY_COMPUTED:
        return
    for values, engine in engines(case):
        counters = values["counters"]
        computed = [
            total - cached
            for total, cached in zip(counters["prompt_tokens"], counters["prompt_tokens_cached"], strict=True)
        ]
        rate = (computed[1] - computed[0]) / expected["interval_seconds"]
        assert gauge(engine, "prompt_tokens_per_second") == pytest.approx(rate, rel=1e-6)


def test_hit_ratios(case):
    """Hit ratios are hits by queries over the interval; V0 has only those of its whole life."""
    for values, engine in engines(case):
        lifetime = values.get("gauges_extra", {}).get("prefix_cache_hit_ratio_lifetime")
        for name, ratio in values["ratios"].items():
            if ratio is None and lifetime is not None and name == "prefix_cache_hit_ratio":
                # Later releases hide V0's gauge.
                assert gauge(engine, name) in {None, lifetime}
            else:
                assert gauge(engine, name) == (None if ratio is None else pytest.approx(ratio, abs=1e-6))


def test_speculative_decoding(case):
    """Acceptance is accepted by drafted over the interval, and nothing is derived from V0's broken counters."""
    for values, engine in engines(case):
        spec = values["spec_decoding"]
        lifetime = values.get("spec_extra", {}).get("acceptance_ratio_lifetime")
        for name in ("mean_acceptance_length", "accepted_tokens_per_second", "drafted_tokens_per_second"):
            wanted = None if spec[name] is None else pytest.approx(spec[name], rel=1e-6)
            assert gauge(engine, f"spec_decode_{name}") == wanted
        ratio = lifetime if spec["acceptance_ratio"] is None else spec["acceptance_ratio"]
        # V0's own gauge is of its last look, the expected value of the present.
        wanted = None if ratio is None else pytest.approx(ratio, abs=0.01 if ratio == lifetime else 1e-6)
        assert gauge(engine, "spec_decode_acceptance_ratio") == wanted
        positions = spec["position_acceptance_ratio"] or []
        assert [reading.value for reading in engine.position_acceptance] == pytest.approx(positions)


def test_histograms_and_finished_requests(case):
    """Histograms, finished requests and preemptions are the page's own."""
    for values, engine in engines(case):
        for name, histogram in values["histograms"].items():
            if name == "inference_time_seconds":
                continue  # Not among the series.
            found = engine.histograms.get(name)
            assert (found is None) == (histogram is None)
            if found is not None:
                assert (histogram["count_1"], pytest.approx(histogram["sum_1"])) == (
                    found.histogram.counts[-1],
                    found.histogram.sum,
                )
        finished = {reason: counts[1] for reason, counts in values["requests_finished"].items()}
        assert finished.items() <= {r: v.value for r, v in engine.requests_finished.items()}.items()
