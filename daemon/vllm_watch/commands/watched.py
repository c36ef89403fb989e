# SPDX-License-Identifier: Apache-2.0
"""What `run` and `check` watch: the servers of a file, those of options, or those that run on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vllm_watch.config.config_file import load_config
from vllm_watch.config.model import Config
from vllm_watch.config.options import config_from_options, with_listen
from vllm_watch.discovery.watcher import ServerWatcher
from vllm_watch.support.clock import SystemClock
from vllm_watch.support.errors import UsageError


class Selection(NamedTuple):
    """The options that select servers."""

    config_file: str | None
    logs: Sequence[str]
    metrics: Sequence[str]
    listen: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no option selects a server, so that those that run on this machine are found."""
        return self.config_file is None and not self.logs and not self.metrics


def configured(selection: Selection) -> Config:
    """
    Return the configuration of a file or of options.

    Raises:
        UsageError, ConfigError: The options or the file are wrong.
    """
    listen = selection.listen
    if selection.config_file is None:
        return config_from_options(selection.logs, selection.metrics, listen)
    if selection.logs or selection.metrics:
        raise UsageError("--config cannot be combined with --log or --metrics")
    config = load_config(selection.config_file)
    return with_listen(config, listen) if listen else config


def discovered(selection: Selection) -> ServerWatcher:
    """Return what finds the servers of this machine."""
    config = Config(servers=())
    return ServerWatcher(SystemClock(), with_listen(config, selection.listen) if selection.listen else config)
