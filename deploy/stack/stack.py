# SPDX-License-Identifier: Apache-2.0
"""Starts everything, says where it is, prints what Alertmanager sends, and ends everything."""

from __future__ import annotations

import os
import queue
import tempfile
import time

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import click

from deploy.stack.monitoring import ALERTMANAGER, GRAFANA, PROMETHEUS, VLLM_WATCH, Setting, knows_the_others, programs
from deploy.stack.notifications import PAGE, RESOLVED, WARNING, Line, Notifications, receiver
from deploy.stack.processes import EndedError, Processes, Program, free_ports, pause
from deploy.stack.programs import GRAFANA_SITE, found_programs, how_to_install
from deploy.stack.watched import Options, watched

from vllm_watch.daemon.support.errors import ToolError


USUAL_PORTS: Mapping[str, int] = {VLLM_WATCH: 9468, PROMETHEUS: 9090, ALERTMANAGER: 9093, GRAFANA: 3000}
"""Where each program listens if that port is free: another Prometheus may run as a service."""

START_SECONDS = 120.0
_LOOK_SECONDS = 0.2
_COLORS = {PAGE: "red", WARNING: "yellow", RESOLVED: "green"}
_LINKS = {
    VLLM_WATCH: ("status page", ""),
    PROMETHEUS: ("Prometheus, its alerts", "alerts"),
    ALERTMANAGER: (ALERTMANAGER, ""),
    GRAFANA: (GRAFANA, ""),
}
"""What is printed of each program, and the path of its first page."""

Queue = queue.SimpleQueue[tuple[str, dict[str, Any]]]


def run(options: Options) -> None:
    """
    Run everything until a signal to end comes, which the caller has blocked (`block_signals`).

    Args:
        options: What is watched.

    Raises:
        VllmWatchError: It cannot start, or one of the programs has ended.
    """
    found = found_programs()
    if found.missing:
        raise ToolError(f"missing: {' and '.join(found.missing)}: {how_to_install(*found.missing)}")
    ports = free_ports(
        {name: port for name, port in USUAL_PORTS.items() if name != GRAFANA or found.grafana is not None}
    )
    messages: Queue = queue.SimpleQueue()
    with (
        tempfile.TemporaryDirectory(prefix="vllm-watch-stack-") as folder,
        receiver(lambda to, message: messages.put((to, message))) as url,
        _processes(Path(folder)) as processes,
    ):
        what = watched(options)
        click.echo(f"Watching {what.text}.")
        setting = Setting(Path(folder), ports, what.speed, url)
        command = what.command(ports[VLLM_WATCH], f"http://{setting.address(PROMETHEUS)}")
        all_programs = [*programs(found, setting), Program(VLLM_WATCH, command, ports[VLLM_WATCH], "/-/healthy")]
        try:
            _start(processes, all_programs)
            click.echo("\n".join(_described(all_programs, setting)))
            _follow(processes, messages, what.speed)
        except EndedError:
            click.echo("Ending ...")
    click.echo("All has ended, and nothing is left.")


@contextmanager
def _processes(folder: Path) -> Iterator[Processes]:
    processes = Processes(folder)
    try:
        yield processes
    finally:
        processes.end()


def _follow(processes: Processes, messages: Queue, speed: float) -> None:
    """
    Print what Alertmanager sends.

    Raises:
        EndedError: A signal came.
        ToolError: A program has ended.
    """
    notifications = Notifications(speed)
    while True:
        processes.check()
        while not messages.empty():
            for line in notifications.lines(*messages.get()):
                click.echo(f"{time.strftime('%H:%M:%S')}  {_colored(line)}")
        pause(_LOOK_SECONDS)


def _start(processes: Processes, all_programs: Sequence[Program]) -> None:
    """
    Start all programs; the last one, vllm-watch, when the others look: a replay begins then.

    Raises:
        EndedError: A signal came.
        ToolError: A program cannot start, or has ended.
    """
    click.echo(f"Starting {', '.join(each.name for each in all_programs)} ...")
    *others, daemon = all_programs
    for program in others:
        processes.start(program)
    for program in others:
        _wait(processes, program, program.is_ready)
        if program.name == PROMETHEUS:
            _wait(processes, program, partial(knows_the_others, program.port))
    processes.start(daemon)
    _wait(processes, daemon, daemon.is_ready)


def _wait(processes: Processes, program: Program, condition: Callable[[], bool]) -> None:
    """
    Wait until a program does something.

    Raises:
        EndedError: A signal came first.
        ToolError: A program has ended, or it takes too long.
    """
    until = time.monotonic() + START_SECONDS
    while not condition():
        processes.check()
        pause(_LOOK_SECONDS)
        if time.monotonic() > until:
            said = processes.last_words(program)
            raise ToolError(f"{program.name} is not ready after {START_SECONDS:.0f} s\n{said}".strip())


def _described(started: Sequence[Program], setting: Setting) -> Iterator[str]:
    """Yield lines on where everything is, and what is not as in the shipped files."""
    yield ""
    urls = {program.name: program.url for program in started}
    for name, (text, path) in _LINKS.items():
        if name in urls:
            yield f"  {text:22}  {urls[name]}{path}"
    if GRAFANA not in urls:
        yield f"  {GRAFANA:22}  not installed: {GRAFANA_SITE}"
    yield f"  {'what they write':22}  {setting.folder}/*.log"
    if setting.speed != 1:
        yield ""
        yield f"The replay is {setting.speed:g} times as fast as the server was, so all times of the rules, of scrapes"
        yield f"and of Alertmanager are divided by {setting.speed:g}: alerts come when they would have come."
    yield ""
    yield "What Alertmanager sends is printed here. Ctrl-C ends everything."
    yield ""


def _colored(line: Line) -> str:
    color = None if os.environ.get("NO_COLOR") else _COLORS.get(line.word)
    return str(line) if color is None else click.style(str(line), fg=color, bold=line.word == PAGE)
