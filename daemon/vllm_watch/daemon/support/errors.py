# SPDX-License-Identifier: Apache-2.0
"""Errors that a user can correct: each is one sentence that names the place; a command ends with its `exit_code`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar


Code = TypeVar("Code", bound=str)

MAX_MISTAKES = 20
"""How many mistakes of a configuration are shown."""


class VllmWatchError(Exception):
    """Something that a user can correct."""

    exit_code = 2


class UsageError(VllmWatchError):
    """The command line asks for something that is not possible."""


class ConfigError(VllmWatchError):
    """
    The configuration is wrong.

    Args:
        messages: One sentence for each mistake, in the order of the file. As text, each is a line.
    """

    def __init__(self, *messages: str) -> None:
        shown = messages[:MAX_MISTAKES]
        rest = [f"{len(messages) - len(shown)} more mistakes"] if len(messages) > len(shown) else []
        super().__init__("\n".join([*shown, *rest]))
        self.messages = messages


class FileError(VllmWatchError):
    """A log, a recording or an output cannot be read or written, or is not what it should be."""

    exit_code = 1


class PrometheusError(VllmWatchError):
    """A Prometheus cannot be reached, rejects a query, or has not the values that are asked of it."""

    exit_code = 1


class ToolError(VllmWatchError):
    """A program of others that a command needs is missing, too old, or does not do what it should."""

    exit_code = 1


class DaemonError(VllmWatchError):
    """A running vllm-watch cannot be reached, or does not watch what is asked for."""

    exit_code = 1


class WrongDaemonError(DaemonError):
    """What answers is no vllm-watch, or rejects who asks, or does not watch that server: asking again does not help."""


class DiscoveryError(VllmWatchError):
    """There is no server, or no process table to find one in."""

    exit_code = 1


class GrafanaError(VllmWatchError):
    """Grafana cannot be reached, or its response cannot be understood."""

    exit_code = 1


class RejectedError(GrafanaError):
    """
    Grafana rejected one request.

    Args:
        sentence: What it rejected and why.
        status: The HTTP status of its response.
    """

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, the one that caused it, and so on: HTTP libraries wrap what the system reported several times."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def reason_by_cause(error: BaseException, rows: Iterable[tuple[tuple[type[BaseException], ...], Code]]) -> Code | None:
    """Return the reason of the first row that has one of an error's causes, if any has."""
    causes = tuple(causes_of(error))
    return next((reason for types, reason in rows if any(isinstance(cause, types) for cause in causes)), None)
