# SPDX-License-Identifier: Apache-2.0
"""The collection of incidents through the daemon's code and the shipped rules: all are found in time, no twin is."""

from __future__ import annotations

import re

import pytest

from tests.alerts import incidents as recorded
from tests.alerts.replay import RULES
from tests.incidents import table
from tests.incidents.story import KINDS, Story, read, stories
from tests.incidents.traffic import moments
from tests.incidents.verdict import faults, played
from tests.support.yaml_files import load_yaml

from vllm_watch.analysis.backtest.fired import Alert


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("promtool")]

CASES = [pytest.param(kind, name, id=f"{kind}-{name}") for kind in KINDS for name in stories(kind)]
REPORT = re.compile(r"[\w.-]+/[\w.-]+#\d+")
OF_THE_DAEMON = {"VllmWatchUnwell", "Watchdog"}
"""Alerts on what no server does; `alerts/tests/trust.yml` shows when each fires."""


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_must_be_said_is_said_and_nothing_else(kind, name):
    """Each alert that an incident calls for fires in its time, and nothing else does; states are shown in time."""
    assert [] == list(faults(stories(kind)[name], played()[name]))


def test_every_rule_is_needed():
    """Without any one of the rules, each severity of an alert by itself, some incident would be missed."""
    groups = load_yaml((RULES / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    of_recordings = {expected.alert for incident in recorded.EVERY for expected in incident.expected}
    of_stories = {(rule["alert"], rule["labels"]["severity"]) for rule in alerts if rule["alert"] not in of_recordings}

    assert {alert for alert, severity in of_stories if not _missed_without(alert, severity)} == OF_THE_DAEMON


def _missed_without(alert, severity):
    """Return the incidents that have a fault once a rule is gone."""
    outcomes = {name: (story, played()[name]) for name, story in stories("reported").items()}
    return [
        name
        for name, (story, outcome) in outcomes.items()
        if list(faults(story, outcome._replace(fired=_without(outcome.fired, alert, severity))))
    ]


def _without(fired, alert, severity):
    return tuple(each for each in fired if (each.alertname, each.severity) != (alert, severity))


@pytest.mark.parametrize("kind", KINDS)
def test_each_story_names_a_report(kind):
    """Each story says where it was reported: a repository and a number."""
    assert [] == [
        name
        for name, story in stories(kind).items()
        if not story.reports or not all(REPORT.fullmatch(report) for report in story.reports)
    ]


def test_each_incident_has_an_answer():
    """Each incident says what finds it, or why nothing can."""
    assert [] == [name for name, story in stories("reported").items() if bool(story.says) == (story.unseen is not None)]


def test_the_table_is_that_of_the_collection():
    """`make incidents` changes nothing."""
    assert table.document() == table.FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("title: a\nreports: []\nrelease: 0.20.2\nthen: [{seconds: 1, wait: 3}]\n", "wait"),
        ("title: a\nreports: []\nrelease: 0.20.2\n", "then"),
    ],
)
def test_a_mistake_in_a_story_is_named(tmp_path, text, word):
    """A key that no story has, and one that is missing, are named with the file."""
    (tmp_path / "a.yml").write_text(text)

    with pytest.raises(ValueError, match=f"a.yml: .*{word}"):
        read(tmp_path / "a.yml")


def test_a_value_that_no_server_has_is_named():
    """A quantity that is misspelt does not pass for one that is not said."""
    story = Story(title="a", reports=(), release="0.20.2", then=(), usual={"runing": 1})

    with pytest.raises(ValueError, match="runing"):
        list(moments(story))


def test_a_fault_is_seen():
    """A story that says what does not happen, and one that something else happens in, have faults."""
    name, story = next((name, story) for name, story in stories("reported").items() if story.says)
    outcome = played()[name]
    fired = (*outcome.fired, Alert("Another", "critical", {}, 1.0, None))

    assert list(faults(story, outcome._replace(fired=())))
    assert list(faults(story, outcome._replace(fired=fired)))
