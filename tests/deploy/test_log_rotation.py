# SPDX-License-Identifier: Apache-2.0
"""The ways to rotate the log of a vLLM that runs: logrotate with the shipped files, and what the daemon reads."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading

from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support import tools
from tests.support.logs import Log, stats_line
from tests.support.processes import NOBODY, run_command
from tests.support.waiting import SECONDS, until


DEPLOY = Path(__file__).parents[2] / "deploy"
LOGROTATE = tools.find("logrotate")
SHIPPED = "/var/log/vllm"
LINES = 400
"""The least that are written between two rotations."""

PAUSE = 0.0005
"""Seconds between two lines: a rotation may take long on a busy machine, and lines are written all the time."""

GROUP = 54321

pytestmark = [
    pytest.mark.needs_tool("logrotate"),
    pytest.mark.needs_root,
]


@pytest.fixture
def folder(tmp_path):
    """The log's folder."""
    (tmp_path / "vllm").mkdir(mode=0o750)
    return tmp_path / "vllm"


@pytest.fixture
def open_folder():
    """The log's folder, where others could enter it if it let them: pytest's own folders are private."""
    with tempfile.TemporaryDirectory() as parent:
        os.chmod(parent, 0o755)
        folder = Path(parent) / "vllm"
        folder.mkdir(mode=0o750)
        yield folder


def shipped(path, folder):
    """Return the text of a shipped file for another folder."""
    text = (DEPLOY / path).read_text()
    assert SHIPPED in text
    return text.replace(SHIPPED, str(folder))


def rotate(name, folder):
    """Rotate with a shipped file, as if the day were over; only the users are other ones."""
    config = folder.parent / "logrotate.conf"
    config.write_text(shipped(f"logrotate/{name}", folder).replace("su vllm vllm", "su root root"))
    config.chmod(0o644)
    run_command(LOGROTATE, "--force", "--state", folder.parent / "state", config, text=False, check=True)


def writer_command(folder):
    """Return what vllm-log.service runs: systemd's words for % and $ are undone."""
    text = shipped("systemd/vllm-log.service", folder)
    (command,) = re.findall(r"(?m)^ExecStart=/bin/sh -c '(.*)'$", text)
    return ["/bin/sh", "-c", "umask 0027; " + command.replace("%%", "%").replace("$$", "$")]


@contextmanager
def pipe(path):
    """Make a pipe and hold it, as systemd does."""
    os.mkfifo(path)
    held = os.open(path, os.O_RDWR)
    try:
        yield held
    finally:
        os.close(held)


@contextmanager
def writer(folder, held):
    """Run the log's writer at the pipe."""
    running = subprocess.Popen(writer_command(folder), stdin=held)
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(SECONDS)


def has_lines(path):
    """Return whether there is a file, and something in it."""
    return path.exists() and path.stat().st_size > 0


def poll(log):
    """Poll; however often, no second passes for the daemon while the writer waits."""
    return log.poll(seconds=0.001)


class Vllm:
    """Stands for vLLM: writes numbered lines, one write each, until the block ends."""

    def __init__(self, descriptor):
        self._descriptor = descriptor
        self.written = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._ends.wait(PAUSE):
            os.write(self._descriptor, stats_line(self.written))
            self.written += 1

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def test_renaming_loses_nothing_where_the_writer_opens_the_file_for_each_line(folder):
    """While lines are written the log is renamed five times, and the daemon reads each of them once and in order."""
    log = Log(folder / "vllm.log")
    log.path.touch()
    read = log.poll()
    with pipe(folder.parent / "pipe") as held, writer(folder, held):
        with Vllm(held) as vllm:
            for part in range(1, 6):
                until(lambda wanted=part * LINES: vllm.written >= wanted and has_lines(log.path), SECONDS)
                # A writer that stands still for two rotations would write into a file that is compressed already.
                rotate("vllm", folder)
                read += poll(log)
        os.write(held, stats_line(vllm.written))  # All others may have been written before the last renaming.
        until(lambda: read.extend(poll(log)) or len(read) > vllm.written, SECONDS)

    assert read == list(range(vllm.written + 1))
    assert {path.name for path in folder.iterdir()} >= {"vllm.log", "vllm.log.1", "vllm.log.2.gz"}
    assert oct((folder / "vllm.log").stat().st_mode) == "0o100640"


def test_copying_loses_nothing_that_was_written_before_or_after(folder):
    """Where vLLM holds the file open, what is not written during the rotation is read once and in order."""
    log = Log(folder / "vllm.log")
    log.path.touch()
    read = log.poll()
    held = os.open(log.path, os.O_WRONLY | os.O_APPEND)
    for part in range(5):
        for number in range(10):
            os.write(held, stats_line(10 * part + number))
        if part % 2:
            read += log.poll()
        rotate("vllm-copytruncate", folder)
        os.write(held, b"after %d\n" % part)
        assert log.path.read_bytes() == b"after %d\n" % part
        read += log.poll()
    os.close(held)

    assert read == list(range(50))


@pytest.mark.needs_tool("setfacl", "setpriv", "systemd-tmpfiles")
@pytest.mark.parametrize("name", ["vllm", "vllm-copytruncate"])
def test_by_the_acl_a_group_reads_also_what_is_made_anew(open_folder, name):
    """With the shipped ACL a group reads the log, the renamed or copied one and the new one; without it nobody does."""
    folder = open_folder
    log = folder / "vllm.log"
    with pipe(folder.parent / "pipe") as held, writer(folder, held):
        os.write(held, b"first\n")
        until(log.exists, SECONDS)
        assert not reads(log)
        grant(folder)
        until(lambda: reads(log), SECONDS)
        rotate(name, folder)
        os.write(held, b"second\n")
        until(lambda: log.exists() and log.read_bytes(), SECONDS)

    assert reads(log)
    assert reads(folder / "vllm.log.1")
    assert not reads(log, group=GROUP + 1)


def grant(folder):
    """Let systemd-tmpfiles set the shipped ACL, for a group that needs no name."""
    config = folder.parent / "acl.conf"
    config.write_text(shipped("systemd/tmpfiles.d/vllm-logs-acl.conf", folder).replace("vllm-logs", str(GROUP)))
    run = run_command("systemd-tmpfiles", "--create", config)
    if "not supported" in run.stderr:
        pytest.skip("this file system has no ACLs")
    assert (run.returncode, run.stderr) == (0, "")


def reads(path, group=GROUP):
    """Whether nobody, in a group, may read a file."""
    command = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", f"--groups={group}", "cat", str(path)]
    return run_command(*command, text=False).returncode == 0
