# SPDX-License-Identifier: Apache-2.0
"""
`make stack`: vllm-watch, Prometheus, Alertmanager and, where it is installed, Grafana on this machine's loopback.

Exit status: 0 after Ctrl-C or another signal to end, 1 if something cannot start or has ended, 2 for wrong usage.
"""

# ruff: noqa: E402 - Ctrl-C while the rest is imported waits, too.

from __future__ import annotations

from deploy.stack.processes import block_signals


block_signals()

import io
import sys

from typing import Any

import click

from deploy.stack.stack import run
from deploy.stack.watched import Options

from vllm_watch.cli.commands.options import PLAYBACK_SPEED
from vllm_watch.daemon.support.errors import VllmWatchError
from vllm_watch.daemon.support.printable import printable
from vllm_watch.daemon.support.standard_streams import ReaderGoneError, guard_standard_streams


_SPEED = click.FloatRange(0.1, 20)
"""At the highest, vllm-watch is scraped every 250 ms, and has 6 s to start before it counts as gone."""


@click.command("stack", context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--recording", envvar="RECORDING", show_envvar=True, metavar="FILE", help="Replay a recorded server.")
@click.option("--server", envvar="SERVER", show_envvar=True, metavar="NAME", help="Which one, if there are several.")
@click.option(
    "--speed",
    envvar="SPEED",
    show_envvar=True,
    type=_SPEED,
    help=f"Of the replay; the rules' times are divided by it. 1 is real time.  [default: {PLAYBACK_SPEED:g}]",
)
@click.option("--log", envvar="LOG", show_envvar=True, metavar="PATH", help="Watch a real server by its log, …")
@click.option("--metrics", envvar="METRICS", show_envvar=True, metavar="URL", help="… its /metrics, or both.")
@click.option("--here", envvar="HERE", show_envvar=True, is_flag=True, help="Watch the vLLM servers of this machine.")
def command(**options: Any) -> None:  # noqa: ANN401 - Each as click has parsed it.
    """
    See everything with one command, on this machine's loopback.

    Without options it replays the recorded server of the package. Nothing is kept: Ctrl-C ends everything.
    """
    run(Options(**options))


def main() -> int:
    """Run the command; print the errors that a user can correct, and return the exit status."""
    guard_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # A server's name may be in a script that the terminal lacks.
    try:
        command.main(standalone_mode=False)
        sys.stdout.flush()
    except ReaderGoneError:
        return 1
    except VllmWatchError as error:
        for line in str(error).split("\n"):
            click.echo(f"stack: {printable(line)}", err=True)
        return error.exit_code
    except OSError as error:
        click.echo(f"stack: {printable(error.filename or '')}: {error.strerror}", err=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
