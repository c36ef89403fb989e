# SPDX-License-Identifier: Apache-2.0
"""Leaving out rules that a query does not depend on."""

from __future__ import annotations

import re

import pytest

from tests.alerts.needed import alert_query, needed
from tests.alerts.replay import groups_at_worst


GROUPS = [
    {
        "name": "first",
        "interval": "15s",
        "rules": [
            {"alert": "Slow", "expr": "engine:slow > 1"},
            {"alert": "Broken", "expr": "vllm_watch_a"},
            {"alert": "Both", "expr": 'ALERTS{alertname="Slow"} and on (server) vllm_watch_b'},
        ],
    },
    {
        "name": "second",
        "interval": "30s",
        "rules": [
            {"record": "engine:slow", "expr": "avg(engine:raw)"},
            {"record": "engine:raw", "expr": "vllm_watch_c"},
        ],
    },
]
EVERY = ["Slow", "Broken", "Both", "engine:slow", "engine:raw"]


def names(groups):
    """Return what the rules write."""
    return [rule.get("alert") or rule["record"] for group in groups for rule in group["rules"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("vllm_watch_a", []),
        ("engine:raw", ["engine:raw"]),
        ("sum(rate(engine:slow[5m])) or vllm_watch_a", ["engine:slow", "engine:raw"]),
        (alert_query("Broken"), ["Broken"]),
        (alert_query("Slow"), ["Slow", "engine:slow", "engine:raw"]),
        (alert_query("Both"), ["Slow", "Both", "engine:slow", "engine:raw"]),
        ('ALERTS_FOR_STATE{alertname="Broken", alertstate="firing"}', ["Broken"]),
        ('ALERTS{alertname=~"Broken"}', ["Slow", "Broken", "Both", "engine:slow", "engine:raw"]),
        ('ALERTS{alertstate="firing"}', ["Slow", "Broken", "Both", "engine:slow", "engine:raw"]),
        ('{__name__=~"engine:.+"}', EVERY),
        ('{server="a" or engine="0"}', EVERY),
    ],
)
def test_rules_are_those_that_write_what_is_selected(query, found):
    """A rule is left out only if it cannot write what the query selects, nor what the rules select that can."""
    assert found == names(needed(GROUPS, [query]))


def test_texts_of_alerts_ask_for_nothing_else():
    """A query in the text of a shipped alert selects nothing recorded that the alert does not depend on."""
    groups = groups_at_worst()
    rules = [rule for group in groups for rule in group["rules"]]
    recorded = {rule["record"] for rule in rules if "record" in rule}
    asked = {
        (rule["alert"], name)
        for rule in rules
        if "alert" in rule
        for text in rule["annotations"].values()
        for name in recorded & set(re.findall(r"engine:[\w:]+", text))
    }

    assert asked
    assert not [(alert, name) for alert, name in asked if name not in names(needed(groups, [alert_query(alert)]))]
