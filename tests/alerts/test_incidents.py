# SPDX-License-Identifier: Apache-2.0
"""Recorded incidents through the real rules: what must be said is said in time, and nothing else is."""

from __future__ import annotations

import shutil

import pytest

from tests.alerts.incidents import EVERY, HEALTHY, INCIDENTS, RECORDINGS, described
from tests.alerts.replay import CHAT, RULES, fired

from vllm_watch.replay.recording import BUNDLED, MetricsRead, Recording


pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None or not RULES.exists(),
    reason="needs promtool (Debian's prometheus) and the tree that the rules are in",
)

EVERY_INCIDENT = pytest.mark.parametrize("incident", EVERY, ids=lambda incident: incident.name)


def test_every_recording_has_a_story():
    """No recording lies there without what must be said of it."""
    folders = {path.parent for path in RECORDINGS.glob("*/timeline.jsonl")}

    assert folders == {incident.folder for incident in EVERY} - {BUNDLED}


@EVERY_INCIDENT
@pytest.mark.parametrize("slo", [None, CHAT], ids=["without objectives", "chat"])
def test_an_incident_is_reported_and_nothing_else(incident, slo):
    """Each alert that an incident calls for fires in its time and ends in its time; no other begins to."""
    alerts = fired(incident.folder, slo=slo)
    print(*described(incident, alerts), sep="\n")

    for alert, earliest, latest, ended_by in incident.expected:
        found = [each for each in alerts if each.alert == alert]
        assert any(earliest <= each.start <= latest for each in found), f"{alert} does not fire in time"
        assert len(found) == 1, f"{alert} ends and begins again while the incident lasts"
        if ended_by is not None:
            assert all(each.end is not None and each.end <= ended_by for each in found), f"{alert} does not end in time"
    known = {expected.alert for expected in incident.expected} | incident.allowed
    assert {each.alert for each in alerts} <= known
    for start, end in incident.quiet:
        assert not [each for each in alerts if start <= each.start < end]


@pytest.mark.parametrize(
    "incident",
    [each for each in INCIDENTS if each.name in {"day", "stall", "dead"}],
    ids=lambda incident: incident.name,
)
def test_the_log_alone_pages(incident):
    """Without /metrics the log is enough for the pages on what is broken, and for those alone."""
    alerts = fired(incident.folder, has_metrics=False)
    broken = {"VllmEngineStalled", "VllmEngineDown", "VllmCapacityExhausted"}
    wanted = {expected.alert for expected in incident.expected} & broken

    assert wanted <= {each.alert for each in alerts}
    assert {each.alert for each in alerts if each.severity == "critical"} <= wanted


@pytest.mark.parametrize(
    "incident",
    [each for each in INCIDENTS if each.name in {"day", "stall", "dead"}],
    ids=lambda incident: incident.name,
)
def test_the_page_alone_pages(incident):
    """Without the log /metrics is enough for the pages on what is broken, and for those alone."""
    alerts = fired(incident.folder, has_log=False)
    broken = {"VllmEngineStalled", "VllmEngineDown", "VllmCapacityExhausted"}
    wanted = {expected.alert for expected in incident.expected} & broken

    assert wanted <= {each.alert for each in alerts}
    assert {each.alert for each in alerts if each.severity == "critical"} <= wanted


@pytest.mark.parametrize("has_log", [True, False], ids=["log", "metrics"])
@pytest.mark.parametrize("incident", HEALTHY, ids=lambda incident: incident.name)
def test_a_healthy_server_pages_nobody_by_one_source(incident, has_log):
    """
    Whichever source is watched alone, nothing critical is said of a server that is up and does what it should.

    Before the first page has come, /metrics alone cannot tell a start from a server that is down.
    """
    up = next(
        event.at for event in Recording(incident.folder).events() if isinstance(event, MetricsRead) and event.body
    )
    alerts = fired(incident.folder, has_log=has_log, has_metrics=not has_log)

    assert not [each for each in alerts if each.severity == "critical" and each.start >= up]
