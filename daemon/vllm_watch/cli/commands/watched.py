# SPDX-License-Identifier: Apache-2.0
"""What `run` and `check` watch: the servers of a file, those of options, or those that run on this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from vllm_watch.cli.commands.options import as_one, config_option, log_option, metrics_option
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.from_options import config_from_options, with_listen, with_prometheus
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.watched_processes import WatchedProcesses
from vllm_watch.daemon.discovery.watcher import ServerWatcher
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import UsageError


class Selection(NamedTuple):
    """The options that select servers, and those that stand in for keys of the configuration."""

    config_file: str | None
    logs: Sequence[str]
    metrics: Sequence[str]
    listen: str | None = None
    prometheus: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no option selects a server, so that those that run on this machine are found."""
        return self.config_file is None and not self.logs and not self.metrics


def selection_options(*others: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that gives a command these options, and those that select servers, as one `selection`."""
    return as_one("selection", Selection, config_option, log_option, metrics_option, *others)


def configured(selection: Selection) -> Config:
    """Return the configuration of a file or of options."""
    if selection.config_file is None:
        return _with_keys(config_from_options(selection.logs, selection.metrics, None), selection)
    if selection.logs or selection.metrics:
        raise UsageError("--config cannot be combined with --log or --metrics")
    return _with_keys(load_config(selection.config_file), selection)


def configured_now(selection: Selection) -> Config:
    """Return the same, with the pods that there are now; it is a `DiscoveryError` if there is none."""
    config = configured(selection)
    if config.kubernetes is None:
        return config
    from vllm_watch.cli.commands.pods_check import with_pods_now  # noqa: PLC0415  # Only this one needs it.

    return with_pods_now(config)


def with_command_lines(config: Config) -> Config:
    """Return a configuration whose servers have the facts on the command line of their process, if it runs here."""
    running = WatchedProcesses().running(config.servers, SystemClock().now())
    own = {} if running is None else running.servers
    servers = [replace(each, command=own[each.name].command) if each.name in own else each for each in config.servers]
    return replace(config, servers=tuple(servers))


def discovered(selection: Selection) -> ServerWatcher:
    """Return what finds the servers of this machine."""
    return ServerWatcher(SystemClock(), _with_keys(Config(servers=()), selection))


def _with_keys(config: Config, selection: Selection) -> Config:
    if selection.listen:
        config = with_listen(config, selection.listen)
    return with_prometheus(config, selection.prometheus) if selection.prometheus else config
