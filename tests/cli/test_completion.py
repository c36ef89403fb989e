# SPDX-License-Identifier: Apache-2.0
"""What a shell completes: commands, options, choices and file names; at last in the shells themselves."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys

import click
import pytest

from click.shell_completion import ShellComplete
from tests.support.command_line import vllm_watch
from tests.support.waiting import SECONDS, ends_within

from vllm_watch.cli.command_line import LazyCommand, cli


OF_FILES = re.compile(r"FILE|PATH|DIR|SOURCE|COMMAND|A B")
"""In the metavar of what takes files."""


def completed(line):
    """Return what completes a line, as (type, value); the last word is incomplete."""
    _, *words, begun = line.split(" ")
    found = ShellComplete(cli, {}, "vllm-watch", "").get_completions(words, begun)
    return [(each.type, each.value) for each in found]


def parameters(command=cli, name=""):
    """Yield every parameter of every command, with the command's name."""
    command = command.load() if isinstance(command, LazyCommand) else command
    for parameter in command.params:
        yield name, parameter
    if isinstance(command, click.Group):
        for below in command.commands.values():
            yield from parameters(below, f"{name} {below.name}".strip())


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("vllm-watch re", ["record", "report"]),
        ("vllm-watch grafana p", ["push"]),
        ("vllm-watch report --obj", ["--objective"]),
        ("vllm-watch grafana push --lang", ["--language"]),
        ("vllm-watch report --format ", ["text", "markdown", "json", "html"]),
        ("vllm-watch report --format=j", ["json"]),
        ("vllm-watch completion ", ["bash", "zsh", "fish"]),
    ],
)
def test_commands_options_and_choices_are_completed(line, values):
    """Also those of commands that are imported for it, and of commands below others."""
    assert [("plain", value) for value in values] == completed(line)


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_what_takes_files_is_completed_with_file_names(name):
    """Each option or argument whose placeholder names files, and no other, has files completed."""
    context = click.Context(click.Command("any"))
    found = {
        (command, parameter.name): [each.type for each in parameter.shell_complete(context, "a")]
        for command, parameter in parameters(cli.commands[name], name)
        if not isinstance(parameter.type, click.Choice)
    }
    wanted = {
        (command, parameter.name): ["file"] if OF_FILES.search(parameter.make_metavar(context)) else []
        for command, parameter in parameters(cli.commands[name], name)
        if (command, parameter.name) in found
    }

    assert wanted == found


SETTINGS = {
    "bash": 'eval "$(vllm-watch completion bash)"\nPS1=READY\n',
    "zsh": "fpath=($PWD $fpath)\nautoload -U compinit\ncompinit -u -D\nbindkey -e\nPS1=READY\n",
}
TO_START, TO_END, ALL_MATCHES = "\x01", "\x05", "\x1b*"
"""Keys as in Emacs, which bash and zsh have by default."""


@pytest.fixture
def folder(tmp_path):
    """A folder with the program, a log, and the settings of the shells; no settings of this machine are read."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "vllm-watch"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m vllm_watch "$@"\n')
    program.chmod(0o755)
    (tmp_path / "run one.log").touch()
    (tmp_path / "bashrc").write_text(SETTINGS["bash"])
    (tmp_path / ".zshrc").write_text(SETTINGS["zsh"])
    (tmp_path / "_vllm-watch").write_text(vllm_watch("completion", "zsh").stdout)
    return tmp_path


def environment(folder):
    """Return the environment of a shell whose home is a folder."""
    own = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "dumb"}
    return {**os.environ, **own, "HOME": str(folder), "ZDOTDIR": str(folder)}


def typed(folder, command, lines):
    """
    Type into a shell in a terminal; return what the shell takes each line for, and what it has shown.

    Each line is completed by its last key and then, in place of being run, written to a file.
    """
    ours, theirs = pty.openpty()
    keys = "".join(f"{line}{TO_START}printf '%s;' {TO_END} >> taken; echo >> taken\n" for line in lines) + "exit\n"
    shell = subprocess.Popen(
        command, cwd=folder, env=environment(folder), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    with shell:
        try:
            with ends_within(SECONDS):
                while b"READY" not in shown:
                    shown += os.read(ours, 4096)
                os.write(ours, keys.encode())
                with contextlib.suppress(OSError):  # Nobody has the terminal any more: the shell has ended.
                    while True:
                        shown += os.read(ours, 4096)
        finally:
            os.close(ours)  # That ends a shell that is still there.
    return (folder / "taken").read_text().split(";\n")[:-1], shown.decode()


LINES = {
    "vllm-watch rep\t": "vllm-watch;report",
    "vllm-watch grafana push --lang\t": "vllm-watch;grafana;push;--language",
    "vllm-watch grafana push --language z\t": "vllm-watch;grafana;push;--language;zh",
    "vllm-watch grafana push --ca-file run\t": "vllm-watch;grafana;push;--ca-file;run one.log",
}
"""What is typed, and what a shell takes it for."""


@pytest.mark.slow
@pytest.mark.needs_tool("bash")
def test_bash_completes(folder):
    """In bash without bash-completion: commands, an option, a choice, and a file whose name has a space."""
    taken, _ = typed(
        folder, ["bash", "--noprofile", "--rcfile", "bashrc", "-i"], [f"vllm-watch re{ALL_MATCHES}", *LINES]
    )

    assert taken == ["vllm-watch;record;report", *LINES.values()]


@pytest.mark.slow
@pytest.mark.needs_tool("zsh")
def test_zsh_completes(folder):
    """In zsh, from a folder of functions: commands with their summaries, an option, a choice, and a file."""
    taken, shown = typed(folder, ["zsh", "-d", "-i"], ["vllm-watch re\t", *LINES])

    assert taken == ["vllm-watch;re", *LINES.values()]
    assert re.search("record +-- Record the logs and /metrics", shown)


@pytest.mark.slow
@pytest.mark.needs_tool("fish")
def test_fish_completes(folder):
    """In fish: commands with their summaries, an option, a choice, and a file."""
    begun = ["re", "grafana push --lang", "grafana push --language z", "grafana push --ca-file run"]
    script = "\n".join(
        ["vllm-watch completion fish | source", *(f"complete -C 'vllm-watch {each}'; echo @" for each in begun)]
    )
    fish = subprocess.run(
        ["fish", "--no-config", "--command", script],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS,
    )
    found = [[each.split("\t")[0] for each in part.split("\n") if each] for part in fish.stdout.split("@\n")[:-1]]

    assert found == [["record", "report"], ["--language"], ["zh"], ["run one.log"]]
