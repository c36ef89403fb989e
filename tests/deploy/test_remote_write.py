# SPDX-License-Identifier: Apache-2.0
"""
Beyond one machine: a daemon, Debian's Prometheus as an agent, VictoriaMetrics, and vmalert with the recording rules.

All of them run as they ship, on free ports of loopback; waiting is cut short where it can be.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.parse

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support.http_servers import free_port
from tests.support.monitoring import PROMETHEUS, get_json, get_text, process
from tests.support.processes import run_command
from tests.support.waiting import SECONDS, until
from tests.support.yaml_files import load_yaml


ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "deploy" / "prometheus"
RULES = ROOT / "alerts" / "rules"
PLACES = sorted((SHIPPED / "remote-write").glob("*.yml"))
OWN = {"job": "vllm-watch", "instance": "gpu1:9468", "cluster": "frankfurt", "host": "gpu1"}
"""What the shipped agent adds to every series."""
RECORDED = "engine:vllm_watch_tokens_per_second:avg5m"

needs_promtool = pytest.mark.needs_tool("promtool")
needs_servers = pytest.mark.needs_tool("prometheus", "victoria-metrics", "vmalert")


def promtool(*arguments):
    """Return what promtool prints; it must succeed."""
    run = run_command("promtool", *map(str, arguments))
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


# The files.


@needs_promtool
@pytest.mark.parametrize("path", [SHIPPED / "agent.yml", *PLACES], ids=lambda path: path.stem)
def test_an_agent_takes_the_file(path):
    """Each file is a valid configuration of an agent by itself."""
    assert "SUCCESS" in promtool("check", "config", "--agent", path)


@needs_promtool
@pytest.mark.parametrize("path", PLACES, ids=lambda path: path.stem)
def test_a_place_fits_into_the_agents_file(path, tmp_path):
    """The remote_write of an example is valid in the place of the agent's own, and is sent encrypted."""
    shipped = load_yaml((SHIPPED / "agent.yml").read_text())
    (place,) = load_yaml(path.read_text())["remote_write"]
    merged = tmp_path / "agent.yml"
    merged.write_text(yaml.safe_dump({**shipped, "remote_write": [place]}))

    assert "SUCCESS" in promtool("check", "config", "--agent", merged)
    assert place["url"].startswith("https://")


def test_the_agent_has_the_limits_of_the_shipped_prometheus():
    """The daemon's job is the one of alerts/prometheus, but for the instance's name."""
    (agents,) = load_yaml((SHIPPED / "agent.yml").read_text())["scrape_configs"]
    (others,) = load_yaml((ROOT / "alerts" / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    (target,) = agents["static_configs"]

    assert target.pop("labels") == {"instance": OWN["instance"]}
    assert agents == others


@needs_promtool
def test_an_agent_that_falls_silent_is_told_and_others_are_not(tmp_path):
    """VllmWatchSilent fires for the instance whose series have ended, five minutes after they went stale."""
    values = [
        {"series": 'up{job="vllm-watch",instance="gpu1:9468"}', "values": "1x10 stale _x60"},
        {"series": 'up{job="vllm-watch",instance="gpu2:9468"}', "values": "1x70"},
        {"series": 'up{job="node",instance="gpu3:9100"}', "values": "1x10 stale _x60"},
    ]
    expected = {
        "exp_labels": {"severity": "critical", "tier": "core", "job": "vllm-watch", "instance": "gpu1:9468"},
        "exp_annotations": {
            "summary": "The series of a vllm-watch have stopped coming.",
            "description": (
                "gpu1:9468 has sent nothing for over five minutes: its machine, its agent or the way from there is "
                "gone. It is forgotten after a day."
            ),
            "runbook_url": "https://github.com/vllm-watch/vllm-watch/blob/main/alerts/runbooks/VllmWatchGone.md",
        },
    }
    cases = [
        {"eval_time": "10m", "alertname": "VllmWatchSilent", "exp_alerts": []},
        {"eval_time": "15m", "alertname": "VllmWatchSilent", "exp_alerts": []},
        {"eval_time": "17m", "alertname": "VllmWatchSilent", "exp_alerts": [expected]},
    ]
    test = tmp_path / "test.yml"
    test.write_text(
        json.dumps(
            {
                "rule_files": [str(SHIPPED / "central-rules.yml")],
                "tests": [{"interval": "1m", "input_series": values, "alert_rule_test": cases}],
            }
        )
    )

    assert "SUCCESS" in promtool("test", "rules", test)
    assert (ROOT / "alerts" / "runbooks" / "VllmWatchGone.md").exists()


# The way of a series.


class Central(NamedTuple):
    """Addresses of the place where the series arrive, of the evaluator there, of the agent and of the daemon."""

    victoria_metrics: str
    vmalert: str
    agent: str
    daemon: str
    folder: Path

    def query(self, expression):
        """Return an instant query's result."""
        return get_json(f"{self.victoria_metrics}/api/v1/query?{urllib.parse.urlencode({'query': expression})}")[
            "data"
        ]["result"]

    def eventually(self, expression):
        """Return the result once there is one."""
        return until(lambda: self.query(expression), SECONDS, self.logs)

    def logs(self):
        """Return the end of what each process wrote."""
        return "\n".join(f"== {each.name}\n{each.read_text()[-2000:]}" for each in sorted(self.folder.glob("*.log")))


def substituted(text, *pairs):
    """Return the text with each of the passages, which are there once, replaced by another."""
    for shipped, ours in pairs:
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, ours)
    return text


def recording_rules(folder):
    """Write the recording rules as they ship, evaluated each second: Debian's vmalert is too old for some alerts."""
    for path in RULES.glob("*.yml"):
        groups = load_yaml(path.read_text())["groups"]
        for group in groups:
            group["interval"] = "1s"
            group["rules"] = [rule for rule in group["rules"] if "record" in rule]
        (folder / path.name).write_text(yaml.safe_dump({"groups": [group for group in groups if group["rules"]]}))


def expression(name):
    """Return what a recording rule evaluates."""
    groups = load_yaml((RULES / "recording.yml").read_text())["groups"]
    return next(rule["expr"] for group in groups for rule in group["rules"] if rule.get("record") == name)


def servers(folder):
    """Yield name, command and address of each process, in the order in which they need each other."""
    daemon, central, agent, rules = (f"127.0.0.1:{free_port()}" for _ in range(4))
    yield (
        "daemon",
        [sys.executable, "-m", "vllm_watch", "demo", "--speed", "20", "--listen", daemon],
        (daemon, "/-/ready"),
    )
    yield (
        "victoria-metrics",
        [
            *("victoria-metrics", f"-httpListenAddr={central}", f"-storageDataPath={folder / 'data'}"),
            *("-retentionPeriod=100y", "-search.latencyOffset=0s", "-memory.allowedBytes=128MB"),
        ],
        (central, "/health"),
    )
    config = folder / "agent.yml"
    config.write_text(
        substituted(
            (SHIPPED / "agent.yml").read_text(),
            ("targets: ['127.0.0.1:9468']", f"targets: ['{daemon}']"),
            ("http://127.0.0.1:8428/", f"http://{central}/"),
            ("scrape_interval: 5s", "scrape_interval: 1s"),
            ("scrape_timeout: 4s", "scrape_timeout: 1s"),
            ("batch_send_deadline: 5s", "batch_send_deadline: 500ms"),
        )
    )
    yield (
        "agent",
        [
            *(PROMETHEUS, "--enable-feature=agent", f"--config.file={config}"),
            *(f"--storage.agent.path={folder / 'agent'}", f"--web.listen-address={agent}"),
        ],
        (agent, "/-/ready"),
    )
    (folder / "rules").mkdir()
    recording_rules(folder / "rules")
    yield (
        "vmalert",
        [
            *("vmalert", f"-rule={folder / 'rules'}/*.yml", f"-httpListenAddr={rules}"),
            *(f"-datasource.url=http://{central}", f"-remoteWrite.url=http://{central}"),
            *(f"-remoteRead.url=http://{central}", "-remoteWrite.flushInterval=500ms"),
        ],
        (rules, "/health"),
    )


@pytest.fixture(scope="module")
def central(tmp_path_factory):
    """Run all of them."""
    folder = tmp_path_factory.mktemp("central")
    addresses = {}
    with ExitStack() as stack:
        for name, command, (address, path) in servers(folder):
            addresses[name] = f"http://{address}"
            stack.enter_context(process(command, folder / f"{name}.log", f"http://{address}{path}"))

        names = ("victoria-metrics", "vmalert", "agent", "daemon")
        yield Central(*(addresses[name] for name in names), folder)


@needs_servers
def test_every_series_arrives_with_the_agents_labels(central):
    """What the daemon shows can be read where the agent writes to, with the same names and the agent's labels."""
    central.eventually("vllm_watch_requests_running")
    shown = set(re.findall(r"(?m)^(vllm_watch_\w+)[{ ]", get_text(f"{central.daemon}/metrics")))
    matching = urllib.parse.urlencode({"match[]": '{__name__=~"vllm_watch_.*"}'})
    arrived = until(
        lambda: (
            (names := set(get_json(f"{central.victoria_metrics}/api/v1/label/__name__/values?{matching}")["data"]))
            >= shown
            and names
        ),
        SECONDS,
        central.logs,
    )
    (running,) = central.eventually("vllm_watch_requests_running")

    assert len(shown) > 80
    assert arrived >= shown
    assert OWN.items() <= running["metric"].items()
    assert running["metric"]["engine"] == "0"


@needs_servers
def test_the_recording_rules_results_are_read_back(central):
    """What vmalert makes of the rules stands beside the series that they are made of, with the same labels."""
    (result,) = central.eventually(RECORDED)
    (source,) = central.eventually("vllm_watch_prompt_tokens_per_second")

    assert result["metric"] == {**source["metric"], "__name__": RECORDED}
    assert central.eventually(f"abs({RECORDED} / ({expression(RECORDED)}) - 1) < 0.1")
