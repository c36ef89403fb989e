# SPDX-License-Identifier: Apache-2.0
"""Eight releases' /metrics pages: each quantity under its one name, and what a release does not export is absent."""

from __future__ import annotations

import pytest

from tests.parsers.releases import PAGES, expected_page, page

from vllm_watch_parsers.scrape import EngineKey, EngineReading, HttpRequests, MetricsReading, read_metrics


EVERY_PAIR = pytest.mark.parametrize(("release", "prefix"), PAGES)

V0_PAIRS = [pair for pair in PAGES if "note_spec" in expected_page(*pair)]
HTTP_PAIRS = [pair for pair in PAGES if expected_page(*pair).get("http_requests")]

UNLABELLED = "none"


def read_pair(release: str, prefix: str) -> tuple[MetricsReading, MetricsReading]:
    """Return the readings of the two pages."""
    readings = [read_metrics(page(release, name)) for name in expected_page(release, prefix)["files"]]
    assert all(isinstance(reading, MetricsReading) for reading in readings)
    return readings[0], readings[1]


def engines(release: str, prefix: str):
    """Yield what each engine is expected to say, and its readings of both pages."""
    expected, (first, second) = expected_page(release, prefix), read_pair(release, prefix)
    for label, said in expected["engines"].items():
        key = EngineKey(expected["model_name"], "0" if label == UNLABELLED else label)
        yield said, first.engines[key], second.engines[key]


def value_of(engine: EngineReading, name: str):
    """Return a gauge, counter or histogram, or nothing if the page does not have it."""
    return next((table[name] for table in (engine.gauges, engine.counters, engine.histograms) if name in table), None)


@EVERY_PAIR
def test_the_engines_are_those_of_the_page(release, prefix):
    """A page has a reading for each engine and for none besides."""
    expected = expected_page(release, prefix)
    labels = {"0" if label == UNLABELLED else label for label in expected["engines"]}

    for reading in read_pair(release, prefix):
        assert {key.engine for key in reading.engines} == labels
        assert {key.model_name for key in reading.engines} == {expected["model_name"]}
        assert not reading.out_of_range


@EVERY_PAIR
def test_gauges_are_those_of_the_second_page(release, prefix):
    """Each gauge has the second page's value; a gauge that the release does not have is absent."""
    for said, _, engine in engines(release, prefix):
        any_of = said.get("kv_cache_usage_ratio_any_of")
        for name, value in said["gauges"].items():
            if name == "kv_cache_usage_ratio" and any_of:
                assert engine.gauges[name] == max(any_of)
            else:
                assert engine.gauges.get(name) == value


@EVERY_PAIR
def test_counters_are_those_of_both_pages(release, prefix):
    """Each counter has both pages' values; a counter that the release does not have is absent, not zero."""
    for said, first, second in engines(release, prefix):
        for name, values in said["counters"].items():
            assert [first.counters.get(name), second.counters.get(name)] == (values or [None, None]), name


@EVERY_PAIR
def test_histograms_have_the_count_and_sum_of_both_pages(release, prefix):
    """Each histogram has both pages' counts and sums under its one name, whatever the release calls it."""
    for said, *both in engines(release, prefix):
        for name, values in said["histograms"].items():
            found = [engine.histograms.get(name) for engine in both]
            if values is None:
                assert found == [None, None], name
                continue
            assert [histogram.observations for histogram in found] == [values["count_0"], values["count_1"]], name
            assert [histogram.sum for histogram in found] == pytest.approx([values["sum_0"], values["sum_1"]]), name


@EVERY_PAIR
def test_finished_requests_are_counted_by_reason(release, prefix):
    """The second page's requests by reason are as observed; reasons of which none happened may be there at zero."""
    for said, first, second in engines(release, prefix):
        for at, engine in enumerate((first, second)):
            counted = {reason: count for reason, count in engine.requests_finished.items() if count}

            assert counted == {reason: both[at] for reason, both in said["requests_finished"].items() if both[at]}


@EVERY_PAIR
def test_what_a_release_does_not_export_is_absent(release, prefix):
    """None of the quantities that a release cannot give is in any reading."""
    for _, *both in engines(release, prefix):
        for name in expected_page(release, prefix)["unavailable"]:
            assert [value_of(engine, name) for engine in both] == [None, None], name


@pytest.mark.parametrize(("release", "prefix"), V0_PAIRS)
def test_v0_counters_of_speculative_decoding_are_left_alone(release, prefix):
    """V0's counters grow by their own totals, so nothing of them is read."""
    for _, *both in engines(release, prefix):
        for engine in both:
            assert not {"drafts", "drafted_tokens", "accepted_tokens"} & engine.counters.keys()
            assert engine.position_accepted == ()


@EVERY_PAIR
def test_accepted_tokens_by_position_add_up(release, prefix):
    """The tokens accepted at each draft position add up to all accepted tokens."""
    for _, *both in engines(release, prefix):
        for engine in both:
            if engine.position_accepted:
                assert sum(engine.position_accepted) == engine.counters["accepted_tokens"]


@pytest.mark.parametrize(("release", "prefix"), HTTP_PAIRS)
def test_http_requests_are_counted_by_method_handler_and_status(release, prefix):
    """The API server's own counter has both pages' values where the release has it (from 0.8.3)."""
    expected = expected_page(release, prefix)["http_requests"]
    for at, reading in enumerate(read_pair(release, prefix)):
        counted = {
            f"{key.method} {key.handler} {key.status}": count for key, count in reading.http_requests.items() if count
        }

        assert counted == {name: both[at] for name, both in expected.items() if both[at]}


def test_http_requests_are_absent_before_0_8_3():
    """A release without the counter has no entry at all."""
    first, _ = read_pair("0.6.6", "metrics_")

    assert first.http_requests == {}


def test_a_rust_server_s_handlers_are_read_too():
    """The Rust server orders its labels otherwise; they are found by name."""
    _, second = read_pair("0.33.0", "metrics_rust_")

    assert HttpRequests("GET", "/v1/models", "4xx") in second.http_requests


@pytest.mark.parametrize(
    ("release", "prefix", "is_known"),
    [("0.33.0", "metrics_", True), ("0.33.0", "metrics_rust_", False), ("0.10.2", "metrics_mp_", False)],
)
def test_the_process_start_is_known_from_a_single_process(release, prefix, is_known):
    """One Python process says when it started; several behind one page, and Rust, do not."""
    first, _ = read_pair(release, prefix)

    assert (first.process_start_seconds is not None) is is_known
