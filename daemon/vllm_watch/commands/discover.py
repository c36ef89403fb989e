# SPDX-License-Identifier: Apache-2.0
"""What was found, for people and for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vllm_watch.discovery.command_line import ServeCommand
from vllm_watch.discovery.names import NamedServer
from vllm_watch.discovery.servers import DiscoveredServer, Discovery
from vllm_watch.support.report import ReportLine


_TOLD = {
    "max_num_seqs": "at most {:d} running requests",
    "max_model_len": "at most {:,d} tokens a request",
    "num_speculative_tokens": "{:d} tokens a draft",
    "tensor_parallel_size": "tensor parallel over {:d}",
    "data_parallel_size": "data parallel over {:d}",
    "api_server_count": "{:d} API servers",
}


def lines_of(found: Discovery, named: Sequence[NamedServer]) -> Iterator[ReportLine]:
    """Yield the report, server by server."""
    for name, _, server in named:
        yield ReportLine(f"{name}:")
        yield from _lines_of_server(server)
    yield from found.findings
    if not named:
        yield ReportLine(
            f"No vLLM server found: of the {found.processes} processes that can be seen, none runs vllm serve or "
            "vllm.entrypoints.openai.api_server. A server on another machine is given with --metrics URL.",
            is_wrong=True,
        )


def _lines_of_server(server: DiscoveredServer) -> Iterator[ReportLine]:
    yield ReportLine(f"  process {server.pid} of {server.user}, model {server.command.model_name or 'unknown'}")
    yield ReportLine(f"  metrics: {server.url or 'none'}")
    yield ReportLine(f"  log: {_log(server)}")
    told = _told(server.command)
    if told:
        yield ReportLine(f"  started with: {', '.join(told)}")
    for finding in server.findings:
        mark = "TO CHANGE" if finding.is_wrong else "note"
        yield ReportLine(f"  {mark}: {finding.text}", finding.is_wrong)


def _log(server: DiscoveredServer) -> str:
    return f"the journal of unit {server.journal}" if server.journal is not None else server.log or "none"


def _told(command: ServeCommand) -> list[str]:
    values = command._asdict()
    return [form.format(values[name]) for name, form in _TOLD.items() if values[name] is not None]


def view_of(found: Discovery, named: Sequence[NamedServer]) -> dict[str, Any]:
    """Return the same as plain data: what is not known is not there."""
    return {
        "servers": [_view_of_server(name, server) for name, _, server in named],
        "findings": [finding._asdict() for finding in found.findings],
        "processes": found.processes,
    }


def _view_of_server(name: str, server: DiscoveredServer) -> dict[str, Any]:
    view = {
        "name": name,
        "pid": server.pid,
        "user": server.user,
        "model_name": server.command.model_name or None,
        "metrics": server.url,
        "log": server.log,
        "journal": server.journal,
        "started_with": {name: value for name, value in server.command._asdict().items() if name in _TOLD and value},
        "findings": [finding._asdict() for finding in server.findings],
    }
    return {name: value for name, value in view.items() if value is not None}
