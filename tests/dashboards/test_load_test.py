# SPDX-License-Identifier: Apache-2.0
"""The result block and the latencies of a load test: what the server counted, in whole numbers, marked where unsure."""

from __future__ import annotations

import pytest

from prometheus_client.parser import text_string_to_metric_families
from tests.alerts.replay import NOTHING, STALE, STEP
from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, FLEET, Span
from tests.dashboards.panels import opened, panels_of, sent_by
from tests.dashboards.proof import since_the_fleet
from tests.dashboards.replayed import given
from tests.dashboards.shipped import dashboard
from tests.support.recordings import recording

from vllm_watch.analysis.replay.recording import MetricsRead


UID = "vllm-watch-load-test"
TARGET = 'instance="a:1",job="vllm-watch",server="s"'
ENGINE = f'{TARGET},model_name="m",engine="0"'
STEPS = 12 * 60 // STEP
END = (STEPS - 1) * STEP // 15 * 15
"""The last evaluation, at which the time range of ten minutes ends."""

NEEDS_PROMTOOL = pytest.mark.needs_tool("promtool")


def pages(name):
    """Return what /metrics of a recording showed: by second, each sample's sum over labels other than the reason."""
    for event in recording(name).events():
        if isinstance(event, MetricsRead) and event.body:
            shown = {}
            for family in text_string_to_metric_families(event.body.decode()):
                for sample in family.samples:
                    reason = sample.labels.get("finished_reason", "")
                    shown[sample.name, reason] = shown.get((sample.name, reason), 0) + sample.value
            yield event.at, shown


def served(page, *, broken=False):
    """Return how many requests ended well by a page, or else how many did not."""
    return sum(
        value
        for (name, reason), value in page.items()
        if name == "vllm:request_success_total" and (reason in {"abort", "error"}) is broken
    )


def figures(prometheus, name, span):
    """Return what each figure shows of a recording in a span, and in the fleet's, by the panel's title."""
    board, api = dashboard(UID), Api(prometheus.url)
    chosen = {"server": name, "daemon": DAEMON_ADDRESS, "shift": since_the_fleet(prometheus, name)}
    view = opened(board, api, span, chosen)
    found = {}
    for panel in panels_of(board):
        if panel["type"] in {"stat", "bargauge"}:
            answers = [(sent, api.instant(sent.expr, sent.end)) for sent in sent_by(panel, view)]
            found[panel["title"]] = [
                (series.labels, value) for _, answer in answers for series in answer for value in series.values.values()
            ]
    return found


@pytest.mark.parametrize("name", ["busy", "vl"])
def test_the_result_block_is_what_the_pages_counted(prometheus, name):
    """Requests and tokens of a recording are those between its first and its last page, exactly, and so are means."""
    shown = figures(prometheus, name, prometheus.spans[name])
    counts = {title: values[0][1] for title, values in shown.items() if values}
    (_, first), *_, (_, last) = pages(name)
    done = {key: value - first.get(key, 0) for key, value in last.items()}
    prompts, requests = (done[f"vllm:request_prompt_tokens_{part}", ""] for part in ("sum", "count"))

    assert counts["Requests ok"] == served(done) > 50
    assert counts["Requests failed"] >= served(done, broken=True)
    assert counts["Input tokens"] == done["vllm:prompt_tokens_total", ""]
    assert counts["Output tokens"] == done["vllm:generation_tokens_total", ""]
    assert counts["Total tokens"] == counts["Input tokens"] + counts["Output tokens"]
    assert counts["Input per request"] == pytest.approx(prompts / requests)


def test_the_duration_is_that_of_the_work(prometheus):
    """From the first to the last page with work, give or take a scrape at either end, however long the range is."""
    busy = [at for at, page in pages("busy") if page["vllm:num_requests_running", ""]]
    ((_, value), _) = figures(prometheus, "busy", prometheus.spans["busy"])["Duration"]

    assert value == pytest.approx(busy[-1] - busy[0], abs=2 * STEP)


def test_rates_are_over_the_work_and_not_over_the_range(prometheus):
    """A range with minutes of idleness before and behind the test shows the same rates."""
    shown = figures(prometheus, "busy", prometheus.spans["busy"])
    ok, duration, rate = (shown[title][0][1] for title in ("Requests ok", "Duration", "Requests/s"))

    assert rate == pytest.approx(ok / duration)


def test_a_part_of_a_test_is_counted_in_whole_numbers(prometheus):
    """What is shown of a range is the difference of what was counted at its ends: nothing is extrapolated."""
    start, end = prometheus.spans["busy"]
    middle = start + (end - start) // 2 // STEP * STEP
    whole, first, second = (
        figures(prometheus, "busy", Span(*span))["Output tokens"][0][1]
        for span in ((start, end), (start, middle), (middle, end))
    )

    assert 0 < first < whole
    assert first + second == whole


@pytest.mark.parametrize("name", ["busy", "vl"])
def test_the_second_range_shows_the_same_of_the_same(prometheus, name):
    """Where the same recording is a second time, a week before, each figure and each latency is there twice, equal."""
    for title, values in figures(prometheus, name, prometheus.spans[name]).items():
        by_name = [(labels, value) for labels, value in values]
        half = len(by_name) // 2
        if title in {"Time to first token (TTFT)", "Time per token (TPOT)"}:
            assert len(by_name) == 10
        first, second = (by_name[0::2], by_name[1::2]) if half else ([], [])
        assert [labels for labels, _ in first] == [labels for labels, _ in second], title
        # Percentiles are of rates, which Prometheus extrapolates to the ends of the range.
        tolerance = 0.1 if any("_is" in labels for labels, _ in first) or len(first) > 1 else 1e-6
        assert [value for _, value in first] == pytest.approx([value for _, value in second], rel=tolerance), title


def test_the_fleet_is_a_week_before(prometheus):
    """The second range of the tests above is another one."""
    assert prometheus.spans["busy"].start - prometheus.spans[FLEET].end > 86400


def counted(per_step, *, first=0, last=STEPS):
    """Return a counter that grows from one step to another, and is not there before."""
    return [NOTHING] * first + [f"{per_step * (min(step, last) - first):g}" for step in range(first, STEPS)]


def shown(title, name, series):
    """Return what a query of a panel gives at the end: its values, with the mark that says what each is."""
    found = given(UID, title, name, series, STEPS)[END]
    return {dict(labels).get("_is", ""): value for labels, value in found.items()}


def finished(values, reason="length"):
    """Return a counter of finished requests."""
    return {f'vllm_watch_requests_finished_total{{{ENGINE},reason="{reason}"}}': values}


@NEEDS_PROMTOOL
def test_what_began_in_the_range_counts_from_its_first_value():
    """A server that was first seen within the range has done nothing before in it, and nothing is made up."""
    ten_minutes = 600 // STEP
    series = finished(counted(3, first=STEPS - 40))

    assert shown("Requests ok", "this range", series) == {"": 3 * ((END // STEP) - (STEPS - 40))}
    assert shown("Requests ok", "this range", finished(counted(3))) == {"": 3 * ten_minutes}


@NEEDS_PROMTOOL
def test_a_restart_in_the_range_loses_nothing():
    """Over a restart the growth on both sides of it counts, and is not a difference of two counters."""
    half = STEPS // 2
    values = [*counted(4)[:half], *counted(4)[: STEPS - half]]
    found = shown("Requests ok", "this range", finished(values))[""]

    assert found == pytest.approx(4 * 600 / STEP, rel=0.02)


@NEEDS_PROMTOOL
def test_what_ended_in_the_range_counts():
    """A server that is gone at the range's end was there in it."""
    gone = STEPS - 30
    series = finished([*counted(2)[:gone], STALE, *[NOTHING] * (STEPS - gone - 1)])
    start = END // STEP - 600 // STEP

    assert shown("Requests ok", "this range", series) == {"": 2 * (gone - 1 - start)}


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("series", "failed"),
    [
        ({**finished(counted(2)), **finished(counted(0), "abort")}, 0),
        ({**finished(counted(1), "abort"), **finished(counted(2), "error")}, 360),
        (
            {
                **finished(counted(1), "error"),
                f'vllm_watch_http_requests_total{{{TARGET},method="POST",handler="/v1/completions",code="200"}}': (
                    counted(9)
                ),
                f'vllm_watch_http_requests_total{{{TARGET},method="POST",handler="/v1/completions",code="4xx"}}': (
                    counted(1)
                ),
            },
            240,
        ),
        (
            {
                **finished(counted(0), "error"),
                f'vllm_watch_admission_rejections_total{{{TARGET},model_name="m",reason="max_num_queued_reqs"}}': (
                    counted(1)
                ),
            },
            120,
        ),
    ],
    ids=["none", "by the engine", "before it, by the log", "before it, by /metrics"],
)
def test_failed_requests_are_those_of_the_engine_and_those_that_it_never_got(series, failed):
    """Aborted, broken, answered with 4xx and rejected requests failed, and none is counted twice."""
    assert shown("Requests failed", "this range", series) == {"": failed}


@NEEDS_PROMTOOL
def test_without_a_page_the_log_says_what_was_done():
    """If only the log is read there are the requests that were answered and the tokens that its lines add up to."""
    series = {
        f'vllm_watch_http_requests_total{{{TARGET},method="POST",handler="/v1/completions",code="200"}}': counted(1),
        f"vllm_watch_generation_tokens_per_second{{{ENGINE}}}": ["50"] * STEPS,
        f"vllm_watch_requests_running{{{ENGINE}}}": ["2"] * STEPS,
        f"vllm_watch_requests_waiting{{{ENGINE}}}": ["0"] * STEPS,
    }

    assert shown("Requests ok", "this range", series) == {"": 120}
    assert shown("Output tokens", "this range", series) == {"": pytest.approx(50 * 600)}
    assert shown("Output tokens/s", "this range", series) == {"": pytest.approx(50)}
    assert shown("Input tokens", "this range", series) == {}


def latency(buckets, total):
    """Return a histogram of which so many observations a step are not above each bound; `total` is their sum."""
    name = "vllm_watch_time_per_output_token_seconds"
    series = {f'{name}_bucket{{{ENGINE},le="{bound}"}}': counted(count) for bound, count in buckets.items()}
    series[f"{name}_sum{{{ENGINE}}}"] = counted(total)
    series[f"{name}_count{{{ENGINE}}}"] = counted(buckets["+Inf"])
    series[f'vllm_watch_latency_first_bound_seconds{{{ENGINE},stage="time_per_output_token"}}'] = ["0.01"] * STEPS
    return series


@NEEDS_PROMTOOL
@pytest.mark.parametrize(
    ("name", "buckets", "wanted"),
    [
        ("p50 {{_is}}", {"0.01": 9, "0.1": 10, "80": 10, "+Inf": 10}, {"<": 0.01}),
        ("p95 {{_is}}", {"0.01": 9, "0.1": 10, "80": 10, "+Inf": 10}, {"": 0.055}),
        ("p99 {{_is}}", {"0.01": 0, "0.1": 1, "80": 1, "+Inf": 10}, {">": 80}),
        ("p99 {{_is}}", {"0.01": 0, "0.1": 1, "80": 1, "+Inf": 1}, {"?": 0.0991}),
        ("p90 {{_is}}", {"0.01": 0, "0.1": 1, "80": 1, "+Inf": 1}, {"": 0.091}),
    ],
    ids=["below the first bound", "between bounds", "above the last bound", "of too few", "of enough"],
)
def test_a_percentile_says_what_it_is(name, buckets, wanted):
    """A percentile that is only bounded has its sign, and one of too few requests, too, and no other has one."""
    assert shown("Time per token (TPOT)", name, latency(buckets, 1)) == pytest.approx(wanted)


@NEEDS_PROMTOOL
def test_the_mean_is_exact():
    """The mean is the sum divided by the count, whatever the buckets are."""
    series = latency({"0.01": 0, "0.1": 10, "+Inf": 10}, 0.375)

    assert shown("Time per token (TPOT)", "mean", series) == {"": pytest.approx(0.0375)}


@NEEDS_PROMTOOL
def test_what_arrives_is_what_is_served_and_what_piles_up():
    """Where the queue grows more is offered than served, by as much as it grows."""
    series = {
        **finished(counted(10)),
        f"vllm_watch_requests_running{{{ENGINE}}}": ["8"] * STEPS,
        f"vllm_watch_requests_waiting{{{ENGINE}}}": counted(5),
    }
    offered, served_rate = (
        next(iter(given(UID, "Offered and served", name, series, STEPS)[END].values()))
        for name in ("offered", "served")
    )

    assert served_rate == pytest.approx(10 / STEP)
    assert offered == pytest.approx(15 / STEP)


@NEEDS_PROMTOOL
@pytest.mark.parametrize(("known", "wanted"), [("01", [24]), ("0", [])])
def test_a_limit_of_the_batch_is_that_of_all_engines(known, wanted):
    """The line is the sum of the engines' limits, and there is none where that of one engine is not known."""
    running, limit = (
        {f'vllm_watch_{name}{{{TARGET},model_name="m",engine="{engine}"}}': [value] * STEPS for engine in engines}
        for name, value, engines in (("requests_running", "3", "01"), ("max_running_requests", "12", known))
    )

    assert list(given(UID, "Running requests", "batch limit", running | limit, STEPS)[END].values()) == wanted
