# SPDX-License-Identifier: Apache-2.0
"""
Errors that a person can act on: one sentence that names the place.

    VllmWatchError
    ├── UsageError          wrong use of the command line (exit 2)
    ├── ConfigError         wrong configuration: file, line, key path (exit 2)
    ├── RecordingError      a recording that cannot be replayed (exit 2)
    ├── DiscoveryError      no process table to find servers in (exit 1)
    └── GrafanaError        Grafana cannot be reached, or does not do what it is asked (exit 1)
        └── RejectedError        it refused one request; others may go well (exit 1)
"""

from __future__ import annotations


class VllmWatchError(Exception):
    """Something that a person can put right."""

    exit_code = 2


class UsageError(VllmWatchError):
    """The command line asks for something that cannot be."""


class ConfigError(VllmWatchError):
    """The configuration is wrong."""


class RecordingError(VllmWatchError):
    """A recording is incomplete or none."""


class DiscoveryError(VllmWatchError):
    """There is nothing in which servers could be found."""

    exit_code = 1


class GrafanaError(VllmWatchError):
    """Grafana cannot be reached or understood."""

    exit_code = 1


class RejectedError(GrafanaError):
    """
    Grafana refused one request.

    Args:
        sentence: What it refused and why.
        status: The HTTP status of its answer.
    """

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status
