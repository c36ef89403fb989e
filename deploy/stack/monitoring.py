# SPDX-License-Identifier: Apache-2.0
"""Prometheus, Alertmanager and Grafana as programs: their files in a folder, and their commands."""

from __future__ import annotations

import json

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from deploy.stack import configuration
from deploy.stack.configuration import ALERTS, DASHBOARDS
from deploy.stack.processes import HOST, Program, get
from deploy.stack.programs import Found

from vllm_watch.analysis.backtest.rule_set import shipped_thresholds


FIRST_DASHBOARD = "vllm-watch-fleet.json"

VLLM_WATCH = "vllm-watch"
PROMETHEUS = "Prometheus"
ALERTMANAGER = "Alertmanager"
GRAFANA = "Grafana"

RESEND_SECONDS = 60
"""How often Prometheus sends an alert again that is still there."""

LOOK_BACK_SECONDS = 300
"""For how long Prometheus takes a sample for current, unless its series has ended."""

MOST_STORED = "1GB"
"""What the folder for temporary files has to have room for: it may be in memory."""

_GRAFANA_HOMES = ("/usr/share/grafana", "/usr/local/share/grafana")
_DEFAULTS = Path("conf", "defaults.ini")


class Setting(NamedTuple):
    """
    What programs are to be told.

    Args:
        folder: For their files.
        ports: Where each one listens, by its name.
        speed: Seconds of a recording per second.
        receiver: The URL of who gets messages.
    """

    folder: Path
    ports: Mapping[str, int]
    speed: float
    receiver: str

    def address(self, name: str) -> str:
        """Return where a program listens: host and port."""
        return f"{HOST}:{self.ports[name]}"


def programs(found: Found, setting: Setting) -> Iterator[Program]:
    """Write the files of Alertmanager, Prometheus and, where it is installed, Grafana; yield how they are started."""
    yield _alertmanager(found.paths["prometheus-alertmanager"], setting)
    if found.grafana is None:
        yield _prometheus(found.paths["prometheus"], setting, None)
        return
    yield _prometheus(found.paths["prometheus"], setting, f"http://{setting.address(GRAFANA)}")
    yield _grafana(found.grafana, setting)


def _alertmanager(program: str, setting: Setting) -> Program:
    shipped = ALERTS / "alertmanager" / "alertmanager.yml"
    text = configuration.alertmanager(
        _read(shipped), templates=shipped.parent, receiver=setting.receiver, speed=setting.speed
    )
    config = _written(setting.folder / "alertmanager.yml", text)
    command = alertmanager_command(program, config, setting.folder / "alertmanager", setting.address(ALERTMANAGER))
    return Program(ALERTMANAGER, command, setting.ports[ALERTMANAGER], "/-/ready")


def alertmanager_command(program: str, config: Path, storage: Path, address: str) -> list[str]:
    """Return the command of an Alertmanager that speaks with no other."""
    return [
        *(program, f"--config.file={config}", f"--storage.path={storage}"),
        *(f"--web.listen-address={address}", f"--web.external-url=http://{address}/", "--cluster.listen-address="),
    ]


def _prometheus(program: str, setting: Setting, grafana: str | None) -> Program:
    """Write Prometheus' files; `grafana` is where Grafana is, if there is one."""
    text = configuration.prometheus(
        _read(ALERTS / "prometheus" / "prometheus.yml"),
        rule_folder=_rule_folder(setting, grafana),
        daemon=setting.address(VLLM_WATCH),
        alertmanager=setting.address(ALERTMANAGER),
        speed=setting.speed,
    )
    config = _written(setting.folder / "prometheus.yml", text)
    resend = RESEND_SECONDS / setting.speed
    command = [
        *prometheus_command(program, config, setting.folder / "prometheus", setting.address(PROMETHEUS), resend),
        f"--query.lookback-delta={_milliseconds(LOOK_BACK_SECONDS / setting.speed)}",
        f"--storage.tsdb.retention.size={MOST_STORED}",
    ]
    return Program(PROMETHEUS, command, setting.ports[PROMETHEUS], "/-/ready")


def prometheus_command(program: str, config: Path, storage: Path, address: str, resend: float) -> list[str]:
    """Return the command of a Prometheus that sends an alert again after `resend` seconds."""
    return [
        *(program, f"--config.file={config}", f"--storage.tsdb.path={storage}"),
        *(f"--web.listen-address={address}", f"--web.external-url=http://{address}/"),
        f"--rules.alert.resend-delay={_milliseconds(resend)}",
    ]


def _rule_folder(setting: Setting, grafana: str | None) -> Path:
    """Return a folder with the rules: the shipped one, unless they must be others here."""
    shipped = ALERTS / "rules"
    if setting.speed == 1 and grafana is None:
        return shipped
    own = setting.folder / "rules"
    own.mkdir()
    links = (shipped_grafana(), grafana) if grafana is not None else None
    for path in shipped.glob("*.yml"):
        _written(own / path.name, configuration.rules(_read(path), speed=setting.speed, grafana=links))
    return own


def shipped_grafana() -> str:
    """Return how the links of the shipped alerts to Grafana begin."""
    return shipped_thresholds()["grafana"]


def knows_the_others(port: int) -> bool:
    """Whether a Prometheus has found its Alertmanager and what it scrapes, which it looks for every five seconds."""
    managers, targets = _data(port, "/api/v1/alertmanagers"), _data(port, "/api/v1/targets?state=active")
    return bool(managers.get("activeAlertmanagers") and targets.get("activeTargets"))


def _data(port: int, path: str) -> dict[str, list[object]]:
    body = get(port, path)
    found: dict[str, list[object]] = json.loads(body)["data"] if body is not None else {}
    return found


def _grafana(command: Sequence[str], setting: Setting) -> Program:
    shipped, own, name = DASHBOARDS / "provisioning", setting.folder / "provisioning", "vllm-watch.yml"
    json_folder = DASHBOARDS / "json" / "en"
    sources = configuration.data_source(
        _read(shipped / "datasources" / name), prometheus=f"http://{setting.address(PROMETHEUS)}", speed=setting.speed
    )
    provider = configuration.dashboards(_read(shipped / "dashboards" / name), folder=json_folder)
    for kind, text in (("datasources", sources), ("dashboards", provider)):
        (own / kind).mkdir(parents=True)
        _written(own / kind / name, text)
    settings = configuration.grafana(
        *(HOST, setting.ports[GRAFANA]),
        folder=setting.folder / "grafana",
        provisioning=own,
        home=json_folder / FIRST_DASHBOARD,
    )
    config = _written(setting.folder / "grafana.ini", settings)
    home = grafana_home(Path(command[0]))
    options = [f"--config={config}", *([f"--homepath={home}"] if home is not None else [])]
    return Program(GRAFANA, [*command, *options], setting.ports[GRAFANA], "/api/health")


def grafana_home(program: Path) -> Path | None:
    """Return the folder with Grafana's own files: where it was unpacked, or where packages put them."""
    homes = (program.resolve().parents[1], *map(Path, _GRAFANA_HOMES))
    return next((home for home in homes if (home / _DEFAULTS).is_file()), None)


def _milliseconds(seconds: float) -> str:
    return f"{max(round(seconds * 1000), 1)}ms"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
