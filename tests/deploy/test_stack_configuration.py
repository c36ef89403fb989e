# SPDX-License-Identifier: Apache-2.0
"""What `make stack` gives its programs is what is shipped, but for what must differ."""

from __future__ import annotations

import configparser
import copy

from pathlib import Path

import pytest

from deploy.stack import configuration
from deploy.stack.configuration import ALERTS, DASHBOARDS
from deploy.stack.faster import TIMES
from deploy.stack.monitoring import Setting, programs
from deploy.stack.programs import Found
from tests.support.processes import run_command
from tests.support.tools import find
from tests.support.yaml_files import load_yaml


ALERTMANAGER = ALERTS / "alertmanager" / "alertmanager.yml"
PROMETHEUS = ALERTS / "prometheus" / "prometheus.yml"
RULES = ALERTS / "rules" / "alerts.yml"
RECEIVER = "http://127.0.0.1:1/"
PORTS = {"vllm-watch": 1001, "Prometheus": 1002, "Alertmanager": 1003, "Grafana": 1004}


def alertmanager(text: str, speed: float = 1) -> dict:
    """Return Alertmanager's configuration here."""
    return load_yaml(configuration.alertmanager(text, templates=ALERTMANAGER.parent, receiver=RECEIVER, speed=speed))


def prometheus(speed: float = 1) -> dict:
    """Return Prometheus' configuration here."""
    shipped = PROMETHEUS.read_text()
    return load_yaml(
        configuration.prometheus(
            shipped, rule_folder=Path("/rules"), daemon="127.0.0.1:1", alertmanager="127.0.0.1:2", speed=speed
        )
    )


def without_times(document):
    """Return a document without its durations and expressions."""
    if isinstance(document, list):
        return [without_times(each) for each in document]
    if isinstance(document, dict):
        return {key: without_times(value) for key, value in document.items() if key not in {*TIMES, "expr"}}
    return document


def test_alertmanager_differs_in_where_messages_go():
    """Routes, groups and inhibition are the shipped ones; each receiver that is told something is ours."""
    shipped, ours = load_yaml(ALERTMANAGER.read_text()), alertmanager(ALERTMANAGER.read_text())

    assert {**ours, "receivers": [], "templates": []} == {**shipped, "receivers": [], "templates": []}
    assert ours["templates"] == [str(ALERTMANAGER.parent / "templates" / "*.tmpl")]
    assert [
        (each["name"], [(hook["url"], hook["send_resolved"]) for hook in each.get("webhook_configs", [])])
        for each in ours["receivers"]
    ] == [
        ("page", [(f"{RECEIVER}page", True)]),
        ("channel", [(f"{RECEIVER}channel", True)]),
        ("digest", [(f"{RECEIVER}digest", True)]),
        ("deadman", [(f"{RECEIVER}deadman", False)]),
        ("nobody", []),
    ]


def test_prometheus_differs_in_addresses():
    """Limits, intervals and the job's name are the shipped ones."""
    expected = copy.deepcopy(load_yaml(PROMETHEUS.read_text()))
    expected["rule_files"] = ["/rules/*.yml"]
    expected["scrape_configs"][0]["static_configs"] = [{"targets": ["127.0.0.1:1"]}]
    expected["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": ["127.0.0.1:2"]}]}]

    assert prometheus() == expected


def test_a_fast_replay_changes_times_and_nothing_else():
    """Scrapes, evaluations, groups and rules are as much faster; all else is as it is without."""
    fast, shipped = prometheus(10), prometheus()
    (job,), (usual,) = fast["scrape_configs"], shipped["scrape_configs"]
    rules = load_yaml(configuration.rules(RULES.read_text(), speed=10))

    assert without_times(fast) == without_times(shipped)
    assert (usual["scrape_interval"], usual["scrape_timeout"]) == ("5s", "4s")
    assert (job["scrape_interval"], job["scrape_timeout"]) == ("500ms", "400ms")
    assert fast["global"]["evaluation_interval"] == "1500ms"
    text = ALERTMANAGER.read_text()
    assert without_times(alertmanager(text, 10)) == without_times(alertmanager(text))
    assert alertmanager(text, 10)["route"]["group_interval"] == "30s"
    assert without_times(rules) == without_times(load_yaml(RULES.read_text()))
    assert {group["interval"] for group in rules["groups"]} >= {"1500ms", "3s"}


@pytest.mark.needs_tool("promtool", "amtool")
@pytest.mark.parametrize("speed", [1, 10, 20, 0.5])
def test_the_programs_own_tools_accept_it(tmp_path, speed):
    """Promtool and amtool find nothing wrong with the files of any speed."""
    found = Found({"prometheus": "p", "prometheus-alertmanager": "a"}, (), None)
    list(programs(found, Setting(tmp_path, PORTS, speed, RECEIVER)))

    for command in (
        ("promtool", "check", "config", "prometheus.yml"),
        ("amtool", "check-config", "alertmanager.yml"),
    ):
        ran = run_command(find(command[0]), *command[1:], cwd=tmp_path)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (tmp_path / "rules").exists() == (speed != 1)


class TestGrafana:
    """Grafana is not Debian's: what it is given is read as its documentation says."""

    @pytest.fixture
    def folder(self, tmp_path):
        """Return the folder with all files, and Grafana's command."""
        found = Found({"prometheus": "p", "prometheus-alertmanager": "a"}, (), ("/opt/grafana/bin/grafana", "server"))
        *_, self.program = programs(found, Setting(tmp_path, PORTS, 10, RECEIVER))
        return tmp_path

    def test_whoever_reaches_loopback_may_look(self, folder):
        """Viewers need no password, nobody is an administrator, and everything is below the folder."""
        settings = configparser.ConfigParser(interpolation=None)
        settings.read(folder / "grafana.ini")

        assert (settings["server"]["http_addr"], settings["server"]["http_port"]) == ("127.0.0.1", "1004")
        assert dict(settings["auth.anonymous"]) == {"enabled": "true", "org_role": "Viewer"}
        assert settings["security"]["disable_initial_admin_creation"] == "true"
        assert {Path(path).is_relative_to(folder) for path in settings["paths"].values()} == {True}
        assert Path(settings["dashboards"]["default_home_dashboard_path"]).is_file()

    def test_what_is_provisioned(self, folder):
        """The shipped dashboards and data source, with this Prometheus and the interval of its scrapes."""
        provisioned = {
            kind: load_yaml((folder / "provisioning" / kind / "vllm-watch.yml").read_text())
            for kind in ("datasources", "dashboards")
        }
        shipped = {
            kind: load_yaml((DASHBOARDS / "provisioning" / kind / "vllm-watch.yml").read_text()) for kind in provisioned
        }
        (source,), (provider,) = provisioned["datasources"]["datasources"], provisioned["dashboards"]["providers"]
        (usual,), (shipped_provider,) = shipped["datasources"]["datasources"], shipped["dashboards"]["providers"]

        assert source == {
            **usual,
            "url": "http://127.0.0.1:1002",
            "jsonData": {**usual["jsonData"], "timeInterval": "500ms"},
        }
        assert provider == {**shipped_provider, "options": {"path": str(DASHBOARDS / "json" / "en")}}
        assert len(list(Path(provider["options"]["path"]).glob("*.json"))) == 7
