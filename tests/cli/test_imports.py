# SPDX-License-Identifier: Apache-2.0
"""A command imports what it needs and no more: for a short one that is most of its time."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import click
import pytest

from tests.support.recordings import log_file
from tests.support.waiting import SECONDS
from tests.support.wheels import COMMANDS_ONLY

from vllm_watch.cli.command_line import cli


LOG = str(log_file("day"))

CODE = """
import json, sys
before = set(sys.modules)
from vllm_watch.cli.command_line import main
try:
    main(sys.argv[1:])
except SystemExit as ended:
    print(json.dumps([ended.code, sorted(set(sys.modules) - before)]), file=sys.stderr)
"""


def imported(*arguments):
    """Run the command line in a process of its own; return all modules that it imports."""
    command = [sys.executable, "-c", CODE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS)
    status, modules = json.loads(done.stderr)
    assert not status, done.stdout
    return modules


def others(modules):
    """Return which packages of others are among modules."""
    return {name.partition(".")[0] for name in modules} - sys.stdlib_module_names - {"vllm_watch", "vllm_watch_parsers"}


def packages(modules):
    """Return which packages of the daemon are among modules."""
    return {name.split(".")[2] for name in modules if name.startswith("vllm_watch.") and name.count(".") > 1}


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_what_names_no_command_imports_none(arguments):
    """The version and the list of commands need click, and nothing else of others."""
    modules = imported(*arguments)

    assert others(modules) == {"click"}
    assert packages(modules) == {"command_line", "support"}


def test_once_imports_no_server_and_no_client():
    """`once` on a log does not import the daemon, its libraries, or what reads load tests."""
    modules = imported("once", "--log", LOG)

    assert others(modules) <= {"click", "msgspec", "prometheus_client", "typing_extensions"}
    assert packages(modules) == {
        "capacity", "catalog", "command_line", "commands", "config", "exposition", "reading", "replay", "state",
        "statistics", "support",
    }  # fmt: skip
    assert "asyncio" not in modules


def test_check_imports_nothing_that_small_wheels_leave_out():
    """What an installation starts to test itself is in the wheels that the tests install."""
    assert not COMMANDS_ONLY & packages(imported("check", "--log", LOG))


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_the_summary_in_the_list_is_the_commands_own(name):
    """What the list of commands says of a command is the first paragraph of that command's help, under its name."""
    command = cli.commands[name].load()

    assert isinstance(command, click.Command)
    assert command.name == name
    assert inspect.cleandoc(command.help).partition("\n\n")[0] == cli.commands[name].help


def test_every_summary_is_whole_on_a_terminal():
    """The list of commands cuts none of its summaries at 80 columns."""
    with click.Context(cli, info_name="vllm-watch", terminal_width=80) as context:
        assert "..." not in cli.get_help(context).partition("Commands:")[2]
