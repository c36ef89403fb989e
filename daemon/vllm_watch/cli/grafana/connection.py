# SPDX-License-Identifier: Apache-2.0
"""Which Grafana a command speaks to, by the values of its options, and the connection that they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import click

from vllm_watch.daemon.config.texts import parse_url
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.secret_files import MAX_TOKEN, parse_token


if TYPE_CHECKING:
    from vllm_watch.cli.grafana.client import Grafana


DEFAULT_URL = "http://localhost:3000"


class Connection(NamedTuple):
    """The values of the options that say which Grafana; `timeout` is the seconds to wait for each part of an answer."""

    url: str
    token_file: str
    ca_file: str | None = None
    timeout: float = 10.0


def connect(target: Connection) -> Grafana:
    """Return the Grafana of a connection; it is asked nothing yet."""
    url = _checked(target.url)
    token = _token(target.token_file)
    if target.ca_file is not None and not Path(target.ca_file).is_file():
        raise UsageError(f"--ca-file: {target.ca_file}: no such file")
    try:
        from vllm_watch.cli.grafana.client import Grafana  # noqa: PLC0415 - An extra, which may be missing.
    except ModuleNotFoundError as error:
        raise UsageError(f"{error.name} is not installed: in the sources, pip install '.[grafana]'") from error
    return Grafana(url, token, target.ca_file, target.timeout)


def _checked(url: str) -> str:
    """Return the URL without a slash at its end."""
    try:
        parsed = parse_url(url, path="", instead="--token-file")
    except ValueError as error:
        raise UsageError(f"--url: {error}") from error
    parts = urlsplit(parsed)
    if parts.query or parts.fragment:
        raise UsageError("--url: expected Grafana's own address, with nothing after its path")
    return parsed.rstrip("/")


def _token(path: str) -> str:
    """Return the token in a file, or from standard input."""
    try:
        with click.open_file(path, "rb") as file:
            token = parse_token(file.read(MAX_TOKEN))
    except OSError as error:
        raise UsageError(f"--token-file: {path}: cannot be read: {error.strerror}") from error
    if token is None or " " in token:
        raise UsageError(f"--token-file: {path}: expected one token and nothing else")
    return token
