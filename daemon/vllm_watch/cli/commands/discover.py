# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch discover``: the servers of this machine, as text, as JSON, or as a configuration."""

from __future__ import annotations

import json
import sys

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from vllm_watch.cli.commands.options import file_option, plain_format_option, say
from vllm_watch.cli.commands.server_check import unopened_gpus, unread_gpus
from vllm_watch.daemon.catalog.reasons import GPU, GpuReason
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.config_writer import configuration_of, is_writable, write_configuration
from vllm_watch.daemon.discovery.processes import Proc
from vllm_watch.daemon.discovery.servers import DiscoveredServer, Discovery, find_servers, with_names
from vllm_watch.daemon.exposition.json_view import gpu_document
from vllm_watch.daemon.service.gpus import read_once
from vllm_watch.daemon.state.gpu_report import is_instance
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.logging_setup import configure_log
from vllm_watch.daemon.support.printable import PlainFormat, ReportLine, print_report


@click.command("discover")
@plain_format_option
@file_option("--write", "file", help="Write a configuration for run --config with what was found.")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
def command(form: PlainFormat, file: str | None, *, force: bool) -> None:
    """
    List this machine's vLLM servers and where their logs are.

    It also says what to change to see more of them.
    """
    if force and file is None:
        raise UsageError("--force requires --write FILE")
    configure_log("error")
    sys.exit(1 if discover(form, file, force=force) else 0)


def discover(form: PlainFormat, file: str | None, *, force: bool) -> bool:
    """Print the servers of this machine, and write a configuration of them; return whether something is wrong."""
    proc = Proc()
    found = find_servers(proc, proc.processes())
    named = with_names(found.servers)
    gpus = read_once(Config(servers=tuple(each.config for each in named)), SystemClock())
    report = [*lines_of(found, named, gpus.uses), *unopened_gpus(gpus.unopened), *unread_gpus()]
    if form == "json":
        click.echo(json.dumps(view_of(found, named, gpus.uses), indent=2))
    else:
        print_report(report)
    if file is not None:
        _write(file, named, force=force)
    return any(line.is_wrong for line in report)


def _write(file: str, named: Sequence[DiscoveredServer], *, force: bool) -> None:
    if any(is_writable(server) for server in named):
        write_configuration(Path(file), configuration_of(named), force=force)
        text = f"{file} is written; vllm-watch run --config reads it"
    else:
        text = f"no server that can be watched was found, so {file} was not written"
    say(text)


def lines_of(found: Discovery, named: Sequence[DiscoveredServer], gpus: Mapping[str, GpuUse]) -> Iterator[ReportLine]:
    """Yield the report, server by server; `gpus` are what they use, by their names."""
    for server in named:
        yield ReportLine(f"{server.name}:")
        yield from _lines_of_server(server, gpus.get(server.name))
    yield from found.findings
    if not named:
        yield ReportLine(
            f"No vLLM server found: of the {found.processes} processes that can be seen, none runs vllm serve or "
            "vllm.entrypoints.openai.api_server. A server on another machine is given with --metrics URL.",
            is_wrong=True,
        )


def _lines_of_server(server: DiscoveredServer, gpus: GpuUse | None) -> Iterator[ReportLine]:
    yield ReportLine(f"  process {server.pid} of {server.user}, model {server.command.model_name or 'unknown'}")
    yield ReportLine(f"  metrics: {server.url or 'none'}")
    yield ReportLine(f"  log: {_log(server)}")
    if gpus is not None and gpus.reason is not None:
        yield ReportLine(f"  GPUs: {_gpus(gpus, gpus.reason)}")
    flags = [f"{flag} {value}" for flag, value in server.command.flags or ()]
    if flags:
        yield ReportLine(f"  flags: {', '.join(flags)}")
    for finding in server.findings:
        mark = "TO CHANGE" if finding.is_wrong else "note"
        yield ReportLine(f"  {mark}: {finding.text}", finding.is_wrong)


def _log(server: DiscoveredServer) -> str:
    return f"the journal of unit {server.journal}" if server.journal is not None else server.log or "none"


def _gpus(use: GpuUse, reason: GpuReason) -> str:
    """Return the GPUs of a server by their numbers and models, or why they are not known; instances by their UUIDs."""
    known = [each.reading for each in use.gpus if each.reading is not None]
    names = (f"{each.gpu if is_instance(each.gpu) else each.number} ({each.name})" for each in known)
    return ", ".join(names) or GPU[reason].short


def view_of(found: Discovery, named: Sequence[DiscoveredServer], gpus: Mapping[str, GpuUse]) -> dict[str, Any]:
    """Return the report as plain data; what is not known is absent. `gpus` are what servers use, by their names."""
    return {
        "servers": [_view_of_server(server, gpus.get(server.name)) for server in named],
        "findings": _views_of(found.findings),
        "processes": found.processes,
    }


def _views_of(findings: Iterable[ReportLine]) -> list[dict[str, Any]]:
    return [{"text": finding.text, "is_wrong": finding.is_wrong} for finding in findings]


def _view_of_server(server: DiscoveredServer, gpus: GpuUse | None) -> dict[str, Any]:
    view = {
        "name": server.name,
        "pid": server.pid,
        "user": server.user,
        "model_name": server.command.model_name or None,
        "metrics": server.url,
        "log": server.log,
        "journal": server.journal,
        "flags": dict(server.command.flags or ()),
        "gpus": msgspec.to_builtins(list(map(gpu_document, gpus.gpus))) if gpus is not None and gpus.gpus else None,
        "findings": _views_of(server.findings),
    }
    return {name: value for name, value in view.items() if value is not None}
