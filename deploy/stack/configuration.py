# SPDX-License-Identifier: Apache-2.0
"""
What Prometheus, Alertmanager and Grafana read: the shipped files, but for what must differ on this machine's loopback.

Each function takes the text of a shipped file and returns that of its copy: other addresses and paths, Alertmanager's
receivers replaced by one of ours, and all times divided by the speed of a replay. Nothing else is changed, so edits of
the shipped files count here, too.
"""

from __future__ import annotations

import configparser
import io

from pathlib import Path
from typing import Any

import yaml

from deploy.stack.faster import faster


_TREE = Path(__file__).parents[2]
ALERTS = _TREE / "alerts"
DASHBOARDS = _TREE / "dashboards"

Document = dict[str, Any]

_TARGETS = "_configs"
"""How the keys of a receiver end that say where its messages go."""

_CALLS_HOME = ("reporting_enabled", "check_for_updates", "check_for_plugin_updates", "feedback_links_enabled")
"""Grafana's settings in its section `analytics` that let it ask or tell its makers something."""


def rules(shipped: str, *, speed: float = 1, grafana: tuple[str, str] | None = None) -> str:
    """
    Return a file of rules.

    Args:
        shipped: The file of ``alerts/rules``.
        speed: Seconds of a recording per second.
        grafana: The beginning of links to Grafana, as shipped and as it is here.
    """
    text = shipped if grafana is None else shipped.replace(*grafana)
    return _text(faster(yaml.safe_load(text), speed))


def prometheus(shipped: str, *, rule_folder: Path, daemon: str, alertmanager: str, speed: float = 1) -> str:
    """
    Return Prometheus' configuration.

    Args:
        shipped: ``alerts/prometheus/prometheus.yml``.
        rule_folder: Where the rules are.
        daemon: Address of vllm-watch, with the port.
        alertmanager: Address of Alertmanager.
        speed: As of `rules`.
    """
    document = yaml.safe_load(shipped)
    document["rule_files"] = [f"{rule_folder}/*.yml"]
    (job,) = document["scrape_configs"]
    job["static_configs"] = [{"targets": [daemon]}]
    document["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [alertmanager]}]}]
    return _text(faster(document, speed))


def alertmanager(shipped: str, *, templates: Path, receiver: str, speed: float = 1) -> str:
    """
    Return Alertmanager's configuration: who gets messages gets them at a path of his own name.

    Args:
        shipped: ``alerts/alertmanager/alertmanager.yml``.
        templates: The folder that its templates are relative to.
        receiver: The URL that the paths are appended to.
        speed: As of `rules`.
    """
    document = yaml.safe_load(shipped)
    document["templates"] = [str(templates / each) for each in document["templates"]]
    document["receivers"] = [_receiver(each, receiver) for each in document["receivers"]]
    return _text(faster(document, speed))


def _receiver(shipped: Document, url: str) -> Document:
    """Return a receiver that sends to us what it would send anywhere; one that sends nothing still does not."""
    targets = [each for key, value in shipped.items() if key.endswith(_TARGETS) for each in value]
    if not targets:
        return shipped
    says_when_over = any(each.get("send_resolved", True) for each in targets)
    webhook = {"url": f"{url.rstrip('/')}/{shipped['name']}", "send_resolved": says_when_over}
    return {"name": shipped["name"], "webhook_configs": [webhook]}


def data_source(shipped: str, *, prometheus: str, speed: float = 1) -> str:
    """Return Grafana's data source; `shipped` is that of ``dashboards/provisioning``, `prometheus` a URL."""
    document = yaml.safe_load(shipped)
    (source,) = document["datasources"]
    source["url"] = prometheus
    return _text(faster(document, speed))


def dashboards(shipped: str, *, folder: Path) -> str:
    """Return Grafana's provider of dashboards; `shipped` is that of ``dashboards/provisioning``."""
    document = yaml.safe_load(shipped)
    (provider,) = document["providers"]
    provider["options"]["path"] = str(folder)
    return _text(document)


def grafana(host: str, port: int, *, folder: Path, provisioning: Path, home: Path) -> str:
    """
    Return Grafana's own settings: whoever reaches loopback may look, without a password, and nobody may change.

    Args:
        host: Address to listen on.
        port: Port to listen on.
        folder: For its data, logs and plugins.
        provisioning: What is provisioned.
        home: The dashboard that is shown first.
    """
    settings = configparser.ConfigParser(interpolation=None)
    paths = {name: str(folder / name) for name in ("data", "logs", "plugins")}
    settings["paths"] = {**paths, "provisioning": str(provisioning)}
    settings["server"] = {"http_addr": host, "http_port": str(port), "root_url": f"http://{host}:{port}/"}
    settings["auth"] = {"disable_login_form": "true"}
    settings["auth.anonymous"] = {"enabled": "true", "org_role": "Viewer"}
    settings["security"] = {"disable_initial_admin_creation": "true"}
    settings["dashboards"] = {"default_home_dashboard_path": str(home)}
    # Nothing leaves this machine.
    settings["analytics"] = dict.fromkeys(_CALLS_HOME, "false")
    settings["news"] = {"news_feed_enabled": "false"}
    settings["snapshots"] = {"external_enabled": "false"}
    settings["plugins"] = {"preinstall_disabled": "true", "preinstall_auto_update": "false"}
    written = io.StringIO()
    settings.write(written)
    return written.getvalue()


def _text(document: Document) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=120)
