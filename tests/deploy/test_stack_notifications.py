# SPDX-License-Identifier: Apache-2.0
"""Each thing that Alertmanager says is one line, once."""

from __future__ import annotations

import json

import pytest
import requests

from deploy.stack.notifications import Notifications, receiver
from tests.support.waiting import SECONDS


RUNBOOK = "https://example.com/runbooks/VllmCapacityExhausted.md"
START, END = "2026-11-22T18:20:20.123456789Z", "2026-11-22T18:20:38Z"
FULL = {
    "alertname": "VllmCapacityExhausted", "server": "qwen", "engine": "0", "instance": "127.0.0.1:9468",
}  # fmt: skip


def alert(labels=FULL, *, is_over=False, start=START, **texts):
    """Return an alert as Alertmanager sends it."""
    return {
        "status": "resolved" if is_over else "firing",
        "labels": labels,
        "annotations": {"summary": "It is full.", "runbook_url": RUNBOOK, **texts},
        "startsAt": start,
        "endsAt": END if is_over else "0001-01-01T00:00:00Z",
        "fingerprint": json.dumps(labels),
    }


def said(notifications, to, *alerts):
    """Return the lines of a message."""
    return [str(line) for line in notifications.lines(to, {"alerts": list(alerts)})]


def test_a_page_and_its_end():
    """What, where, why and what to do; then how long it was, in the recording's time, too."""
    notifications = Notifications(10)

    assert said(notifications, "page", alert()) == [
        "PAGE      VllmCapacityExhausted  qwen engine 0  It is full.  alerts/runbooks/VllmCapacityExhausted.md"
    ]
    assert said(notifications, "page", alert(is_over=True)) == [
        "RESOLVED  VllmCapacityExhausted  qwen engine 0  after 18 s, 3 min of the recording"
    ]
    assert said(notifications, "page", alert(is_over=True)) == []


def test_of_a_group_only_what_is_new():
    """A warning joins another one: that alone is a line; so is the one that ends."""
    first, second = {**FULL, "alertname": "A"}, {**FULL, "alertname": "B"}
    notifications = Notifications()

    (one,) = said(notifications, "channel", alert(first))
    (other,) = said(notifications, "channel", alert(first), alert(second))
    (over,) = said(notifications, "channel", alert(first, is_over=True), alert(second))

    assert one.startswith("warning   A ")
    assert other.startswith("warning   B ")
    assert over == "RESOLVED  A                      qwen engine 0  after 18 s"


def test_a_repetition_is_silent():
    """The same again is no line; a second time of the same alert is one."""
    notifications = Notifications()
    said(notifications, "page", alert())

    assert said(notifications, "page", alert()) == []
    assert len(said(notifications, "page", alert(start=END))) == 1


@pytest.mark.parametrize(
    ("to", "labels", "expected"),
    [
        ("digest", {"alertname": "A", "server": "s"}, "info      A                      s  x"),
        ("channel", {"alertname": "A", "instance": "h:1"}, "warning   A                      h:1  x"),
        ("mine", {"alertname": "A"}, "mine      A                      x"),
        ("page", {"server": "\x1b[2Js\n"}, "PAGE      ?                      \\x1b[2Js\\n  x"),
    ],
)
def test_who_it_is_for_and_what_it_is_about(to, labels, expected):
    """Each receiver has its word; an alert without a server is about a daemon; nothing reaches the terminal raw."""
    assert said(Notifications(), to, alert(labels, summary="x", runbook_url="")) == [expected]


def test_the_heartbeat_is_one_line():
    """That alerts are evaluated and arrive is said once."""
    notifications = Notifications()
    message = {"alerts": [alert({"alertname": "Watchdog"})]}

    assert [[line.word for line in notifications.lines("deadman", message)] for _ in range(3)] == [["ok"], [], []]


def test_the_receiver_takes_messages_and_nothing_else():
    """A message of JSON is taken with the name of its receiver; what is none is refused."""
    taken = []
    with receiver(lambda name, body: taken.append((name, body))) as url:
        statuses = [requests.post(f"{url}page", data=data, timeout=SECONDS).status_code for data in (b'{"a": 1}', b"{")]

    assert statuses == [200, 400]
    assert taken == [("page", {"a": 1})]
