# SPDX-License-Identifier: Apache-2.0
"""Discovered servers as a configuration file for ``run --config``."""

from __future__ import annotations

import glob
import sys

from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from vllm_watch.daemon.config.texts import DEFAULT_LISTEN
from vllm_watch.daemon.discovery.servers import DiscoveredServer
from vllm_watch.daemon.support.errors import FileError, UsageError
from vllm_watch.daemon.support.printable import printable


def configuration_of(servers: Sequence[DiscoveredServer]) -> str:
    """Return a configuration with the findings as comments. It contains no key and no token."""
    return "".join(f"{line}\n" for line in _lines(servers))


def is_writable(server: DiscoveredServer) -> bool:
    """Whether a configuration can name a source of a server."""
    return any((server.url, server.journal, server.lasting_log))


def _lines(servers: Sequence[DiscoveredServer]) -> Iterator[str]:
    yield "# Written by vllm-watch discover. Validate it with: vllm-watch check --config FILE"
    yield f"listen: {DEFAULT_LISTEN}"
    yield "# checkpoint: /var/lib/vllm-watch/checkpoint.json"
    yield "servers:"
    for each in servers:
        yield from _lines_of_server(each)


def _lines_of_server(server: DiscoveredServer) -> Iterator[str]:
    if is_writable(server):
        yield f"  - name: {_text(server.name)}"
    else:
        yield f"  # {printable(server.name)}: it has no source that can be configured."
    for finding in server.findings:
        yield f"    # {printable(finding.text)}"
    yield from _lines_of_log(server)
    if server.url is None:
        return
    yield "    metrics:"
    yield f"      url: {_text(server.url)}"
    if server.command.uses_tls:
        yield "      # tls: {ca_file: /path/ca.pem}"
    yield "    # probe:  # requests one token regularly and measures how long a user would wait"
    yield "    #   every: 60s"
    if server.command.needs_api_key:
        yield "    #   api_key_file: /path/key"


def _lines_of_log(server: DiscoveredServer) -> Iterator[str]:
    """Yield the log by the path that lasts, or why it is not given."""
    if server.journal is not None:
        yield f"    log: {{journal: {_text(server.journal)}}}"
    elif server.lasting_log is not None:
        if server.lasting_log != server.log:
            yield f"    # Its log was renamed: until it is started again it writes to {printable(server.log or '')}."
        yield f"    log: {_text(glob.escape(server.lasting_log))}"
    elif server.log is not None:
        yield f"    # Its log {printable(server.log)} has this name only while it runs, or does not print."


def _text(text: str) -> str:
    """Return a text as YAML: in quotes, on one line, in ASCII."""
    return str(yaml.safe_dump(text, default_style='"', width=sys.maxsize)).rstrip("\n")


def write_configuration(path: Path, content: str, *, force: bool) -> None:
    """
    Write a configuration.

    Raises:
        UsageError: It exists already, and `force` is not given.
        FileError: It cannot be written.
    """
    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(content)
    except FileExistsError:
        raise UsageError(f"--write: {path} exists already; --force overwrites it") from None
    except OSError as error:
        raise FileError(f"--write: {path}: {(error.strerror or str(error)).lower()}") from None
