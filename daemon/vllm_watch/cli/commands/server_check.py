# SPDX-License-Identifier: Apache-2.0
"""What `check` finds about a server: its sources are read once, and reported."""

from __future__ import annotations

import glob
import os
import time

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from vllm_watch.cli.commands.silent_alerts import Silent, silent_alerts
from vllm_watch.daemon.catalog.codes import CAPACITY_BASES
from vllm_watch.daemon.catalog.gpu_texts import NOT_SHOWN, STATE_PROBLEMS, GpuState
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES, SourceName, explain, standing
from vllm_watch.daemon.catalog.states import STATES, meaning
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.discovery.watched_processes import Running, WatchedProcesses
from vllm_watch.daemon.exposition.findings import Finding, findings
from vllm_watch.daemon.exposition.json_view import as_document
from vllm_watch.daemon.gpu.reader import has_module
from vllm_watch.daemon.service.gpus import read_once
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.sources.kernel_log import has_gpu_driver
from vllm_watch.daemon.state.gpu_report import ServerGpu, is_instance
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.kept_facts import RunningServer
from vllm_watch.daemon.state.snapshot import (
    Configuration,
    EngineSnapshot,
    ServerSnapshot,
    SourceSnapshot,
)
from vllm_watch.daemon.state.xid_events import KernelLogStatus
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.printable import ReportLine


CHECK_SECONDS = 600.0
"""The GPUs are read before the first server: what was read of them is current while the others are checked."""

ANSWER_SECONDS = 2.0
"""How long to wait for the first lines of a program, such as journalctl."""

_PAUSE_SECONDS = 0.02

_FACTS = {
    "kv_cache_capacity_tokens": "KV cache of {:,.0f} tokens",
    "max_concurrency": "room for {:.2f} requests of full length",
    "max_running_requests": "at most {:.0f} running requests",
    "max_model_len_tokens": "at most {:,.0f} tokens a request",
    "num_speculative_tokens": "{:.0f} tokens a draft",
    "num_speculative_tokens_least": "only {:.0f} in a large batch",
}
_THROUGH_RAY = "    through Ray's agent: an engine without work cannot be told from one that is stalled or has ended"
_HOW = {"pid": "by its processes", "config": "by the configuration"}
_MIG = "It is divided into instances (MIG): how busy the whole is, is not reported."
_HIDDEN = "the driver does not open it for this user or in this container, so it is not read."
NO_EXTRA = (
    "GPUs: not read, because the extra gpu is not installed: in the sources, pip install '.[gpu]'. Without it the "
    "series of another exporter can be used; `gpu: off` in the configuration says that none are wanted."
)


class CheckedServer(NamedTuple):
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
    writer: RunningServer | None = None
    """Its process on this machine, if that writes its log into another file than the configured one."""


def check_servers(
    config: Config, kernel_log: KernelLogStatus | None
) -> tuple[list[CheckedServer], Mapping[int, GpuState | None]]:
    """Read each source of all servers once; return also the GPUs that the driver has and does not open here."""
    processes = WatchedProcesses()
    gpus = read_once(config, SystemClock(), processes)
    running = processes.running(config.servers, SystemClock().now())
    checked = [_checked(config, server, gpus.uses[server.name], running, kernel_log) for server in config.servers]
    return checked, gpus.unopened


def _writes_elsewhere(config: ServerConfig, process: RunningServer | None) -> RunningServer | None:
    """Return a server's process if the file that it writes its log into is not the configured one."""
    if process is None or process.log is None or config.log is None:
        return None
    try:
        written = Path(process.log).stat()
        is_here = any(os.path.samestat(written, Path(each).stat()) for each in glob.glob(config.log))  # noqa: PTH207
    except OSError:
        return None  # It was deleted or renamed meanwhile, or cannot be looked at.
    return None if is_here else process


def _checked(
    whole: Config, config: ServerConfig, gpus: GpuUse, running: Running | None, kernel_log: KernelLogStatus | None
) -> CheckedServer:
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
        silent, limited = silent_alerts(config, snapshot, *server.foresee(), has_kernel_log=has_kernel_log)
        writer = _writes_elsewhere(config, process)
        return CheckedServer(config, whole.files.get(config.name), snapshot, silent, limited, no_process, writer)
    finally:
        server.close()


def server_lines(checked: CheckedServer) -> Iterator[ReportLine]:
    """Yield the report on a server."""
    snapshot = checked.snapshot
    found = list(findings(as_document(snapshot)))
    for source in snapshot.sources:
        yield from _check_source(checked, source)
        yield from (_found(each, "    ") for each in found if each.source == source.source)
    yield from _flags(snapshot.configuration, checked.no_process)
    read = {source.source for source in snapshot.sources}
    yield from (_found(each, "  ") for each in found if each.source not in read)
    for engine in snapshot.engines:
        yield from _check_engine(engine)


def _read_log(server: ServerMonitor) -> None:
    """Read a log to its end, or what a program prints within a few seconds."""
    end = time.monotonic() + ANSWER_SECONDS
    while server.log is not None and (server.log.poll() or (server.log.is_waiting and time.monotonic() < end)):
        if server.log.is_waiting:
            time.sleep(_PAUSE_SECONDS)


def _check_source(checked: CheckedServer, source: SourceSnapshot) -> Iterator[ReportLine]:
    config, snapshot, writer = checked.config, checked.snapshot, checked.writer
    word: str = standing(source.source, source.reason, is_up=source.is_up, is_stopped=snapshot.is_stopped)
    text = explain(source.source, source.reason, is_stopped=snapshot.is_stopped)
    if source.source == "log" and writer is not None:
        word = "FAILED"
        text = f"Its process {writer.process.pid} writes its log to {writer.log} and not here: vLLM keeps a file "
        text += "open that was renamed. Start it again, and rotate with copytruncate."
    name = f"{SOURCE_NAMES[source.source]} {_address(config, source.source)}".rstrip()
    yield ReportLine(f"  {name}: {word}. {text}", word == "FAILED")
    if source.source == "gpu":
        yield from gpu_lines(snapshot.gpus, config.gpus if source.is_up else ())
    if source.engine_kind == "ray_vllm":
        yield ReportLine(_THROUGH_RAY)
    if source.source == "log" and source.is_up and snapshot.version is not None:
        yield ReportLine(f"    vLLM {snapshot.version}, model {snapshot.model_name or 'unknown'}")
    if snapshot.probe is not None and source.source == "probe" and snapshot.probe.first_token_seconds is not None:
        yield ReportLine(f"    time to first token: {snapshot.probe.first_token_seconds:.3f} s")


def _address(config: ServerConfig, source: SourceName) -> str:
    if source == "log":
        return f"of unit {config.journal}" if config.journal is not None else config.log or ""
    if source == "probe":
        return config.probe_url or ""
    if source == "gpu":
        return ", ".join(config.gpus)
    return config.metrics.url if config.metrics else ""


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


def _check_engine(engine: EngineSnapshot) -> Iterator[ReportLine]:
    # A server that was stopped on purpose is wrong, too: it answers no request.
    yield ReportLine(f"  engine {engine.key.engine}: {engine.state}", is_wrong=engine.state == "down")
    if engine.state == "sleeping":
        yield ReportLine(f"    {STATES[engine.state].text}")
    if engine.cause is not None:
        is_wrong = engine.state in {"stalled", "down"}
        yield ReportLine(f"    {meaning(engine.state, engine.cause)}", is_wrong=is_wrong)
    facts = [form.format(engine.facts[name]) for name, form in _FACTS.items() if name in engine.facts]
    yield ReportLine(f"    configuration: {', '.join(facts) or 'unknown'}")
    for basis, known in engine.capacity.ranges.items():
        most = f"{known.tokens_per_second:,.0f} ({known.low:,.0f} to {known.high:,.0f}) tokens/s"
        yield ReportLine(f"    capacity: {most}, {CAPACITY_BASES[basis]}")


def gpu_lines(gpus: Sequence[ServerGpu], named: Collection[str] = ()) -> Iterator[ReportLine]:
    """
    Yield what is known of each GPU of a server, below the line of the source; what is wrong is a finding.

    Args:
        gpus: Those that are known.
        named: How its configuration calls them.
    """
    for used in gpus:
        reading = used.reading
        if reading is None:
            yield ReportLine(f"    {used.gpu}, {_HOW[used.how]}: not read", is_wrong=False)
            continue
        shared = ", used by another server, too" if used.is_shared else ""
        # Instances of one GPU have its number.
        name = f"{used.gpu} of GPU {reading.number}" if is_instance(used.gpu) else f"GPU {reading.number}"
        yield ReportLine(f"    {name}, {reading.name}, {_HOW[used.how]}: driver {reading.driver_version}{shared}")
        if reading.mig == "1" and not is_instance(used.gpu):
            yield ReportLine(f"      {_MIG}")

    for name in named:
        if not any(_is_called(used, name) for used in gpus):
            yield ReportLine(f"    GPU {name}, {_HOW['config']}: {NOT_SHOWN}", is_wrong=True)


def unopened_gpus(unopened: Mapping[int, GpuState | None]) -> Iterator[ReportLine]:
    """Yield the GPUs of the machine that the driver does not open; one that is only hidden is nothing wrong."""
    for number, state in sorted(unopened.items()):
        problem = _HIDDEN if state is None else STATE_PROBLEMS[state]
        yield ReportLine(f"GPU {number}, whose server is not known: {problem}", is_wrong=state is not None)


def unread_gpus() -> Iterator[ReportLine]:
    """Yield that this machine has a driver which nobody reads."""
    if has_gpu_driver() and not has_module():
        yield ReportLine(NO_EXTRA)


def _is_called(used: ServerGpu, name: str) -> bool:
    reading = used.reading
    return used.gpu == name or (reading is not None and name in {str(reading.number), reading.pci_bus_id})
