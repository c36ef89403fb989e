# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch check``: reads each source once and reports what was found, what is missing, and what to do."""

from __future__ import annotations

import glob
import json
import os
import sys
import time

from collections import Counter
from collections.abc import Callable, Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from vllm_watch.catalog.alert_needs import alert_needs
from vllm_watch.catalog.capacity_reasons import CAPACITY_BASES
from vllm_watch.catalog.causes import meaning
from vllm_watch.catalog.finding_texts import alert_subject, alert_text
from vllm_watch.catalog.findings import Finding
from vllm_watch.catalog.otlp_outcomes import OTLP_OUTCOMES
from vllm_watch.catalog.reasons import SOURCE_NAMES, SourceName, explain, standing
from vllm_watch.catalog.states import STATES, EngineState
from vllm_watch.commands.gpu_lines import gpu_lines, unopened_gpus, unread_gpus
from vllm_watch.commands.kernel_log_check import kernel_log_lines, kernel_log_view, read_kernel_log
from vllm_watch.commands.options import config_option, log_option, metrics_option, plain_format_option
from vllm_watch.commands.pods_check import list_pods, pod_lines, pods_view, with_listed
from vllm_watch.commands.silent_alerts import Silent, silent_alerts
from vllm_watch.commands.watched import Selection, configured, discovered
from vllm_watch.config.model import Config, OtlpConfig, PrometheusConfig, ServerConfig
from vllm_watch.config.servers_dir import SUFFIX, list_server_files
from vllm_watch.config.web import load_web_config
from vllm_watch.discovery.watched_processes import Running, WatchedProcesses
from vllm_watch.exposition.json_view import server_view
from vllm_watch.service.gpu_once import read_once
from vllm_watch.service.monitor import ServerMonitor
from vllm_watch.service.otlp_push import OtlpPush
from vllm_watch.service.otlp_thread import GOOD, is_installed
from vllm_watch.service.prometheus_alerts import Alerts, alerts_view, ask
from vllm_watch.state.configuration import Configuration
from vllm_watch.state.gpu_use import GpuUse
from vllm_watch.state.server_findings import server_findings
from vllm_watch.state.snapshot import EngineSnapshot, Reading, ServerSnapshot, SourceSnapshot
from vllm_watch.state.xid_events import KernelLogStatus
from vllm_watch.support.clock import SystemClock
from vllm_watch.support.errors import DiscoveryError
from vllm_watch.support.logging_setup import configure_log
from vllm_watch.support.report import ReportLine, print_report
from vllm_watch.support.report_formats import PlainFormat


CHECK_SECONDS = 600.0
"""The GPUs are read before the first server: what was read of them is current while the others are checked."""

ANSWER_SECONDS = 2.0
"""How long to wait for the first lines of a program, such as journalctl."""

_PAUSE_SECONDS = 0.02
_NAMED = 6
"""So many of equal servers are named."""

_GAUGES = {
    "requests_running": "running {:.0f}",
    "requests_waiting": "waiting {:.0f}",
    "kv_cache_usage_ratio": "KV cache {:.1%}",
    "prompt_tokens_per_second": "prompt {:.1f} tokens/s",
    "generation_tokens_per_second": "generation {:.1f} tokens/s",
    "prefix_cache_hit_ratio": "prefix hits {:.1%}",
    "mm_cache_hit_ratio": "multimodal hits {:.1%}",
    "spec_decode_mean_acceptance_length": "mean acceptance length {:.2f}",
}
_FACTS = {
    "kv_cache_capacity_tokens": "KV cache of {:,.0f} tokens",
    "max_concurrency": "room for {:.2f} requests of full length",
    "max_running_requests": "at most {:.0f} running requests",
    "max_model_len_tokens": "at most {:,.0f} tokens a request",
    "num_speculative_tokens": "{:.0f} tokens a draft",
}
_COMPUTING: frozenset[EngineState] = frozenset({"serving", "saturated"})
_THROUGH_RAY = "    through Ray's agent: an engine without work cannot be told from one that is stalled or has ended"
_CHECK_AGAIN = (
    "Requests run, and none is known to have received a token: one poll cannot show whether the engine serves or is "
    "stalled. Check again in 30 s."
)


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


class Checked(NamedTuple):
    """
    A server whose sources were read once: how it is configured, what it shows, and the alerts that cannot fire.

    `no_process` tells why its command line is not known, if it is not.
    """

    config: ServerConfig
    file: str | None
    snapshot: ServerSnapshot
    silent: Sequence[Silent]
    limited: Sequence[Silent]
    no_process: str | None = None
    writer: tuple[int, str] | None = None
    """The process of this machine that writes the log, and where, if that is another file than the configured one."""


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
    processes, kernel_log = WatchedProcesses(), read_kernel_log(config)
    gpus = read_once(config, SystemClock(), processes=processes)
    running = processes.running(config.servers, SystemClock().now())
    checked = [_checked(config, server, gpus.uses[server.name], running, kernel_log) for server in config.servers]
    for servers in _folded(checked, partial(_texts, is_verbose=is_verbose)):
        yield ReportLine(f"{_heading(servers)}:")
        yield from _lines_of(servers[0], is_one=len(servers) == 1)
    for servers in _folded(checked, lambda each: (*each.silent, None, *each.limited)):
        about = "" if len(servers) == len(checked) else f" of {_heading(servers)}"
        yield from _check_alerts(about, servers[0], is_verbose=is_verbose)
    yield from unopened_gpus(gpus.unopened)
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
    processes, kernel_log = WatchedProcesses(), read_kernel_log(config)
    gpus = read_once(config, SystemClock(), processes=processes)
    running = processes.running(config.servers, SystemClock().now())
    servers = [
        _view_of_server(_checked(config, each, gpus.uses[each.name], running, kernel_log)) for each in config.servers
    ]
    lines, alerts = [*_check_folder(config), *unopened_gpus(gpus.unopened)], {}
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


def _view_of_server(checked: Checked) -> dict[str, Any]:
    view = {
        **server_view(checked.snapshot),
        "at": checked.snapshot.at,
        "file": checked.file,
        "problems": _problems(_lines_of(checked)),
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


def _writer_elsewhere(config: ServerConfig, running: Running | None) -> tuple[int, str] | None:
    """Return a server's process, and the file that it writes its log into if that is not the configured one."""
    process = None if running is None else running.servers.get(config.name)
    if running is None or process is None or config.log is None or config.name not in running.logs:
        return None
    path = running.logs[config.name]
    try:
        written = Path(path).stat()
        is_here = any(os.path.samestat(written, Path(each).stat()) for each in glob.glob(config.log))  # noqa: PTH207
    except OSError:
        return None  # It was deleted or renamed meanwhile, or cannot be looked at.
    return None if is_here else (process.start[0], path)


def _checked(
    whole: Config, config: ServerConfig, gpus: GpuUse, running: Running | None, kernel_log: KernelLogStatus | None
) -> Checked:
    """Read each source of a server once; what all have in common, such as processes and GPUs, was read already."""
    server = ServerMonitor(config, SystemClock())
    server.apply_gpus(gpus, CHECK_SECONDS)
    process = None if running is None else running.servers.get(config.name)
    server.apply_process(process, SystemClock().now())
    no_process = "it does not run on this machine" if running is None else running.why if process is None else None
    try:
        _read_log(server)
        server.scrape()
        if server.next_probe(SystemClock().now()) is not None:  # A server that sleeps is not probed.
            server.probe()
        snapshot = server.snapshot()
        has_kernel_log = kernel_log is not None and kernel_log.is_up
        silent, limited = silent_alerts(config, snapshot, server.foresee(), has_kernel_log=has_kernel_log)
        writer = _writer_elsewhere(config, running)
        return Checked(config, whole.files.get(config.name), snapshot, silent, limited, no_process, writer)
    finally:
        server.close()


def _folded(checked: Sequence[Checked], key: Callable[[Checked], Hashable]) -> Collection[list[Checked]]:
    """Return servers with those of the same key, in the order of the first ones."""
    groups: dict[Hashable, list[Checked]] = {}
    for each in checked:
        groups.setdefault(key(each), []).append(each)
    return groups.values()


def _texts(checked: Checked, *, is_verbose: bool) -> Hashable:
    """Return what servers that are shown as one have in common."""
    return checked.config.name if is_verbose else tuple(line.text for line in _lines_of(checked, is_one=False))


def _heading(servers: Sequence[Checked]) -> str:
    """Return the name of a server with its file, or how many there are and which."""
    names = [each.config.name if each.file is None else f"{each.config.name} ({each.file})" for each in servers]
    if len(names) == 1:
        return names[0]
    more = "" if len(names) <= _NAMED else f" and {len(names) - _NAMED} more"
    return f"{len(names)} servers ({', '.join(names[:_NAMED])}{more})"


def _lines_of(checked: Checked, *, is_one: bool = True) -> Iterator[ReportLine]:
    """Yield the report on a server; without `is_one` only what others have alike: not where it is, nor what it does."""
    snapshot = checked.snapshot
    found = server_findings(snapshot)
    for source in snapshot.sources:
        yield from _check_source(checked, source, is_one=is_one)
        yield from (_found(each, "    ") for each in found if each.source == source.source)
    yield from _flags(snapshot.configuration, checked.no_process)
    read = {source.source for source in snapshot.sources}
    yield from (_found(each, "  ") for each in found if each.source not in read)
    for engine in snapshot.engines:
        yield from _check_engine(engine, snapshot, is_one=is_one)


def _read_log(server: ServerMonitor) -> None:
    """Read a log to its end, or what a program prints within a few seconds."""
    end = time.monotonic() + ANSWER_SECONDS
    while server.log is not None and (server.log.poll() or (server.log.is_waiting and time.monotonic() < end)):
        if server.log.is_waiting:
            time.sleep(_PAUSE_SECONDS)


def _check_source(checked: Checked, source: SourceSnapshot, *, is_one: bool) -> Iterator[ReportLine]:
    config, snapshot, writer = checked.config, checked.snapshot, checked.writer
    where = _address(config, source.source) if is_one else ""
    word: str = standing(source.source, source.reason, is_up=source.is_up, is_stopped=snapshot.is_stopped)
    text = explain(source.source, source.reason, is_stopped=snapshot.is_stopped)
    if source.source == "log" and writer is not None:
        word = "FAILED"
        text = f"Its process {writer[0]} writes its log to {writer[1]} and not here: vLLM keeps a file open that was "
        text += "renamed. Start it again, and rotate with copytruncate."
    name = f"{SOURCE_NAMES[source.source]} {where}".rstrip()
    yield ReportLine(f"  {name}: {word}. {text}", word == "FAILED")
    if source.source == "gpu":
        yield from gpu_lines(snapshot.gpus, config.gpus if source.is_up else ())
    if source.engine_kind == "ray_vllm":
        yield ReportLine(_THROUGH_RAY)
    if source.source == "log" and source.is_up and snapshot.version is not None:
        yield ReportLine(f"    vLLM {snapshot.version}, model {snapshot.model_name or 'unknown'}")
    if not is_one:
        return
    if snapshot.probe is not None and source.source == "probe" and snapshot.probe.first_token_seconds is not None:
        yield ReportLine(f"    time to first token: {snapshot.probe.first_token_seconds:.3f} s")


def _address(config: ServerConfig, source: SourceName) -> str:
    if source == "log":
        return _log_name(config)
    if source == "probe":
        return config.probe_url or ""
    if source == "gpu":
        return ", ".join(config.gpus)
    return config.metrics.url if config.metrics else ""


def _log_name(config: ServerConfig) -> str:
    return f"of unit {config.journal}" if config.journal is not None else config.log or ""


def _found(finding: Finding, indent: str) -> ReportLine:
    return ReportLine(f"{indent}{finding.text}", finding.weight == "wrong")


def _flags(configuration: Configuration, no_process: str | None) -> Iterator[ReportLine]:
    """Yield the flags that any source has, and why those that the server was given are not known."""
    known = [f"{flag} {known.value}" for flag, known in configuration.flags.items()]
    if known:
        yield ReportLine(f"  flags: {', '.join(known)}")
    if no_process is not None and all(known.source == "metrics" for known in configuration.flags.values()):
        text = "  the flags that it was started with are not known: no log that is read has its start, and "
        yield ReportLine(text + no_process)


def _check_engine(engine: EngineSnapshot, snapshot: ServerSnapshot, *, is_one: bool) -> Iterator[ReportLine]:
    """Yield the state, the gauges and the facts of an engine."""
    # A server that was stopped on purpose is wrong, too: it answers no request.
    yield ReportLine(f"  engine {engine.key.engine}: {engine.state}", is_wrong=engine.state == "down")
    if engine.state == "sleeping":
        yield ReportLine(f"    {STATES[engine.state].text}")
    if engine.cause is not None:
        is_wrong = engine.state in {"stalled", "down"}
        yield ReportLine(f"    {meaning(engine.state, engine.cause)}", is_wrong=is_wrong)
    facts = [form.format(engine.facts[name]) for name, form in _FACTS.items() if name in engine.facts]
    if is_one:
        yield from _check_gauges(engine.gauges, snapshot.at)
    if _may_be_stalled(engine):
        yield ReportLine(f"    {_CHECK_AGAIN}")
    yield ReportLine(f"    configuration: {', '.join(facts) or 'unknown'}")
    for basis, known in engine.capacity.ranges.items():
        most = f"{known.tokens_per_second:,.0f} ({known.low:,.0f} to {known.high:,.0f}) tokens/s"
        yield ReportLine(f"    capacity: {most}, {CAPACITY_BASES[basis]}")


def _may_be_stalled(engine: EngineSnapshot) -> bool:
    """Whether requests run and no token is known: one scrape has no rates, and a log may be silent or report 0."""
    rates = [engine.gauges.get(name) for name in ("prompt_tokens_per_second", "generation_tokens_per_second")]
    running = engine.gauges.get("requests_running")
    is_moving = any(rate is not None and rate.value > 0 for rate in rates)
    return engine.state in _COMPUTING and running is not None and running.value > 0 and not is_moving


def _check_gauges(gauges: Mapping[str, Reading], at: float) -> Iterator[ReportLine]:
    """Yield the gauges of each source with their age: one scrape has no rates, and a log's are of its last line."""
    known = {name: form.format(gauges[name].value) for name, form in _GAUGES.items() if name in gauges}
    if not known:
        yield ReportLine("    now: nothing known")
        return
    first = gauges[next(iter(known))].source
    for source in dict.fromkeys([first, *(gauges[name].source for name in known)]):
        values = [text for name, text in known.items() if gauges[name].source == source]
        seconds = max(at - max(gauges[name].at for name in known if gauges[name].source == source), 0.0)
        when = "now" if source == first else f"from the {source}, {seconds:.0f} s ago"
        yield ReportLine(f"    {when}: {', '.join(values)}")


def _check_alerts(about: str, checked: Checked, *, is_verbose: bool) -> Iterator[ReportLine]:
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
