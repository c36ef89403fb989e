# SPDX-License-Identifier: Apache-2.0
"""
The command line.

Exit status: 0 fine, 1 a problem was found or a file cannot be read or written, 2 wrong usage or configuration. Each
command is in a module of its own in ``commands/``, which is imported when the command is used.
"""

from __future__ import annotations

import sys

from collections.abc import Callable, Sequence
from importlib import import_module

import click

from vllm_watch import __version__
from vllm_watch.daemon.support.errors import VllmWatchError
from vllm_watch.daemon.support.printable import printable
from vllm_watch.daemon.support.standard_streams import ReaderGoneError, guard_standard_streams


_SUMMARIES = {
    "run": "Run the daemon until SIGTERM or SIGINT.",
    "once": "Read a finished log, a /metrics or both, and print the result.",
    "check": "Poll each source once; report what works and what is missing.",
    "discover": "List this machine's vLLM servers and where their logs are.",
    "top": "Show servers on this terminal: their states and numbers.",
    "demo": "Run the daemon on a recording of a real server, in a loop.",
    "backfill": "Write a recording or an old log as OpenMetrics, for promtool.",
    "report": "Write a load test in numbers and plots.",
    "compare": "Compare load tests: what is different, and whether it is real.",
    "backtest": "Tell which alerts would have fired over old data, and when.",
    "advise": "Say which flags of vLLM to change, with the evidence.",
    "record": "Record the logs and /metrics of running servers in one file.",
    "grafana": "Put dashboards into Grafana, remove them, or mark load tests.",
    "completion": "Print the script with which a shell completes commands.",
}
"""The first paragraph of each command's help: the list of commands imports none of them."""


class LazyCommand(click.Command):
    """
    Stands for a command in the list of commands, which shows its name and summary.

    Args:
        name: Its name, and that of its module.
        summary: The first paragraph of its help.
    """

    def __init__(self, name: str, summary: str) -> None:
        super().__init__(name, help=summary)

    def load(self) -> click.Command:
        """Import the command."""
        command: click.Command = import_module(f"vllm_watch.cli.commands.{self.name}").command
        return command


class LazyGroup(click.Group):
    """A group that imports a command when it is run, or its own help is asked for."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of the command that was chosen, the command, and its arguments."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


@click.group(
    cls=LazyGroup,
    commands=[LazyCommand(name, text) for name, text in _SUMMARIES.items()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="vllm-watch")
def cli() -> None:
    """Watch vLLM servers: read their logs and /metrics, and export Prometheus series with stable names."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    guard_standard_streams()
    status = _status_of(lambda: _run(arguments))
    # What is still buffered is written here: at exit the interpreter would print a traceback if that fails.
    sys.exit(_status_of(sys.stdout.flush) or status)


def _run(arguments: Sequence[str] | None) -> int | None:
    status: int | None = cli.main(args=arguments, prog_name="vllm-watch", standalone_mode=False)
    return status


def _status_of(action: Callable[[], int | None]) -> int:
    """Do something; print the errors that a user can correct, and return the exit status."""
    try:
        return action() or 0
    except SystemExit as ended:
        return int(ended.code or 0)
    except ReaderGoneError:
        return 0
    except VllmWatchError as error:
        for line in str(error).split("\n"):
            click.echo(f"vllm-watch: {printable(line)}", err=True)
        return error.exit_code
    except OSError as error:
        places = [printable(str(each)) for each in (error.filename, error.filename2) if each is not None]
        click.echo(f"vllm-watch: {': '.join([*places, error.strerror or str(error)])}", err=True)
        return 1
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Aborted!", err=True)
        return 1
