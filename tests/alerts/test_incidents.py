# SPDX-License-Identifier: Apache-2.0
"""Recorded incidents through the real rules: what must be said is said in time, and nothing else is."""

from __future__ import annotations

import functools

import pytest

from tests.alerts.incidents import EVERY, HEALTHY, INCIDENTS, described
from tests.alerts.replay import fired, replayed, series_of
from tests.support.recordings import NAMES
from tests.support.samples import is_whole, sample

from vllm_watch.analysis.replay.recording import BUNDLED, MetricsRead, Recording
from vllm_watch.daemon.state.server_sources import ServerSettings


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("promtool")]

BROKEN = tuple(each for each in INCIDENTS if each.name in {"day", "stall", "dead"})
LOOKING_BROKEN = tuple(each for each in HEALTHY if is_whole() or each.name in {"longprompt", "sleep", "pooling"})
BY_ONE_SOURCE = (*BROKEN, *LOOKING_BROKEN)


@functools.cache
def alerts_of(incidents, **replay):
    """Return the alerts that fire over some incidents, which are evaluated together and once."""
    return fired([incident.path for incident in incidents], **replay)


EVERY_INCIDENT = pytest.mark.parametrize("incident", EVERY, ids=lambda incident: incident.name)


def test_every_recording_has_a_story():
    """No recording lies there without what must be said of it."""
    # One is slower, and hours long.
    assert {*NAMES, "day"} - {"throttled"} == {incident.name for incident in EVERY}


def test_objectives_add_series_and_change_none():
    """A server with objectives shows what one without them does, and what they are about."""
    day = Recording(BUNDLED)
    plain, steps = series_of(day, ServerSettings("day", has_log=True, metrics_interval=5.0))

    assert (plain, steps) == replayed(BUNDLED, has_slo=False, has_log=True, has_metrics=True)
    assert set(plain) < set(replayed(BUNDLED, has_slo=True, has_log=True, has_metrics=True)[0])


@EVERY_INCIDENT
@pytest.mark.parametrize(
    "has_slo",
    [pytest.param(True, id="chat"), *sample([], [pytest.param(False, id="without objectives")])],
)
def test_an_incident_is_reported_and_nothing_else(incident, has_slo):
    """Each alert that an incident calls for fires in its time and ends in its time; no other begins to."""
    alerts = alerts_of(EVERY, has_slo=has_slo)[incident.name]
    print(*described(incident, alerts), sep="\n")

    for alert, earliest, latest, ended_by in incident.expected:
        found = [each for each in alerts if each.alertname == alert]
        assert any(earliest <= each.start <= latest for each in found), f"{alert} does not fire in time"
        assert len(found) == 1, f"{alert} ends and begins again while the incident lasts"
        if ended_by is not None:
            assert all(each.end is not None and each.end <= ended_by for each in found), f"{alert} does not end in time"
    known = {expected.alert for expected in incident.expected} | incident.allowed
    assert {each.alertname for each in alerts} <= known
    for start, end in incident.quiet:
        assert not [each for each in alerts if start <= each.start < end]


@pytest.mark.parametrize("has_log", [True, False], ids=["log", "metrics"])
@pytest.mark.parametrize("incident", BROKEN, ids=lambda incident: incident.name)
def test_one_source_alone_pages(incident, has_log):
    """The log or /metrics is enough for the pages on what is broken, and for those alone."""
    alerts = alerts_of(BY_ONE_SOURCE, has_log=has_log, has_metrics=not has_log)[incident.name]
    broken = {"VllmEngineStalled", "VllmEngineDown", "VllmCapacityExhausted"}
    wanted = {expected.alert for expected in incident.expected} & broken

    assert wanted <= {each.alertname for each in alerts}
    assert {each.alertname for each in alerts if each.severity == "critical"} <= wanted


@pytest.mark.parametrize("has_log", [True, False], ids=["log", "metrics"])
@pytest.mark.parametrize("incident", LOOKING_BROKEN, ids=lambda incident: incident.name)
def test_a_healthy_server_pages_nobody_by_one_source(incident, has_log):
    """
    Whichever source is watched alone, nothing critical is said of a server that is up and does what it should.

    Before the first page has come, /metrics alone cannot tell a start from a server that is down.
    """
    up = next(event.at for event in Recording(incident.path).events() if isinstance(event, MetricsRead) and event.body)
    alerts = alerts_of(BY_ONE_SOURCE, has_log=has_log, has_metrics=not has_log)[incident.name]

    assert not [each for each in alerts if each.severity == "critical" and each.start >= up]
