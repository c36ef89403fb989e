# SPDX-License-Identifier: Apache-2.0
"""The program that keeps a container's log: nothing lost, nothing held up, nothing hidden from whoever started it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.http_servers import free_port
from tests.support.monitoring import get_text, process
from tests.support.processes import run_command
from tests.support.waiting import SECONDS, until


pytestmark = pytest.mark.slow


PROGRAM = Path(__file__).parents[2] / "deploy" / "container" / "keep_log.py"
# Its arguments: a command, which is then given the orphans among its descendants, as a container's process 1 is.
AS_PROCESS_1 = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execv(sys.argv[1], sys.argv[1:])"
NAMES = ("log_lines", "log_rotations", "log_files_lost")


@pytest.fixture
def keep():
    """Start keep_log with a server of some lines of Python; both are ended with the test, or if it takes too long."""
    started = []

    def end(running):
        for pid in [*children(running.pid), running.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start(log, code, *options, before=()):
        command = [sys.executable, str(PROGRAM), "--log", str(log), *options, "--", sys.executable, "-uc", code]
        running = subprocess.Popen(
            [*before, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
        )
        timer = threading.Timer(SECONDS, end, [running])
        timer.start()
        started.append((running, timer))
        return running

    yield start
    for running, timer in started:
        timer.cancel()
        if running.poll() is None:
            end(running)
        running.wait(SECONDS)
        running.stdout.close()
        running.stderr.close()


def children(pid):
    """Return the processes that a process has started."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def test_every_line_is_kept_once_and_in_whole(keep, tmp_path):
    """Through renames at the limit, the console and the two files have all lines in order, none torn, none twice."""
    log = tmp_path / "vllm.log"
    lines = "".join(f"{number:099d}\n" for number in range(15_000))
    running = keep(log, "for n in range(15_000): print(f'{n:099d}')", "--limit", "1")

    out, err = running.communicate(timeout=SECONDS)

    old, new = Path(f"{log}.1").read_text(), log.read_text()
    assert (0, b"", lines) == (running.returncode, err, out.decode())
    assert lines == old + new
    assert old.endswith("\n")
    assert abs(len(old) - (1 << 20)) < 1 << 16
    assert ["vllm.log", "vllm.log.1"] == sorted(os.listdir(tmp_path))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(3)", 3),
        ("import os; os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
    ],
    ids=["its own", "a signal"],
)
def test_the_end_is_the_servers(keep, tmp_path, code, status):
    """It ends when the server ends, with its status."""
    assert status == keep(tmp_path / "vllm.log", code).wait(SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_go_to_the_server(keep, tmp_path, number):
    """The server gets the signal once, may end in its own way, and its last words are kept."""
    log = tmp_path / "vllm.log"
    code = (
        "import signal, time\n"
        f"signal.signal({int(number)}, lambda *_: (print('asked'), time.sleep(0.2), print('ended'), exit(7)))\n"
        "print('ready')\n"
        "while True: time.sleep(0.1)\n"
    )
    running = keep(log, code)
    assert b"ready\n" == running.stdout.readline()
    running.send_signal(number)

    out, _ = running.communicate(timeout=SECONDS)

    assert (7, b"asked\nended\n", "ready\nasked\nended\n") == (running.returncode, out, log.read_text())


def test_orphans_are_reaped(keep, tmp_path):
    """What the server's helpers leave behind ends for good while the server runs, and its own end is told as ever."""
    code = (
        "import os, pathlib, subprocess, time\n"
        "orphans = [int(subprocess.check_output(['sh', '-c', 'exec 3>&1; sleep 0.1 >/dev/null & echo $! >&3']))"
        " for _ in range(3)]\n"
        "while any(pathlib.Path(f'/proc/{each}').exists() for each in orphans):\n"
        "    time.sleep(0.02)\n"
        "raise SystemExit(3)\n"
    )
    running = keep(tmp_path / "vllm.log", code, before=[sys.executable, "-c", AS_PROCESS_1])

    out, err = running.communicate(timeout=SECONDS)

    assert (3, b"", b"") == (running.returncode, out, err)


def test_a_full_disk_does_not_stop_the_server(keep):
    """Where the file takes nothing it is told once, and the console goes on."""
    running = keep("/dev/full", "for n in range(3): print(n); import time; time.sleep(0.05)")

    out, err = running.communicate(timeout=SECONDS)

    assert (0, b"0\n1\n2\n") == (running.returncode, out)
    assert b"keep_log: /dev/full is not written: No space left on device\n" == err


def test_a_file_that_cannot_be_opened_is_opened_once_it_can(keep, tmp_path):
    """A volume that comes late holds nobody up, and what is written from then on begins on a line of its own."""
    log = tmp_path / "late" / "vllm.log"
    running = keep(log, "print('lost'); import sys, time\nwhile True: print('tick'); time.sleep(0.02)")
    assert b"lost\n" == running.stdout.readline()
    log.parent.mkdir()
    until(lambda: running.stdout.readline() and log.exists() and "tick" in log.read_text())
    running.terminate()

    _, err = running.communicate(timeout=SECONDS)

    assert 1 == err.count(b"\n")
    assert log.read_text().startswith("\ntick\n")


def test_a_console_that_nobody_reads_any_more_does_not_stop_it(keep, tmp_path):
    """Once the console is closed the file goes on."""
    log = tmp_path / "vllm.log"
    running = keep(log, "for n in range(5): print(n); import time; time.sleep(0.05)")
    running.stdout.close()

    assert 0 == running.wait(SECONDS)
    assert "0\n1\n2\n3\n4\n" == log.read_text()


def test_a_command_that_is_not_there_is_told_in_a_sentence(tmp_path):
    """Exit status 127 and one line, as of a shell."""
    ran = run_command(sys.executable, PROGRAM, "--log", tmp_path / "log", "--", "no-such-server", text=False)

    assert (127, b"keep_log: no-such-server: No such file or directory\n") == (ran.returncode, ran.stderr)


def test_whoever_follows_the_file_loses_nothing(keep, tmp_path):
    """The daemon counts each line once, through renames under its eyes."""
    log, port = tmp_path / "vllm.log", free_port()
    command = ["run", "--log", str(log), "--listen", f"127.0.0.1:{port}"]
    daemon = [sys.executable, "-m", "vllm_watch", *command]
    go = str(tmp_path / "go-")
    code = (
        "import os, time\nfor n in range(30_000):\n    print(f'{n:099d}')\n"
        f"    while n % 3000 == 2999 and not os.path.exists(f'{go}{{n}}'): time.sleep(0.01)"
    )
    with (
        process(daemon, tmp_path / "daemon.log", f"http://127.0.0.1:{port}/-/ready"),
        ThreadPoolExecutor(1) as console,
    ):

        def counted():
            page = get_text(f"http://127.0.0.1:{port}/metrics")
            found = {name: re.search(rf"^vllm_watch_{name}_total{{.*}} (\S+)$", page, re.MULTILINE) for name in NAMES}
            return {name: float(match[1]) for name, match in found.items() if match}

        printed = console.submit(keep(log, code, "--limit", "1").communicate, timeout=SECONDS)
        for number in range(2_999, 30_000, 3_000):  # The daemon is never as far behind as two renames.
            until(lambda least=number - 3_000: counted().get("log_lines", 0) > least)
            Path(f"{go}{number}").touch()
        until(lambda: counted().get("log_lines") == 30_000, SECONDS, lambda: str(counted()))
        assert {"log_lines": 30_000, "log_rotations": 2, "log_files_lost": 0} == counted()
    assert 30_000 == printed.result()[0].count(b"\n")
