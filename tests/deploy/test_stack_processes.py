# SPDX-License-Identifier: Apache-2.0
"""`make stack` starts everything or says why not, and whatever ends it, nothing is left."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import uuid

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.leftovers import marked
from tests.support.monitoring import get_text
from tests.support.processes import run_command
from tests.support.waiting import SECONDS, until


ROOT = Path(__file__).parents[2]
STAND_IN = Path(__file__).with_name("stand_in_monitoring.py")
PROGRAMS = ("prometheus", "prometheus-alertmanager", "grafana")
SPEED = 10
RECORDED_SECONDS = 600
MARK = "VLLM_WATCH_TEST_STACK"


class Started(NamedTuple):
    """A stack: its process, what it has printed so far, and where its files are."""

    process: subprocess.Popen
    output: Path
    temporary: Path
    mark: str

    @property
    def text(self) -> str:
        """What it has printed."""
        return self.output.read_text()

    def wait_for(self, text: str, seconds: float = SECONDS) -> None:
        """Wait until it has printed something."""
        until(lambda: text in self.text or self.process.poll() is not None, seconds, lambda: self.text)
        assert text in self.text, self.text

    def ended(self) -> int:
        """Wait until it has ended, with everything that it started; return its exit status."""
        status = self.process.wait(SECONDS)
        until(lambda: not self.left(), what=lambda: (self.left(), self.text))
        return status

    def left(self) -> list[str]:
        """Return its processes that are there, and its files, which stay only if it was killed."""
        files = [] if self.process.returncode == -signal.SIGKILL else self.temporary.iterdir()
        return [*map(str, marked(self.mark, MARK)), *map(str, files)]

    def pids(self, argument: str) -> list[int]:
        """Return its processes that were started with an argument."""
        return [
            pid
            for pid in marked(self.mark, MARK)
            if argument.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        ]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with stand-ins for all programs in ``bin``, and an empty one, ``temporary``."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "temporary").mkdir()
    for program in PROGRAMS:
        path = tmp_path / "bin" / program
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S {shlex.quote(str(STAND_IN))} "$0" "$@"\n')
        path.chmod(0o755)
    return tmp_path


@pytest.fixture
def start(folder):
    """Return what starts the stack with the stand-ins."""
    running = []

    def start(*command: str, path: str = "", cwd: Path = ROOT, **variables: str) -> Started:
        mark = uuid.uuid4().hex
        environment = {**os.environ, "PATH": path or f"{folder / 'bin'}:{os.environ['PATH']}"}
        environment |= {"TMPDIR": str(folder / "temporary"), MARK: mark, **variables}
        output = folder / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                command if command[:1] == ("make",) else [sys.executable, "-m", "deploy.stack", *command],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        running.append(Started(process, output, folder / "temporary", mark))
        return running[-1]

    yield start
    for each in running:
        each.process.terminate()
        each.ended()


@pytest.mark.slow
@pytest.mark.needs_tool("git", "make", "prometheus", "prometheus-alertmanager")
def test_the_page_of_a_recorded_overload_arrives_and_is_resolved(start, folder):
    """`make stack` in a fresh clone, with the real programs: a page comes and its end, and Ctrl-C ends everything."""
    tree = cloned(folder / "tree")
    stack = start(
        *("make", "--old-file=.venv/installed", f"BIN={Path(sys.executable).parent}", "stack"),
        "ARGS=",  # A make that runs the tests hands its own on.
        *(f"RECORDING={tree / 'daemon/vllm_watch/analysis/replay/recordings/day.jsonl.xz'}", f"SPEED={SPEED}"),
        cwd=tree,
        path=os.environ["PATH"],
        PYTHONPATH=f"{tree / 'daemon'}:{tree / 'parsers'}",
    )
    stack.wait_for("Ctrl-C ends everything.")
    stack.wait_for("PAGE      VllmCapacityExhausted  vllm engine 0", RECORDED_SECONDS / SPEED + SECONDS)
    lasted = shown_alerts(re.search(r"status page +(\S+)", stack.text).group(1))
    stack.wait_for("RESOLVED  VllmCapacityExhausted  vllm engine 0  after ", RECORDED_SECONDS / SPEED + SECONDS)

    os.killpg(stack.process.pid, signal.SIGINT)  # As a terminal does at Ctrl-C: make gets it, too.

    assert stack.ended() == -signal.SIGINT
    said = re.findall(r"(?m)^\d\d:\d\d:\d\d  (\S+) +(\S+)", stack.text)
    page, resolved = (said.index((word, "VllmCapacityExhausted")) for word in ("PAGE", "RESOLVED"))
    assert said[0] == ("ok", "Watchdog")
    assert page < resolved
    assert -SPEED < lasted["VllmCapacityExhausted"] < RECORDED_SECONDS
    assert "PAGE" not in [word for word, _ in said[:page]]
    assert "alerts/runbooks/VllmCapacityExhausted.md" in stack.text


def shown_alerts(url: str) -> dict[str, float]:
    """Return for how many seconds of the recording each alert lasts, as the status page shows it."""

    def shown():
        document = json.loads(get_text(f"{url}api/v1/snapshot?history="))
        return {each["alertname"]: document["at"] - each["active_since"] for each in document.get("alerts", ())}

    return until(lambda: "VllmCapacityExhausted" in (found := shown()) and found)


def cloned(tree: Path) -> Path:
    """Return a copy of what git has of this tree, as it is here, without the tests: nothing may need them."""
    command = ["git", "ls-files", "-z", ":!tests"]
    listed = run_command(*command, text=False, check=True, cwd=ROOT).stdout
    for name in filter(None, listed.decode().split("\0")):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tree / name, follow_symlinks=False)
    return tree


def test_a_missing_program_is_named_with_what_installs_it(start, folder):
    """All that are missing, in one command."""
    stack = start(path=str(folder / "temporary"))

    assert stack.ended() == 1
    assert stack.text == (
        "stack: missing: prometheus and prometheus-alertmanager: "
        "sudo apt-get install prometheus prometheus-alertmanager, or https://prometheus.io/download/\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_it_nothing_is_left(start, number):
    """Neither a process nor a listening port: also after a kill, which it cannot see and which leaves its files."""
    stack = start(GF_SERVER_HTTP_PORT="1")
    stack.wait_for("Ctrl-C ends everything.")
    ports = [int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)/", stack.text)]
    assert len(set(ports)) == 4

    os.kill(stack.process.pid, number)

    assert stack.ended() == (-signal.SIGKILL if number == signal.SIGKILL else 0)
    assert ("nothing is left" in stack.text) == (number != signal.SIGKILL)
    for port in ports:
        with socket.socket() as connection:
            assert connection.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_start_ends_what_has_started(start, folder, number):
    """It waits for a program that is never ready, and ends at once."""
    (folder / "bin" / "prometheus").write_text("#!/bin/sh\nexec sleep 1000\n")
    stack = start()
    until(lambda: stack.pids("sleep"), what=lambda: stack.text)

    os.kill(stack.process.pid, number)

    assert stack.ended() == 0
    assert "status page" not in stack.text


@pytest.mark.slow
def test_a_program_that_fails_at_its_start_is_quoted(start, folder):
    """Its name, how it ended and what it said; everything else is ended."""
    (folder / "bin" / "prometheus-alertmanager.fails").write_text("level=error msg=nonsense\x1b[2J\n")
    stack = start()

    assert stack.ended() == 1
    assert "stack: Alertmanager has ended with exit status 3\nstack: Alertmanager: level=error" in stack.text
    assert "\x1b" not in stack.text
