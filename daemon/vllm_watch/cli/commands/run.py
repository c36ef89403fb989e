# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch run``: the daemon."""

from __future__ import annotations

from importlib.util import find_spec

import click

from vllm_watch.cli.commands.options import listen_option, log_format_option, log_level_option
from vllm_watch.cli.commands.watched import Selection, configured, discovered, selection_options
from vllm_watch.daemon.catalog.codes import LogFormat, LogLevel
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.service.otlp import is_installed
from vllm_watch.daemon.service.supervisor import run_service
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.logging_setup import configure_log, hold_standard_streams


@click.command("run")
@selection_options(
    listen_option,
    click.option(
        "--prometheus",
        metavar="URL",
        help="The Prometheus whose alerts are shown, in place of that of the configuration.",
    ),
)
@log_level_option
@log_format_option
def command(selection: Selection, log_level: LogLevel, log_format: LogFormat | None) -> None:
    """
    Run the daemon until SIGTERM or SIGINT.

    With --config, SIGHUP reads the file again. Without --config, --log and --metrics it watches the vLLM servers that
    run on this machine, also those that start later; SIGHUP makes it search for them at once.
    """
    hold_standard_streams()
    configure_log(log_level, log_format)
    run_daemon(selection)


def run_daemon(selection: Selection) -> None:
    """Watch the selected servers until a signal ends the daemon."""
    if selection.is_empty:
        follower = discovered(selection)
        run_service(follower.poll(), SystemClock(), follower=follower)
        return

    def load() -> Config:
        config = configured(selection)
        _check_extras(config)
        return config

    run_service(load(), SystemClock(), load if selection.config_file is not None else None)


def _check_extras(config: Config) -> None:
    """Check that the extras are there without which a configuration does nothing."""
    wanted = {
        "otlp": config.otlp is not None and not is_installed(),
        "kubernetes": config.kubernetes is not None and find_spec("lightkube") is None,
    }
    for extra, is_missing in wanted.items():
        if is_missing:
            raise UsageError(f"{extra}: the extra {extra} is not installed: in the sources, pip install '.[{extra}]'")
