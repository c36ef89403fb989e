# SPDX-License-Identifier: Apache-2.0
"""What is sent of each incident, by Debian's Alertmanager itself: whatever fires of one event, one page comes of it."""

from __future__ import annotations

import datetime as dt
import time

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pytest

from tests.incidents.story import stories
from tests.incidents.verdict import firing, is_inhibited, played, sent, times_of
from tests.support.monitoring import NOWHERE, Receivers, alertmanager, get_json, post_json
from tests.support.waiting import until

from vllm_watch.analysis.backtest.fired import Alert


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("promtool", "prometheus-alertmanager")]

NAMES = list(stories("reported"))

FASTER = 20
"""How much faster than in the stories time passes in Alertmanager."""
SHORTER = {
    "group_wait: 10s": "group_wait: 500ms",
    "group_wait: 30s": "group_wait: 1500ms",
    "group_interval: 30s": "group_interval: 1500ms",
}
PAUSE = 60
"""Seconds of a story between two of its events, at most: what is due by then has been sent."""


class Posted(NamedTuple):
    """An alert that begins or ends, in seconds of Alertmanager after the first."""

    at: float
    alert: Alert
    ends: bool


def labels_of(alert: Alert, instance: str) -> dict[str, str]:
    """Return the labels of an alert, as of a daemon of its own."""
    return {**alert.labels, "alertname": alert.alertname, "severity": alert.severity, "instance": instance}


def posts(fired: Iterable[Alert]) -> Iterator[Posted]:
    """Yield when each alert begins and ends, without the long times in which nothing happens."""
    alerts = [alert for alert in fired if alert.start >= 0]
    ends = [(alert.end, True, alert) for alert in alerts if alert.end is not None]
    begins = [(alert.start, False, alert) for alert in alerts]
    before = at = 0.0
    for moment, is_end, alert in sorted([*begins, *ends], key=lambda each: each[:2]):
        at += min(moment - before, PAUSE) / FASTER
        before = moment
        yield Posted(at, alert, is_end)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Let what fires of all incidents fire in one Alertmanager; return the statuses of the pages of each, by group."""
    due = sorted(((post, name) for name in NAMES for post in posts(played()[name].fired)), key=lambda each: each[0].at)
    with Receivers() as receivers, alertmanager(tmp_path_factory.mktemp("pages"), receivers.url, SHORTER) as url:
        start = time.monotonic()
        for post, name in due:
            time.sleep(max(0.0, start + post.at - time.monotonic()))
            now = dt.datetime.now(dt.timezone.utc).isoformat()
            posted = {"labels": labels_of(post.alert, name), "endsAt" if post.ends else "startsAt": now}
            post_json(f"{url}/api/v2/alerts", [posted])
        time.sleep(PAUSE / FASTER)
        messages = receivers.to("page")
    found: dict[str, dict[str, list[str]]] = {name: {} for name in NAMES}
    for message in messages:
        name = message.body["alerts"][0]["labels"]["instance"]
        found[name].setdefault(message.body["groupKey"], []).append(message.body["status"])
    return found


def rings(statuses: list[str]) -> int:
    """Return how often a pager rings for a group: when its first message comes, and the first after its end."""
    before = ["resolved", *statuses]
    return sum(status == "firing" != last for status, last in zip(statuses, before, strict=False))


@pytest.mark.parametrize("name", NAMES)
def test_one_event_is_one_page(pages, name):
    """Whatever fires of an incident, a pager rings once; it stays silent where nothing is critical."""
    is_critical = any(alert.severity == "critical" for alert in sent(played()[name].fired))

    assert sum(rings(statuses) for statuses in pages[name].values()) == int(is_critical), pages[name]


def test_what_is_inhibited_is_what_alertmanager_inhibits(tmp_path):
    """The verdict on each story takes the shipped file's rules as Alertmanager does, at each time that counts."""
    moments = {
        f"{name} {at}": firing(outcome.fired, at)
        for name, outcome in played().items()
        for alert in outcome.fired
        for at in times_of(alert, outcome.fired)
    }
    now = dt.datetime.now(dt.timezone.utc).isoformat()
    posted = [labels_of(alert, moment) for moment, alerts in moments.items() for alert in alerts]
    last = [{"alertname": name, "severity": "critical", "server": "last", "engine": "0"} for name in SENTINELS]
    with alertmanager(tmp_path, NOWHERE) as url:
        alerts = f"{url}/api/v2/alerts"
        post_json(alerts, [{"labels": labels, "startsAt": now} for labels in (*posted, *last)])

        def knows_all():
            return any(
                each["labels"]["server"] == "last" and each["status"]["inhibitedBy"]
                for each in get_json(f"{alerts}?filter=server%3Dlast")
            )

        until(knows_all)
        states = get_json(alerts)
    suppressed = {frozenset(each["labels"].items()) for each in states if each["status"]["inhibitedBy"]}
    expected = {
        frozenset(labels_of(alert, moment).items())
        for moment, firing_then in moments.items()
        for alert in firing_then
        if is_inhibited(alert, firing_then)
    }

    assert len(expected) > 20
    assert {each for each in suppressed if ("server", "last") not in each} == expected


SENTINELS = ("VllmEngineStalled", "VllmCapacityExhausted")
"""Of a server of its own: Alertmanager takes alerts in one after the other, and knows all when it silences the last."""
