# SPDX-License-Identifier: Apache-2.0
"""The table of events: each with its count, its last time, its runbook, and links to the logs and GPUs of that time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.alerts.replay import RULES
from tests.dashboards.api import Api
from tests.dashboards.loaded import RECORDINGS, WITHOUT_LINKS
from tests.dashboards.panels import ALL, opened, panels_of, sent_by
from tests.dashboards.replayed import Query, given_together
from tests.dashboards.shipped import dashboard
from tests.support.yaml_files import load_yaml

from boards.kit.events import RUNBOOKS


SERVER, FLEET = "vllm-watch-server", "vllm-watch-fleet"
PAGE = 'instance="a:1",job="vllm-watch",server="s"'
DEAD, STARTS = (
    f"vllm_watch_{name}{{{PAGE}{more}}}"
    for name, more in (("log_events_total", ',event="engine_dead"'), ("server_starts_total", ""))
)
STEPS = 120
"""Of 5 s: the end of the table's range of 10 minutes."""


class Row(NamedTuple):
    """What the table shows of an event: its count, when it was last in seconds since the epoch, and its labels."""

    times: float
    last: float
    labels: Mapping[str, str]


def rows(prometheus, name):
    """Return the table of a server over its recording, by event."""
    api, span = Api(prometheus.url), prometheus.spans[name]
    view = opened(dashboard(SERVER), api, span, {"server": name})
    (panel,) = (panel for panel in panels_of(dashboard(SERVER)) if panel["title"] == "Events")
    counts, lasts, links = (api.instant(sent.expr, sent.end) for sent in sent_by(panel, view))
    last = {each.labels["event"]: value / 1000 for each in lasts for value in each.values.values()}
    linked = {each.labels["event"]: each.labels for each in links}
    return {
        each.labels["event"]: Row(
            value, last[each.labels["event"]], {**linked.get(each.labels["event"], {}), **each.labels}
        )
        for each in counts
        for value in each.values.values()
    }


def times(url):
    """Return the two times in a URL of the test's links, as they are written."""
    query = parse_qs(urlsplit(url).query)
    names = ("from", "to") if "from" in query else ("since", "until")
    return tuple(int(query[name][0]) for name in names)


def test_a_crash_is_an_event_with_its_runbook(prometheus):
    """The day's one crash and its two starts are there, the start after the crash; a start has no runbook."""
    found = rows(prometheus, "day")

    assert {"engine_dead": 1, "start": 2} == {event: row.times for event, row in found.items()}
    assert found["engine_dead"].last < found["start"].last
    assert found["engine_dead"].labels["runbook_url"].endswith("/VllmEngineCrashed.md")
    assert "runbook_url" not in found["start"].labels


def test_links_are_of_the_events_time(prometheus):
    """A link's time holds the event, and begins minutes before it; in milliseconds or seconds, as the link asks."""
    for event, row in rows(prometheus, "day").items():
        logs, gpu = row.labels["logs_url"], row.labels["gpu_url"]
        begin, end = times(logs)

        assert row.last - 360 < begin < row.last - 240, event
        assert row.last + 60 < end < row.last + 180
        assert (begin * 1000, end * 1000) == times(gpu)
        assert logs.startswith("https://logs.example.com/explore?server=day&since=")
        assert gpu.startswith("/d/gpu?var-server=day&from=")


def test_a_server_without_links_shows_none(prometheus):
    """Where no links are configured the events are there, and no label with a link."""
    (name,) = WITHOUT_LINKS
    found = rows(prometheus, name)

    assert {"shm_timeout", "start"} == set(found)
    assert not [label for row in found.values() for label in row.labels if label in {"logs_url", "gpu_url"}]


def test_the_fleet_links_each_server_that_has_links(prometheus):
    """A server's state leads to its logs in the dashboard's time range, where they are configured."""
    api, span = Api(prometheus.url), prometheus.spans["fleet"]
    view = opened(dashboard(FLEET), api, span, {"server": ALL})
    (panel,) = (panel for panel in panels_of(dashboard(FLEET)) if panel["title"] == "Servers, the worst first")
    (sent,) = (sent for sent in sent_by(panel, view) if "server_links_info" in sent.expr)
    links = {each.labels["server"]: each.labels["logs_url"] for each in api.instant(sent.expr, sent.end)}

    assert set(RECORDINGS) - set(WITHOUT_LINKS) == set(links)
    assert {(int(span.start), int(span.end))} == {times(url) for url in links.values()}


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize(
    ("dead", "count", "second"),
    [
        (["0"] * 117 + ["1"] * 3, 1, 585),
        (["0"] * 60 + ["1"] * 30 + ["2"] * 30, 2, 450),
        (["4"] * 60 + ["_"] * 30 + ["1"] * 30, 1, 450),
        (["4"] * 60 + ["_"] * 30 + ["0"] * 30, None, None),
        (["4"] * 120, None, None),
        (["0"] * 9 + ["1"] * 21 + ["_"] * 75 + ["1"] * 15, 1, 45),
    ],
    ids=[
        "just now",
        "twice",
        "before a restart of the daemon and after it",
        "that restart alone",
        "before the range",
        "unseen after it",
    ],
)
def test_the_last_time(dead, count, second):
    """The time is that of the first sample with the last event, also of a counter that began anew."""
    counted, last = (Query(SERVER, "Events", name) for name in ("Times", "Last"))
    answers = given_together([counted, last], {DEAD: dead, STARTS: ["0"] * STEPS}, STEPS)
    found = {query: list(list(answers[query].values())[-1].values()) for query in (counted, last)}

    assert ([count] if count else []) == [round(value) for value in found[counted]]
    if count:
        assert [second] == [value / 1000 for value in found[last]]


def test_runbooks_are_those_of_the_alerts_about_the_events():
    """Each event's runbook is that of the alert whose rule asks for the event."""
    rules = [rule for group in load_yaml((RULES / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
    asked = {rule["alert"]: rule["expr"] for rule in rules if rule.get("alert") in RUNBOOKS}

    assert set(RUNBOOKS) == set(asked)
    for alert, kinds in RUNBOOKS.items():
        # What the kernel reports is asked for by its time.
        assert f'"{kinds}"' in asked[alert] or f"vllm_watch_{kinds}_last_timestamp_seconds" in asked[alert]
