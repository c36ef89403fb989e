# SPDX-License-Identifier: Apache-2.0
"""Whatever fails inside the daemon reaches somebody: each counter of failures is watched by a rule."""

from __future__ import annotations

import re

import pytest

from tests.alerts.replay import RULES, alerts_of
from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.catalog.codes import PARTS
from vllm_watch.daemon.catalog.series import GROUPS


COUNTERS = {
    series.full_name
    for group in GROUPS
    for series in group.series
    if not series.name.startswith("gpu_")  # Of hardware, not of the daemon.
    and re.search("_(errors|failures)_total$", series.full_name)
}
TOLD_BY_ANOTHER = {
    "vllm_watch_config_reload_failures_total": "vllm_watch_config_last_reload_successful",
    # Of the disk or of permissions: the source is down for as long, and reading goes on exactly where it was.
    "vllm_watch_log_read_errors_total": "vllm_watch_source_up",
}
"""The series that says the same and lasts."""
STEPS = 120


def expressions():
    """Return the expressions of all alerts, as one text."""
    groups = load_yaml((RULES / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return "\n".join(rule["expr"] for group in groups for rule in group["rules"] if "alert" in rule)


@pytest.mark.parametrize("counter", sorted(COUNTERS))
def test_each_counter_of_failures_is_watched(counter):
    """An alert asks for each of them, or for the series that says the same."""
    assert re.search(rf"\b{TOLD_BY_ANOTHER.get(counter, counter)}\b", expressions())


def test_the_runbook_says_what_each_part_means():
    """Its table of parts has a row for every part, in their order."""
    runbook = (RULES.parent / "runbooks" / "VllmWatchUnwell.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\| `(\w+)` \|", runbook, re.MULTILINE)) == PARTS


@pytest.mark.needs_tool("promtool")
def test_a_failure_of_each_part_fires():
    """One failure of any part of the daemon is told, with the part's name; of what is shown, with the server's."""
    once = ["0"] * 24 + ["1"] * (STEPS - 24)
    target = 'job="vllm-watch",instance="a:9468"'
    series = {f'vllm_watch_internal_errors_total{{{target},part="{part}"}}': once for part in PARTS}
    series[f'vllm_watch_collect_errors_total{{{target},server="s"}}'] = once
    fired = [each.labels for each in alerts_of(series, STEPS) if each.alertname == "VllmWatchUnwell"]

    assert {labels["part"] for labels in fired if "part" in labels} == set(PARTS) - {"snapshot"}
    assert [labels["server"] for labels in fired if "server" in labels] == ["s"]
