# SPDX-License-Identifier: Apache-2.0
"""The manual page vllm-watch(1): whole, sound for its formatters, and of the present command line."""

from __future__ import annotations

import re

from pathlib import Path

import click
import pytest

from tests.support.processes import run_command

import vllm_watch

from vllm_watch.cli.command_line import LazyCommand, cli


PAGE = Path(__file__).parents[2] / "deploy" / "manual" / "vllm-watch.1"


def shown():
    """Return the page as its source has it, by command, without the formatter's marks."""
    text = re.sub(r"\\f.|\\&", "", PAGE.read_text(encoding="ascii")).replace(r"\-", "-")
    parts = re.split(r'^\.SS "vllm-watch ([a-z ]+)"\n', text.partition('.SH "OPTIONS"')[0], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def commands(command=cli, name=""):
    """Yield every command below the first with its name, loaded."""
    for below in command.commands.values():
        loaded = below.load() if isinstance(below, LazyCommand) else below
        full = f"{name} {below.name}".strip()
        yield full, loaded
        if isinstance(loaded, click.Group):
            yield from commands(loaded, full)


def test_it_has_each_variable_that_top_reads():
    """What a terminal can show is read from the environment: each such variable is in the list."""
    package = Path(vllm_watch.__file__).parent / "cli"
    modules = [*(package / "terminal").glob("*.py"), package / "commands" / "top.py"]
    read = {name for path in modules for name in re.findall(r'environ(?:ment)?\.get\("(\w+)"', path.read_text())}
    listed = PAGE.read_text().partition('.SH "ENVIRONMENT"')[2].partition(".SH ")[0].replace(r"\fB", "")

    assert {"TERM", "LANG", "NO_COLOR"} < read
    assert {name for name in read if not re.search(rf"\b{name}\b", listed)} == set()


def test_it_has_each_command_with_its_options():
    """Every command of the command line is there with every option, also commands below others, and no other is."""
    found = {
        name: {word for line in re.findall(r"\.TP\n(-.*)\n", text) for word in re.findall(r"(?<!\S)--?[a-z-]+", line)}
        for name, text in shown().items()
    }

    assert found == {
        name: {
            option
            for each in command.params
            for option in (*each.opts, *each.secondary_opts)
            if isinstance(each, click.Option)
        }
        for name, command in commands()
    }


@pytest.mark.needs_tool("mandoc")
def test_its_format_is_sound():
    """A strict formatter warns of nothing but the missing date: a page that is made again is the same page."""
    command = ["mandoc", "-T", "lint", "-W", "warning", str(PAGE)]
    run = run_command(*command)
    said = [line for line in (run.stdout + run.stderr).splitlines() if "missing date" not in line]

    assert said == []
