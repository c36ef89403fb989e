# SPDX-License-Identifier: Apache-2.0
"""
The proof that a page arrives: a recorded stall, the daemon, Debian's Prometheus and Alertmanager, and a receiver.

All of them run as they ship, on free ports of loopback. Only waiting is cut short: the recording is played faster than
it was and stands still while the engine does, the daemon calls an engine stalled sooner, and the rules, made of the
shipped sources, are evaluated each second and hold their breath for a shorter time.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import threading
import time

from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
import render

from tests.support.command_line import vllm_watch
from tests.support.http_servers import free_port
from tests.support.monitoring import (
    ALERTS,
    Message,
    Receivers,
    alertmanager,
    get_json,
    process,
    prometheus,
)
from tests.support.recordings import recording
from tests.support.waiting import SECONDS, until

from vllm_watch.analysis.replay.recording import LogWritten
from vllm_watch.cli.commands.demo import StandIn


RECOVERY = 174.0
"""Second of the recording at which its engine goes on: it has stood still since the 90th."""

SPEED = 20
SHORTER = {"stalled_for": "1s"}
MINUTES = 240
"""How many seconds of the Prometheus are looked at: it is not as old."""

APART = 8
"""Seconds between what Prometheus sees and what a backtest sees of it, at most: it scrapes every 5 s."""

RUNBOOK = "https://github.com/vllm-watch/vllm-watch/blob/main/alerts/runbooks/VllmEngineStalled.md"
Labels = frozenset[tuple[str, str]]
LABELS = {
    "alertname": "VllmEngineStalled",
    "severity": "critical",
    "server": "qwen",
    "engine": "0",
    "model_name": "Qwen3.6-27B",
    "job": "vllm-watch",
}

pytestmark = pytest.mark.needs_tool("amtool", "prometheus", "prometheus-alertmanager")


class Incident(NamedTuple):
    """
    What came of the stall.

    Args:
        messages: All messages.
        page: The page.
        resolved: Its end.
        rules: What Prometheus says of its rules.
        fired: The seconds at which each alert fired in Prometheus, by its labels.
        backtested: The alerts that `vllm-watch backtest` finds in the same Prometheus with the same rules.
    """

    messages: list[Message]
    page: Message
    resolved: Message
    rules: list[dict]
    fired: dict[Labels, list[float]]
    backtested: list[dict]


class Playback:
    """Plays the recording's log and page, and holds before the engine recovers until it is told to go on."""

    def __init__(self, log: Path) -> None:
        self.stand_in = StandIn()
        self.go_on = threading.Event()
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self.go_on.set()
        self._thread.join(SECONDS)
        self.stand_in.refuse()

    def _run(self) -> None:
        at = 0.0
        with self._log.open("ab", buffering=0) as log:
            for event in recording("stall").events():
                if event.at >= RECOVERY:
                    self.go_on.wait()
                if self._stop.wait((event.at - at) / SPEED):
                    return
                at = event.at
                if isinstance(event, LogWritten):
                    log.write(event.data)
                elif event.body:
                    self.stand_in.answer(event.body)
                else:
                    self.stand_in.refuse()


def shortened_rules(folder):
    """Write the shipped rules with less waiting; return their folder."""
    shipped = {path.name: path.read_text(encoding="utf-8") for path in (ALERTS / "rules").glob("*.yml")}
    assert render.rendered() == shipped
    folder.mkdir()
    for name, text in render.rendered(**SHORTER).items():
        assert text != shipped[name] or name != "alerts.yml"
        (folder / name).write_text(re.sub(r"(?m)^( +interval): \d+[sm]$", r"\1: 1s", text), encoding="utf-8")
    return folder


def daemon_command(folder, log, playback, listen):
    """Return the daemon's command, with a configuration that watches the playback."""
    config = folder / "vllm-watch.yml"
    config.write_text(
        f"listen: {listen}\n"
        "servers:\n"
        "- name: qwen\n"
        f"  log: {log}\n"
        f"  metrics: {{url: 'http://127.0.0.1:{playback.stand_in.port}/metrics', interval: 2s}}\n"
        "  stall_after: 5s\n"
        "  slo: chat\n"
    )
    return [sys.executable, "-m", "vllm_watch", "run", "--config", str(config)]


@pytest.fixture(scope="module")
def incident(tmp_path_factory):
    """Let the engine stall and recover; return what came of it."""
    folder = tmp_path_factory.mktemp("incident")
    log = folder / "vllm.log"
    log.touch()
    listen = f"127.0.0.1:{free_port()}"
    with Receivers() as receivers, Playback(log) as playback:

        def pages(status):
            return [message for message in receivers.to("page") if message.body["status"] == status]

        with (
            process(daemon_command(folder, log, playback, listen), folder / "daemon.log", f"http://{listen}/-/ready"),
            alertmanager(folder, receivers.url) as alertmanager_url,
            prometheus(
                folder, shortened_rules(folder / "rules"), listen, alertmanager_url.removeprefix("http://")
            ) as prometheus_url,
        ):
            until(lambda: pages("firing"), SECONDS, lambda: all_logs(folder))
            playback.go_on.set()
            until(lambda: pages("resolved"), SECONDS, lambda: all_logs(folder))
            groups = get_json(f"{prometheus_url}/api/v1/rules")["data"]["groups"]
            fired = alerts_in(prometheus_url)
            backtested = backtested_in(prometheus_url, folder / "rules")
        return Incident(
            list(receivers.messages),
            pages("firing")[0],
            pages("resolved")[0],
            [rule for group in groups for rule in group["rules"]],
            fired,
            backtested,
        )


def alerts_in(url):
    """Return the seconds of the last minutes at which each alert fired in a Prometheus, by its labels."""
    now = time.time()
    query = urlencode({"query": 'ALERTS{alertstate="firing"}', "start": now - MINUTES, "end": now, "step": 1})
    found = get_json(f"{url}/api/v1/query_range?{query}")["data"]["result"]
    left_out = {"__name__", "alertstate"}
    return {
        frozenset((name, value) for name, value in each["metric"].items() if name not in left_out): [
            moment for moment, _ in each["values"]
        ]
        for each in found
    }


def backtested_in(url, rules):
    """Return the alerts that `vllm-watch backtest` finds in a Prometheus."""
    files = [word for path in sorted(rules.glob("*.yml")) for word in ("--rules", path)]
    found = vllm_watch("backtest", f"prom:{url}@-{MINUTES}s", "--format", "json", *files)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)["alerts"]


def all_logs(folder):
    """Return the end of what each process wrote."""
    return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(folder.glob("*.log")))


def test_the_page_arrives_with_all_that_is_needed_to_act(incident):
    """A stalled engine is a page: which server and engine, what is wrong, the runbook and the dashboard."""
    (alert,) = incident.page.body["alerts"]
    assert {name: alert["labels"].get(name) for name in LABELS} == LABELS
    assert re.fullmatch(r"127\.0\.0\.1:\d+", alert["labels"]["instance"])  # Inhibition is bound to it.
    assert alert["annotations"]["runbook_url"] == RUNBOOK
    assert alert["annotations"]["dashboard_url"].endswith("/d/vllm-watch-server?var-server=qwen")
    assert alert["annotations"]["summary"]
    assert "qwen engine 0" in alert["annotations"]["description"]


def test_the_resolved_notice_follows(incident):
    """When the engine goes on, the same alert is said to be over."""
    (alert,) = incident.resolved.body["alerts"]
    assert alert["fingerprint"] == incident.page.body["alerts"][0]["fingerprint"]
    assert alert["status"] == "resolved"
    assert alert["startsAt"] < alert["endsAt"]
    assert incident.resolved.body["groupKey"] == incident.page.body["groupKey"]
    assert incident.page.at < incident.resolved.at


def test_one_page_for_one_incident(incident):
    """Nothing else pages, and nothing pages twice."""
    assert [message.body["status"] for message in incident.messages if message.receiver == "page"] == [
        "firing",
        "resolved",
    ]


def test_the_dead_mans_switch_hears_the_watchdog_and_nothing_else(incident):
    """A sign of life comes from the start on, again and again, and to nobody else."""
    heard = [message for message in incident.messages if message.receiver == "deadman"]
    assert heard
    assert all(message.body["commonLabels"]["alertname"] == "Watchdog" for message in heard)
    assert all(later.at - earlier.at < 60 + SECONDS for earlier, later in itertools.pairwise(heard))
    elsewhere = [message for message in incident.messages if message.receiver != "deadman"]
    assert "Watchdog" not in json.dumps([message.body for message in elsewhere])


def test_every_rule_can_be_evaluated_over_the_daemons_own_series(incident):
    """Prometheus has evaluated every rule of the pack over real series without an error."""
    assert len(incident.rules) > 40
    assert {rule["name"]: rule.get("lastError") for rule in incident.rules if rule["health"] != "ok"} == {}


def test_a_backtest_finds_what_prometheus_has_fired(incident):
    """
    The same rules over the same Prometheus fire at the same time as in it, but for a scrape and an evaluation.

    What began in its first or last seconds may be there in one of both only.
    """
    live = {labels: moments for labels, moments in incident.fired.items() if dict(labels)["alertname"] != "Watchdog"}
    found = {}
    for each in incident.backtested:
        labels = {**each["labels"], "alertname": each["alertname"], "severity": each["severity"]}
        found.setdefault(frozenset(labels.items()), []).append(each)

    lasting = {labels for labels, moments in live.items() if len(moments) > APART}
    assert {"VllmEngineStalled"} <= {dict(labels)["alertname"] for labels in lasting}
    assert lasting <= set(found)
    for labels in lasting:
        assert found[labels][0]["start"] == pytest.approx(live[labels][0], abs=APART)
    short = [each for labels in set(found) - set(live) for each in found[labels]]
    assert [each for each in short if each.get("end", each["start"]) - each["start"] > APART] == []
