# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch check``: reads each source once and reports what was found, what is missing, and what to do."""

from __future__ import annotations

import json
import sys
import time

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import click

from vllm_watch.cli.commands.options import plain_format_option
from vllm_watch.cli.commands.pods_check import ListedPods, list_pods, pod_lines
from vllm_watch.cli.commands.server_check import CheckedServer, check_servers, server_lines, unopened_gpus, unread_gpus
from vllm_watch.cli.commands.watched import Selection, configured, discovered, selection_options
from vllm_watch.daemon.catalog.alert_needs import alert_needs
from vllm_watch.daemon.catalog.codes import OTLP_OUTCOMES
from vllm_watch.daemon.catalog.gpu_texts import GRAVE_XIDS, GpuState, xid_text
from vllm_watch.daemon.catalog.reasons import KERNEL_LOG, KernelLogReason
from vllm_watch.daemon.config.config_file import SUFFIX, list_server_files
from vllm_watch.daemon.config.model import Config, OtlpConfig, PrometheusConfig
from vllm_watch.daemon.config.web import load_web_config
from vllm_watch.daemon.discovery.pods import with_pods
from vllm_watch.daemon.exposition.findings import alert_subject, alert_text
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.service.alerts import Alerts, alerts_view, ask
from vllm_watch.daemon.service.kernel_log_thread import place_of
from vllm_watch.daemon.service.otlp import OtlpPush, is_installed
from vllm_watch.daemon.sources.kernel_log import NEVER, KernelJournal
from vllm_watch.daemon.state.event_history import EVENT_SECONDS
from vllm_watch.daemon.state.xid_events import KernelLogStatus, XidEvents
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import DiscoveryError
from vllm_watch.daemon.support.logging_setup import configure_log
from vllm_watch.daemon.support.printable import PlainFormat, ReportLine, print_report
from vllm_watch_parsers.kernel_messages import BY_CODE, XID_ACTIONS


KERNEL_LOG_SECONDS = 2.0
"""How long the kernel's log is read; a journal that has more is read as far."""

_PAUSE_SECONDS = 0.05
_SILENT_POLLS = 4
"""Polls without a line after which all has been read."""


class Gathered(NamedTuple):
    """
    What each source answered.

    Args:
        config: What is checked, with the pods that are watched.
        pods: The pods that there are, if any are selected.
        kernel_log: What the kernel's log has, where it is read.
        servers: The servers.
        unopened: The GPUs that the driver has and does not open here.
        alerts: Those of the Prometheus, if one is configured.
    """

    config: Config
    pods: ListedPods | None
    kernel_log: KernelLogStatus | None
    servers: Sequence[CheckedServer]
    unopened: Mapping[int, GpuState | None]
    alerts: Alerts | None


@click.command("check")
@selection_options()
@plain_format_option
@click.option("--verbose", is_flag=True, help="Also name each alert that cannot fire.")
def command(selection: Selection, form: PlainFormat, verbose: bool) -> None:
    """
    Poll each source once; report what works and what is missing.

    The configuration is validated first.
    Without --config, --log and --metrics it checks the vLLM servers that run on this machine.
    """
    configure_log("error")
    config = selected_servers(selection)
    if form == "text":
        sys.exit(1 if print_report(check(config, is_verbose=verbose)) else 0)
    view = view_of(config)
    click.echo(json.dumps(view, indent=2))
    sys.exit(0 if view["ok"] else 1)


def selected_servers(selection: Selection) -> Config:
    """Return the configuration to check, web configuration file included; without options, of servers that run here."""
    if not selection.is_empty:
        config = configured(selection)
        if config.web_config_file is not None:
            load_web_config(config.web_config_file)
        return config
    config = discovered(selection).poll()
    if not config.servers:
        raise DiscoveryError("nothing to check: no vLLM server was found; run vllm-watch discover for the reason")
    return config


def check(config: Config, *, is_verbose: bool = False) -> Iterator[ReportLine]:
    """Yield the report, server by server; alerts are reported once for all servers of which the same is true."""
    found = _gather(config)
    yield from _lines_before(found)
    for server in found.servers:
        yield ReportLine(f"{_name(server)}:")
        yield from server_lines(server)
    alike: dict[Hashable, list[CheckedServer]] = {}
    for server in found.servers:
        alike.setdefault((*server.silent, None, *server.limited), []).append(server)
    for servers in alike.values():
        about = "" if len(alike) == 1 else f" of {', '.join(map(_name, servers))}"
        yield from _alert_lines(about, servers[0], is_verbose=is_verbose)
    yield from _lines_after(found)


def _name(server: CheckedServer) -> str:
    return server.config.name if server.file is None else f"{server.config.name} ({server.file})"


def view_of(config: Config) -> dict[str, Any]:
    """
    Return the report as plain data.

    Servers and the alerts of a Prometheus are as in the snapshot of the daemon. A server has besides ``problems``, what
    is wrong in sentences; ``silent_alerts``, those that cannot fire and why; ``limited_alerts``, those that may not
    whenever they should; ``alert_count``, how many there are; and its ``file``, if it has one.
    """
    found = _gather(config)
    servers = [_view_of_server(server) for server in found.servers]
    problems = _problems([*_lines_before(found), *_lines_after(found)])
    names = {server.name for server in found.config.servers}
    return {
        "ok": not problems and not any(server["problems"] for server in servers),
        "problems": problems,
        "ignored_files": [] if config.servers_dir is None else list(list_server_files(config.servers_dir).left_out),
        "servers": servers,
        **({} if found.alerts is None else alerts_view(found.alerts, names, ahead=0.0)),
    }


def _gather(config: Config) -> Gathered:
    pods = list_pods(config)
    config = config if pods is None else with_pods(config, pods.plan.servers)
    kernel_log = _read_kernel_log(config)
    servers, unopened = check_servers(config, kernel_log)
    alerts = None if config.prometheus is None else ask(config.prometheus, SystemClock().now())
    return Gathered(config, pods, kernel_log, servers, unopened, alerts)


def _lines_before(found: Gathered) -> Iterator[ReportLine]:
    """Yield where the servers come from: files of a folder, pods."""
    config = found.config
    if config.servers_dir is not None:
        count = len(config.files)
        yield ReportLine(f"{config.servers_dir}: {count} {'server' if count == 1 else 'servers'}")
        for path in list_server_files(config.servers_dir).left_out:
            yield ReportLine(f"  ignored, because its name does not end in {SUFFIX}: {path}")
        if not config.servers and config.kubernetes is None:
            yield ReportLine("  there is nothing to watch: no server is configured", is_wrong=True)
    if found.pods is not None:
        yield from pod_lines(found.pods)


def _lines_after(found: Gathered) -> Iterator[ReportLine]:
    """Yield what servers have in common: the machine's GPUs and its kernel's log, a Prometheus, an OTLP endpoint."""
    config = found.config
    yield from unopened_gpus(found.unopened)
    if config.gpu.read == "auto":
        yield from unread_gpus()
    if found.kernel_log is not None:
        yield from _kernel_log_lines(found.kernel_log, time.time())
    if config.prometheus is not None and found.alerts is not None:
        yield from _prometheus_lines(config.prometheus, found.alerts, {server.name for server in config.servers})
    if config.otlp is not None:
        yield _otlp_line(config.otlp)


def _problems(lines: Iterable[ReportLine]) -> list[str]:
    return [line.text.strip() for line in lines if line.is_wrong]


def _view_of_server(checked: CheckedServer) -> dict[str, Any]:
    view = {
        **server_view(checked.snapshot),
        "at": checked.snapshot.at,
        "file": checked.file,
        "problems": _problems(server_lines(checked)),
        "alert_count": len(alert_needs()),
        "silent_alerts": [each._asdict() for each in checked.silent],
        "limited_alerts": [each._asdict() for each in checked.limited],
    }
    return {name: value for name, value in view.items() if value is not None}


def _alert_lines(about: str, checked: CheckedServer, *, is_verbose: bool) -> Iterator[ReportLine]:
    """Yield how many alerts can fire, the others by what they lack, and those that would see more with a flag."""
    every = len(alert_needs())
    ask = "" if is_verbose or not checked.silent else "; --verbose names the others"
    yield ReportLine(f"alerts{about}: {every - len(checked.silent)} of {every} can fire{ask}")
    for reason, count in Counter(each.reason for each in checked.silent).most_common():
        if is_verbose:
            yield ReportLine(f"  {reason}, so these cannot:")
            silent = [each for each in checked.silent if each.reason == reason]
            yield from (ReportLine(f"    {each.alert}: {each.summary}") for each in silent)
        else:
            yield ReportLine(f"  {count} cannot: {reason}")
    for reason in dict.fromkeys(each.reason for each in checked.limited):
        names = ", ".join(each.alert for each in checked.limited if each.reason == reason)
        yield ReportLine(f"  {reason}, so these may stay silent when they should not: {names}")


def _otlp_line(config: OtlpConfig) -> ReportLine:
    """Return whether the endpoint accepts exports: it is sent one without values."""
    outcome = OtlpPush(config).send(b"").outcome if is_installed() else "not_installed"
    is_wrong = outcome != "ok"
    word = "FAILED" if is_wrong else "ok"
    return ReportLine(f"otlp {config.endpoint}: {word}: {OTLP_OUTCOMES[outcome]}.", is_wrong=is_wrong)


def _prometheus_lines(config: PrometheusConfig, alerts: Alerts, servers: Container[str]) -> Iterator[ReportLine]:
    """Yield the alerts of these servers and of vllm-watch, or why they are not known."""
    if alerts.listed is None:
        yield ReportLine(f"prometheus: FAILED. {alerts.problem}.", is_wrong=True)
        return
    shown = alerts.about(servers)
    yield ReportLine(f"prometheus {config.url}: ok. {len(shown)} {'alert' if len(shown) == 1 else 'alerts'}")
    for alert in shown:
        # One that pages somebody is wrong also if the server looks well at the moment.
        is_wrong = (alert.severity, alert.state) == ("critical", "firing")
        instance = alert.instance if alert.server is None else None
        subject = alert_subject(alert.alertname, alert.server, alert.engine, instance)
        yield ReportLine(f"  {alert_text(alert.severity, alert.state, subject, alert.summary)}", is_wrong)


def _read_kernel_log(config: Config) -> KernelLogStatus | None:
    """Read the kernel's log once, from the machine's boot on; `None` where that makes no sense."""
    place = place_of(config)
    if place == NEVER:
        return None
    clock, xids = SystemClock(), XidEvents()
    with closing(KernelJournal(wall=clock.wall)) as log:
        end = time.monotonic() + KERNEL_LOG_SECONDS
        silent = 0
        while silent < _SILENT_POLLS and time.monotonic() < end and log.reason in {"ok", "starting"}:
            lines = log.poll(clock.now())
            for line in lines:
                xids.apply(line)
            silent = 0 if lines or log.reason == "starting" else silent + 1
            if not log.has_more:
                time.sleep(_PAUSE_SECONDS)
        reason: KernelLogReason = "no_entries" if log.reason == "starting" else log.reason
        return KernelLogStatus(place, reason == "ok", reason, xids.totals())


def _kernel_log_lines(status: KernelLogStatus, at: float) -> Iterator[ReportLine]:
    """
    Yield what the kernel's log has at a moment of the wall clock.

    A log that may not be read is nothing wrong: servers are watched without it. An error of the last hour is, if a GPU
    needs somebody after it.
    """
    word = "ok" if status.is_up else "not read"
    yield ReportLine(f"kernel's log ({status.place}): {word}. {KERNEL_LOG[status.reason].text}")
    for total in status.totals:
        age, group = max(at - total.last_at, 0.0), BY_CODE[total.code].group
        is_wrong = group in GRAVE_XIDS and age < EVENT_SECONDS
        yield ReportLine(f"  {xid_text(total.code, total.gpu or total.pci)}, {age / 60:,.0f} min ago", is_wrong)
        yield ReportLine(f"    {XID_ACTIONS[group]}")
