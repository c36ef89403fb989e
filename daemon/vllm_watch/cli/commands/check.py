# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch check``: reads each source once and reports what was found, what is missing, and what to do."""

from __future__ import annotations

import json
import sys
import time

from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import click

from vllm_watch.cli.commands.gpu_lines import unopened_gpus, unread_gpus
from vllm_watch.cli.commands.kernel_log_check import kernel_log_lines, kernel_log_view, read_kernel_log
from vllm_watch.cli.commands.options import config_option, log_option, metrics_option, plain_format_option
from vllm_watch.cli.commands.pods_check import list_pods, pod_lines, pods_view, with_listed
from vllm_watch.cli.commands.server_check import CheckedServer, check_servers, server_lines
from vllm_watch.cli.commands.watched import Selection, configured, discovered
from vllm_watch.daemon.catalog.alert_needs import alert_needs
from vllm_watch.daemon.catalog.codes import OTLP_OUTCOMES
from vllm_watch.daemon.catalog.findings import alert_subject, alert_text
from vllm_watch.daemon.config.config_file import SUFFIX, list_server_files
from vllm_watch.daemon.config.model import Config, OtlpConfig, PrometheusConfig
from vllm_watch.daemon.config.web import load_web_config
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.service.otlp_push import OtlpPush
from vllm_watch.daemon.service.otlp_thread import GOOD, is_installed
from vllm_watch.daemon.service.prometheus_alerts import Alerts, alerts_view, ask
from vllm_watch.daemon.support.choices import PlainFormat
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import DiscoveryError
from vllm_watch.daemon.support.logging_setup import configure_log
from vllm_watch.daemon.support.printable import ReportLine, print_report


_NAMED = 6
"""So many of equal servers are named."""


@click.command("check")
@config_option
@log_option
@metrics_option
@plain_format_option
@click.option("--verbose", is_flag=True, help="Also name each alert that cannot fire, and write equal servers out.")
def command(
    config_file: str | None, logs: tuple[str, ...], metrics: tuple[str, ...], form: PlainFormat, verbose: bool
) -> None:
    """
    Poll each source once; report what works and what is missing.

    The configuration is validated first.
    Without --config, --log and --metrics it checks the vLLM servers that run on this machine.
    """
    configure_log("error")
    config = selected_servers(Selection(config_file, logs, metrics))
    if form == "text":
        sys.exit(1 if print_report(check(config, is_verbose=verbose)) else 0)
    view = view_of(config)
    click.echo(json.dumps(view, indent=2))
    sys.exit(0 if view["ok"] else 1)


def selected_servers(selection: Selection) -> Config:
    """
    Return the configuration to check.

    Raises:
        DiscoveryError: No server is selected, and none runs on this machine.
        UsageError, ConfigError: The options, the file or the web configuration file are wrong.
    """
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
    """
    Yield the report, server by server; those of `servers_dir` with their files.

    Servers that differ only in their addresses and in what they do now are one, unless it is to be verbose.
    """
    listed = list_pods(config)
    yield from _check_folder(config)
    if listed is not None:
        yield from pod_lines(listed)
    config = with_listed(config, listed)
    kernel_log = read_kernel_log(config)
    checked, unopened = check_servers(config, kernel_log)
    for servers in _folded(checked, partial(_texts, is_verbose=is_verbose)):
        yield ReportLine(f"{_heading(servers)}:")
        yield from server_lines(servers[0], is_one=len(servers) == 1)
    for servers in _folded(checked, lambda each: (*each.silent, None, *each.limited)):
        about = "" if len(servers) == len(checked) else f" of {_heading(servers)}"
        yield from _check_alerts(about, servers[0], is_verbose=is_verbose)
    yield from unopened_gpus(unopened)
    if config.gpu.read == "auto":
        yield from unread_gpus()
    if kernel_log is not None:
        yield from kernel_log_lines(kernel_log, time.time())
    if config.prometheus is not None:
        alerts = ask(config.prometheus, SystemClock().now())
        yield from _check_prometheus(config.prometheus, alerts, {server.name for server in config.servers})
    if config.otlp is not None:
        yield _check_otlp(config.otlp)


def view_of(config: Config) -> dict[str, Any]:
    """
    Return the report as plain data.

    Servers and the alerts of a Prometheus are as in the snapshot of the daemon. A server has besides ``problems``, what
    is wrong in sentences; ``silent_alerts``, those that cannot fire and why; ``limited_alerts``, those that may not
    whenever they should; ``alert_count``, how many there are; and its ``file``, if it has one. ``kernel_log`` is there
    on a machine with GPUs, ``kubernetes`` if pods are selected.
    """
    listed = list_pods(config)
    config = with_listed(config, listed)
    kernel_log = read_kernel_log(config)
    checked, unopened = check_servers(config, kernel_log)
    servers = [_view_of_server(each) for each in checked]
    lines, alerts = [*_check_folder(config), *unopened_gpus(unopened)], {}
    lines += [] if listed is None else pod_lines(listed)
    if config.prometheus is not None:
        names, asked = {server.name for server in config.servers}, ask(config.prometheus, SystemClock().now())
        lines += _check_prometheus(config.prometheus, asked, names)
        alerts = alerts_view(asked, names, ahead=0.0)
    if config.otlp is not None:
        lines.append(_check_otlp(config.otlp))
    lines += [] if kernel_log is None else kernel_log_lines(kernel_log, time.time())
    problems = _problems(lines)
    return {
        "ok": not problems and not any(server["problems"] for server in servers),
        "problems": problems,
        "ignored_files": [] if config.servers_dir is None else list(list_server_files(config.servers_dir).left_out),
        "servers": servers,
        **({} if kernel_log is None else {"kernel_log": kernel_log_view(kernel_log)}),
        **({} if listed is None else {"kubernetes": pods_view(listed)}),
        **alerts,
    }


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


def _check_folder(config: Config) -> Iterator[ReportLine]:
    """Yield how many files of `servers_dir` are read, and which are ignored."""
    if config.servers_dir is None:
        return
    yield ReportLine(f"{config.servers_dir}: {len(config.files)} {'server' if len(config.files) == 1 else 'servers'}")
    for path in list_server_files(config.servers_dir).left_out:
        yield ReportLine(f"  ignored, because its name does not end in {SUFFIX}: {path}")
    if not config.servers and config.kubernetes is None:
        yield ReportLine("  there is nothing to watch: no server is configured", is_wrong=True)


def _folded(
    checked: Sequence[CheckedServer], key: Callable[[CheckedServer], Hashable]
) -> Collection[list[CheckedServer]]:
    """Return servers with those of the same key, in the order of the first ones."""
    groups: dict[Hashable, list[CheckedServer]] = {}
    for each in checked:
        groups.setdefault(key(each), []).append(each)
    return list(groups.values())


def _texts(checked: CheckedServer, *, is_verbose: bool) -> Hashable:
    """Return what servers that are shown as one have in common."""
    return checked.config.name if is_verbose else tuple(line.text for line in server_lines(checked, is_one=False))


def _heading(servers: Sequence[CheckedServer]) -> str:
    """Return the name of a server with its file, or how many there are and which."""
    names = [each.config.name if each.file is None else f"{each.config.name} ({each.file})" for each in servers]
    if len(names) == 1:
        return names[0]
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return f"{len(names)} servers ({', '.join(names[:_NAMED])}{more})"


def _check_alerts(about: str, checked: CheckedServer, *, is_verbose: bool) -> Iterator[ReportLine]:
    """Yield how many alerts can fire, the others by what they lack, and those that would see more with a flag."""
    every, others = len(alert_needs()), 0
    ask = "" if is_verbose or not checked.silent else "; --verbose names the others"
    yield ReportLine(f"alerts{about}: {every - len(checked.silent)} of {every} can fire{ask}")
    for reason, count in Counter(each.reason for each in checked.silent).most_common():
        if is_verbose:
            yield ReportLine(f"  {reason}, so these cannot:")
            silent = [each for each in checked.silent if each.reason == reason]
            yield from (ReportLine(f"    {each.alert}: {each.summary}") for each in silent)
        elif count > 1:
            yield ReportLine(f"  {count} cannot: {reason}")
        else:
            others += 1
    if others:
        yield ReportLine(f"  {others} cannot, each for a reason of its own")
    for reason in dict.fromkeys(each.reason for each in checked.limited):
        names = ", ".join(each.alert for each in checked.limited if each.reason == reason)
        yield ReportLine(f"  {reason}, so these may stay silent when they should not: {names}")


def _check_otlp(config: OtlpConfig) -> ReportLine:
    """Return whether the endpoint accepts exports: it is sent one without values."""
    outcome = OtlpPush(config).send(b"").outcome if is_installed() else "not_installed"
    word = "ok" if outcome in GOOD else "FAILED"
    return ReportLine(f"otlp {config.endpoint}: {word}: {OTLP_OUTCOMES[outcome]}.", is_wrong=outcome not in GOOD)


def _check_prometheus(config: PrometheusConfig, alerts: Alerts, servers: Container[str]) -> Iterator[ReportLine]:
    """Yield the alerts of these servers and of vllm-watch, or why they are not known."""
    if alerts.listed is None:
        yield ReportLine(f"prometheus: FAILED. {alerts.problem}.", is_wrong=True)
        return
    shown = [alert for alert in alerts.listed if alert.is_about(servers)]
    yield ReportLine(f"prometheus {config.url}: ok. {len(shown)} {'alert' if len(shown) == 1 else 'alerts'}")
    for alert in shown:
        # One that pages somebody is wrong also if the server looks well at the moment.
        is_wrong = (alert.severity, alert.state) == ("critical", "firing")
        instance = alert.instance if alert.server is None else None
        subject = alert_subject(alert.alertname, alert.server, alert.engine, instance)
        yield ReportLine(f"  {alert_text(alert.severity, alert.state, subject, alert.summary)}", is_wrong)
