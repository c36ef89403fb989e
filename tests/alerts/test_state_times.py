# SPDX-License-Identifier: Apache-2.0
"""How long it takes until a state is shown, and until somebody is told, is what BEHAVIOUR.md says."""

from __future__ import annotations

import functools
import math
import re

import pytest

from tests.alerts.replay import RULES, STEP
from tests.state.test_shutdown import FINISHED
from tests.support.recordings import ROOT
from tests.support.server_stories import Server, line, page
from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.config.server_config import MetricsConfig


SCRAPES = MetricsConfig(url="http://x").interval
PRINTS = 10.0
WARM = 60.0
"""So long the server works, or rests, before something happens to it."""

JITTER = 0.02
"""Scrapes come a little early or late."""

LIFE = {
    "serving": {"before": {}, "after": {"running": 1, "rate": 9}},
    "idle": {"before": {"running": 1, "rate": 9}, "after": {}},
    "saturated": {"before": {"running": 1, "rate": 9}, "after": {"running": 1, "rate": 9, "waiting": 3}},
    "stalled": {"before": {"running": 1, "rate": 9}, "after": {"running": 1}},
    "down": {"before": {"running": 1, "rate": 9}, "after": None},
    "unknown": {"before": {"running": 1, "rate": 9}, "after": None},
}
"""What the server does before and after the moment from which it is in a state; `None` if it does not answer."""


def delay(state, source, happens):
    """Return how long after a moment a server of one source is first shown in the state that it came into then."""
    server = Server(has_log=source == "log", has_metrics=source != "log", interval=SCRAPES)
    every = PRINTS if source == "log" else SCRAPES
    start, generated, last = server.now, 50.0, server.now
    for number in range(1, 40):
        at = start + number * every + (0.0 if source == "log" else JITTER * (number % 4 - 1.5))
        for moment in range(math.ceil(server.now), math.ceil(at)):  # The state is looked at each second.
            if moment - start > happens and state_at(server, moment) == state:
                return moment - start - happens
        before, after = LIFE[state]["before"], LIFE[state]["after"]
        worked = min(at, start + happens) - min(last, start + happens)
        tokens = before.get("rate", 0) * worked + (after or {}).get("rate", 0) * (at - last - worked)
        generated += tokens
        server.now = last = at
        look(server, source, state, before if at <= start + happens else after, generated, tokens / every)
        if at - start > happens and state_at(server, at) == state:
            return at - start - happens
    raise AssertionError(f"never {state}")


def look(server, source, state, now, generated, rate):
    """Let the server be scraped, or print a line, as it is now."""
    if now is not None:
        requests = {"running": now.get("running", 0), "waiting": now.get("waiting", 0)}
        if source == "log":
            server.log(line(**requests, generation=round(rate, 1)))
        else:
            server.scrape(page(**requests, generated=generated))
    elif source != "log":
        server.scrape(reason="refused" if state == "down" else "timeout")


def state_at(server, now):
    """Return the state of the only engine."""
    return next(iter(server.state.engine_states(now).values()), None)


@functools.cache
def shown(state, source):
    """Return the least and the most seconds until a state is shown, to 5 s, over the moments between two readings."""
    every = PRINTS if source == "log" else SCRAPES
    found = [delay(state, source, WARM + every * share) for share in (-0.01, 0.01, 0.3, 0.6, 0.98, 1.02)]
    return 5 * round(min(found) / 5), 5 * round(max(found) / 5)


def told(seen, alert):
    """Return the least and the most seconds until a message leaves, by the rule and Alertmanager's configuration."""
    ((group, rule),) = (
        (group, rule)
        for group in load_yaml((RULES / "alerts.yml").read_text())["groups"]
        for rule in group["rules"]
        if rule.get("alert") == alert
    )
    route = load_yaml((ROOT.parent / "alerts/alertmanager/alertmanager.yml").read_text())["route"]
    severity = [f'severity="{rule["labels"]["severity"]}"']
    own = [each for each in route["routes"] if each["matchers"] == severity]
    every, waits = seconds(group["interval"]), seconds((own or [route])[0]["group_wait"])
    holds = math.ceil(seconds(rule["for"]) / every) * every
    return seen[0] + holds + waits, seen[1] + holds + waits + STEP + every


def seconds(written):
    """Return a duration of Prometheus in seconds."""
    number, unit = re.fullmatch(r"(\d+)(s|m|h)", written).groups()
    return int(number) * {"s": 1, "m": 60, "h": 3600}[unit]


def rows():
    """Return the table of BEHAVIOUR.md by state."""
    text = (ROOT.parent / "daemon/BEHAVIOUR.md").read_text()
    section = text.split("## When a state is shown")[1].split("\n## ")[0]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in section.splitlines() if row[:1] == "|"]
    return {row[0].split(" ")[0]: row[1:] for row in cells[2:]}


def written(span):
    """Return a span as the table has it."""
    return f"{span[0]:g} to {span[1]:g} s"


@pytest.mark.parametrize("state", [*LIFE])
def test_a_state_is_shown_as_soon_as_is_written_down(state):
    """With the defaults, at whatever moment between two readings it begins."""
    by_metrics, by_log, _ = rows()[state]

    assert by_metrics == written(shown(state, "metrics"))
    if state != "down":
        assert by_log == written(shown(state, "log"))


def test_an_end_in_the_log_is_shown_at_once():
    """The line is enough."""
    assert Server(has_metrics=False).log(line(1, generation=9.0), FINISHED).engine().state == "down"


def test_somebody_is_told_as_soon_as_is_written_down():
    """By the shipped rules, Prometheus and Alertmanager."""
    table = {state: cells[-1] for state, cells in rows().items()}
    stalled, logged = (told(shown("stalled", source), "VllmEngineStalled") for source in ("metrics", "log"))
    down = told(shown("down", "metrics"), "VllmEngineDown")
    thresholds = load_yaml((ROOT.parent / "alerts/thresholds.yml").read_text())
    full = told((seconds(thresholds["queue_lasts"]),) * 2, "VllmCapacityExhausted")[0]

    assert table["stalled"] == (
        f"VllmEngineStalled pages, after {written(stalled)}; by the log alone after {written(logged)}"
    )
    assert table["down"] == f"VllmEngineDown pages, after {written(down)}"
    assert table["unknown"] == f"VllmStateUnknown warns, {written(told((0, 0), 'VllmStateUnknown'))} after that"
    assert table["saturated"] == f"VllmCapacityExhausted pages, from {full} s on"
