# SPDX-License-Identifier: Apache-2.0
"""A large log is read by two processes, and what is reported is the same; whatever becomes of the second one."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

from pathlib import Path

import pytest

from tests.parsers.lines import STATS_MESSAGE, TIME, record
from tests.support.recordings import log_of
from tests.support.waiting import SECONDS

from vllm_watch.analysis.replay import parser_process


pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
BLOCK = 65536
HEAD = f"(APIServer pid=7) ERROR {TIME} [serving_chat.py:300] ".encode()
START = """
import os, sys
from vllm_watch.analysis.replay import finished_log, parser_process
finished_log.READ_SIZE, parser_process.MIN_SIZE = int(sys.argv[1]), 0
processes, served = int(sys.argv[2]), parser_process._serve
os.sched_getaffinity = lambda pid: set(range(processes))
"""
END = """
sys.argv[1:] = sys.argv[3:]
from vllm_watch.cli.command_line import main
main()
"""
DYING = """
def dying(file, block, parse, connection, theirs):
    theirs.close()
    for _ in range({answers}):
        connection.send(parser_process._parse(file, block, parse, connection.recv()))
    os._exit(9)
parser_process._serve = dying
ask = parser_process.ParserProcess._ask
def ask_late(self):
    if self._next >= max({answers}, 1):
        self._process.join()
    ask(self)
parser_process.ParserProcess._ask = ask_late
"""
POOR = """
def poor(*arguments):
    if os.getpid() != parent:
        raise MemoryError
    return parse(*arguments)
parse, parent = parser_process._parse, os.getpid()
parser_process._parse = poor
"""
INTERRUPTED = """
import signal
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGINT))
"""
ROTATED = """
init = parser_process.ParserProcess.__init__
def rotate(self, file, *others):
    os.rename(file.name, file.name + ".1")
    open(file.name, "wb").write(b"x\\n" * 10_000_000)
    init(self, file, *others)
parser_process.ParserProcess.__init__ = rotate
"""
COUNTING = """
import atexit
taken = []
take = parser_process.ParserProcess._receive
def receive(self):
    taken.append(1)
    take(self)
parser_process.ParserProcess._receive = receive
parent = os.getpid()
atexit.register(lambda: os.getpid() == parent and print(len(taken), file=sys.stderr))
"""


ONCE = ("once", "--format", "json")
PROMETHEUS = ("once", "--format", "prometheus")
BACKFILL = ("backfill",)


def read(log: Path, processes: int, *, change: str = "", command=ONCE) -> subprocess.CompletedProcess:
    """Read a log with a command and return what it printed."""
    words = [sys.executable, "-c", START + change + END, BLOCK, processes, *command, "--log", log]
    return subprocess.run(list(map(str, words)), capture_output=True, check=True, timeout=SECONDS)


@functools.cache
def alone(log: Path, command=ONCE) -> subprocess.CompletedProcess:
    """Read a log with a command in one process, once, and return what it printed."""
    return read(log, 1, command=command)


@pytest.fixture(scope="module", params=["service", "terminal", "mixed", "wrapped"])
def log(request, tmp_path_factory) -> Path:
    """Return a log of many blocks, which nobody may change."""
    recorded = log_of("day") * 12
    lines = recorded.split(b"\n")[:-1]
    if request.param == "terminal":
        recorded = recorded.replace(b"\n", b"\r\n")
    elif request.param == "mixed":
        for number in range(300, len(lines), 997):
            lines[number] = HEAD + b"x\r\n" + HEAD + record(STATS_MESSAGE) + b"\r\n" + lines[number]
        lines[5000:5000] = [b"x" * 100_000, b"\0" * 70_000, b"x" * 70_000 + b"\r"]
        recorded = b"\n".join(lines) + b"\nno end"
    elif request.param == "wrapped":
        recorded = b"".join(b"2026-11-21T02:17:58.1Z stdout F " + line + b"\n" for line in lines)
    path = tmp_path_factory.mktemp(request.param) / "vllm.log"
    path.write_bytes(recorded)
    os.utime(path, (1_795_302_000, 1_795_302_000))
    return path


@pytest.mark.parametrize("command", [ONCE, PROMETHEUS, BACKFILL], ids=["json", "prometheus", "backfill"])
def test_two_processes_read_what_one_reads(log, command):
    """Records over the ends of blocks, long lines, terminals, containers: it is the same, to the byte."""
    one, together = alone(log, command), read(log, 2, command=command)

    assert len(one.stdout) > 500
    assert (one.stdout, one.stderr) == (together.stdout, together.stderr)
    assert command == BACKFILL or together.stderr == b""


def test_calls_that_pause_have_their_own_time(tmp_path):
    """Where a server is put to sleep and woken between two blocks of requests, two processes see when it was."""
    path = tmp_path / "vllm.log"
    path.write_bytes(log_of("sleep") * 12)

    assert path.stat().st_size > 4 * BLOCK
    assert read(path, 1, command=BACKFILL).stdout == read(path, 2, command=BACKFILL).stdout


@pytest.mark.parametrize(("answers", "command"), [(0, ONCE), (1, ONCE), (1, BACKFILL), (2, ONCE)])
def test_the_reader_goes_on_alone(log, answers, command):
    """The second process is killed after some blocks: nothing is lost, and nothing is counted twice."""
    one, together = alone(log, command), read(log, 2, change=DYING.format(answers=answers), command=command)

    assert (one.stdout, one.stderr) == (together.stdout, together.stderr)


def test_a_second_process_without_memory_ends_silently(log):
    """If there is no memory for a second process to parse a block, the reader reads all."""
    together = read(log, 2, change=POOR)

    assert (alone(log).stdout, b"") == (together.stdout, together.stderr)


def test_an_interruption_is_not_for_the_second_process(log):
    """A terminal interrupts both: only the reader says so, also if the other one has only just started."""
    together = read(log, 2, change=INTERRUPTED)

    assert (alone(log).stdout, b"") == (together.stdout, together.stderr)


def test_a_log_that_is_rotated_meanwhile_is_read_to_its_end(log, tmp_path):
    """Both processes read the file that was opened, whatever its path names since."""
    rotated = Path(shutil.copy2(log, tmp_path))

    assert alone(log).stdout == read(rotated, 2, change=ROTATED).stdout
    assert rotated.with_name("vllm.log.1").exists()


def test_the_second_process_has_its_share(tmp_path):
    """The second process does parse blocks, or it would be of no use."""
    path = tmp_path / "vllm.log"
    path.write_bytes(log_of("day") * 40)

    for command in (ONCE, BACKFILL):
        assert int(read(path, 2, change=COUNTING, command=command).stderr.split()[-1]) > 0
        assert int(read(path, 1, change=COUNTING, command=command).stderr.split()[-1]) == 0


def test_a_small_log_or_one_core_takes_one_process(monkeypatch):
    """A second process costs its start, and takes its time from the first one where there is one core."""
    monkeypatch.setattr("threading.active_count", lambda: 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    assert parser_process.is_worthwhile(parser_process.MIN_SIZE)
    assert not parser_process.is_worthwhile(parser_process.MIN_SIZE - 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0})
    assert not parser_process.is_worthwhile(parser_process.MIN_SIZE)


def test_no_process_is_forked_beside_threads(monkeypatch):
    """A copy of a process has the locks of its threads, and not the threads."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1})
    monkeypatch.setattr("threading.active_count", lambda: 2)
    assert not parser_process.is_worthwhile(parser_process.MIN_SIZE)
