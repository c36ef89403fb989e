# SPDX-License-Identifier: Apache-2.0
"""An engine that is throttled, by the real rules: it is slower than it was, and no healthy one is."""

from __future__ import annotations

import pytest

from tests.alerts.replay import STEP, evaluated_together, series_of
from tests.support.recordings import ROOT
from tests.support.shared import shared

from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.daemon.state.server_sources import ServerSettings


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("promtool")]

RECORDINGS = {
    "throttled": [ROOT / "recordings" / "throttled.jsonl.xz"],
    "quiet": [ROOT / "loadtest" / "recordings" / f"quiet-draft4-run{number}.jsonl.xz" for number in range(1, 6)],
}
STEP_TIME = "vllm_watch_decode_step_seconds{"
COMPARED = (STEP_TIME, "vllm_watch_server_start_timestamp_seconds{")
"""The series that the alert is made from."""

FIRING = 'ALERTS{alertname="VllmSlowerThanItWas", alertstate="firing"}'
RATIO = "engine:vllm_watch_slower_ratio:median"

EVALUATION = 60
"""Seconds between two evaluations of the rules, as these have them."""

PAST = 4 * 3600
"""Seconds of a past that is long enough."""

# Seconds of the recording: minutes with the same traffic and nothing else on the machine, and what tests/recordings
# tells of it.
USUAL = (660, 1140)
MORE_LOAD, USUAL_AGAIN, THROTTLED, STOPPED = 1166, 1852, 2214, 3464


def replayed(path, server):
    """Return the series of a recording that the alert is made from, and the number of steps."""
    series, steps = series_of(Recording(path), ServerSettings(server, has_log=True, metrics_interval=float(STEP)))
    return {name: values for name, values in series.items() if name.startswith(COMPARED)}, steps


def with_its_past():
    """Return the series of the throttled server, after its usual minutes again and again, and how long those are."""
    series, _ = shared(replayed, *RECORDINGS["throttled"], "throttled")
    first, last = (second // STEP for second in USUAL)
    again = PAST // (USUAL[1] - USUAL[0])
    whole = {name: values[first:last] * again + values[first:] for name, values in series.items()}
    return whole, again * (last - first)


def one_after_the_other(length):
    """Return the times of steps of five runs of one load test, as if one server had them in turn for so long."""
    runs = [shared(replayed, path, "quiet") for path in RECORDINGS["quiet"]]
    names = {name for series, _ in runs for name in series if name.startswith(STEP_TIME)}
    joined = {name: [value for series, steps in runs for value in series.get(name, ["_"] * steps)] for name in names}
    return {name: (values * (length // len(values) + 1))[:length] for name, values in joined.items()}


@pytest.fixture(scope="module")
def answers():
    """Return when the alert fires and how much slower servers are, by server and second of the throttled recording."""
    throttled, past = with_its_past()
    length = len(next(iter(throttled.values())))
    found = evaluated_together({**throttled, **one_after_the_other(length)}, length, [FIRING, RATIO], EVALUATION)
    start = past * STEP - USUAL[0]
    return {
        query: {
            server: {
                moment - start: value
                for moment, now in of_query.items()
                for labels, value in now.items()
                if dict(labels)["server"] == server
            }
            for server in RECORDINGS
        }
        for query, of_query in found.items()
    }


def test_a_throttled_engine_is_reported_within_a_quarter_of_an_hour(answers):
    """It is reported in time and until it is started again, and the description's number is how much slower it is."""
    firing = list(answers[FIRING]["throttled"])

    assert THROTTLED < firing[0] <= THROTTLED + 900
    assert STOPPED - 60 <= firing[-1] <= STOPPED + 600
    assert len(firing) == (firing[-1] - firing[0]) // EVALUATION + 1
    assert answers[RATIO]["throttled"][firing[0]] > 1.5


def test_other_traffic_is_compared_with_its_own_past(answers):
    """With twice the requests, or contexts twice as long, an engine is as fast as it was, or there is no past."""
    ratios = [ratio for moment, ratio in answers[RATIO]["throttled"].items() if MORE_LOAD <= moment < USUAL_AGAIN]

    assert len(ratios) >= 10
    assert max(ratios) < 1.5


def test_other_flags_have_no_past(answers):
    """After a start with another number of drafts there is nothing to compare with."""
    assert [moment for moment in answers[RATIO]["throttled"] if moment > STOPPED + 60] == []


def test_a_healthy_engine_is_as_fast_as_it_was(answers):
    """Runs of one load test differ by less than a quarter, and nothing is reported."""
    ratios = answers[RATIO]["quiet"].values()

    assert len(ratios) > 60
    assert 0.75 < min(ratios) <= max(ratios) < 1.25
    assert not answers[FIRING]["quiet"]
