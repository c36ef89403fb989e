# SPDX-License-Identifier: Apache-2.0
"""Logs that are not there, not yet, not any more, or not readable: awaited, said, and then read exactly."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading

from pathlib import Path

import pytest

from tests.support.logs import Log, stats_line
from tests.support.waiting import SECONDS

from vllm_watch.daemon.sources.rotation import ROTATE_WAIT


pytestmark = pytest.mark.slow


def test_a_missing_folder_is_awaited_and_may_go_and_come(tmp_path):
    """T15: a log whose folder is missing, appears, is removed and made again is read from the start each time."""
    folder = tmp_path / "later"
    log = Log(folder / "vllm.log")
    log.poll()
    missing = log.status
    found = []
    for number in range(1, 4):
        folder.mkdir()
        found += log.grow(number)
        shutil.rmtree(folder)
        found += log.poll(ROTATE_WAIT / 2)
        gone = log.status
        found += log.poll(ROTATE_WAIT)

    assert [1, 2, 3] == found
    assert (False, "not_found") == missing == log.status
    assert (True, "ok") == gone
    assert 0 == log.counts.files_lost + log.counts.read_errors
    log.tail.close()


def test_a_deleted_log_is_read_to_its_end_and_its_successor_from_the_start(followed):
    """T12: what is written to a deleted file is read while it is open, then the new file from its start."""
    with open(followed.path, "ab", buffering=0) as writer:
        followed.path.unlink()
        writer.write(stats_line(1))
        first = followed.poll()
        writer.write(stats_line(2))
        second = followed.grow(3)

    assert ([1], [2, 3]) == (first, second)
    followed.poll(ROTATE_WAIT + 1)
    assert 0 == followed.counts.files_lost


@pytest.fixture
def private():
    """A log in a folder of its own that belongs to who this process is."""
    with tempfile.TemporaryDirectory() as folder:  # Those of pytest are in one that belongs to root alone.
        made = Log(Path(folder) / "vllm.log")
        yield made
        made.tail.close()
        made.path.parent.chmod(0o700)


@pytest.mark.usefixtures("small_rights")
def test_permission_that_is_missing_at_the_start(private):
    """T16: a log without permission says so and is counted; what it held when it is permitted is history."""
    private.write(1)
    private.path.chmod(0)
    private.poll()
    said = private.status
    private.path.chmod(0o600)
    private.poll()

    assert ((False, "permission_denied"), (True, "ok")) == (said, private.status)
    assert ([1], [2]) == (private.history, private.grow(2))
    assert private.counts.read_errors > 0


@pytest.mark.usefixtures("small_rights")
@pytest.mark.parametrize("wait", [1.0, ROTATE_WAIT * 2])
@pytest.mark.parametrize(
    ("way", "numbers", "is_an_error"),
    [("open file", [2, 4], False), ("folder", [2, 4], True), ("new file", [2, 3, 4], True)],
)
def test_permission_that_is_lost_and_given_back(private, way, numbers, is_an_error, wait):
    """T16: an open file is read on; of a folder or a new file nothing is lost or read twice, and it is said in time."""
    private.grow(1)
    found, said = private.grow(2), []
    if way == "new file":
        private.path.rename(private.named(".1"))
        private.write(3)
    (private.path.parent if way == "folder" else private.path).chmod(0)
    for _ in range(3):
        found += private.poll(wait)
        said.append(private.status)
    errors = private.counts.read_errors
    private.path.parent.chmod(0o700)
    private.path.chmod(0o600)
    found += private.grow(4)

    assert (numbers, is_an_error) == (found, errors > 0)
    assert ((False, "permission_denied") in said) == (is_an_error and wait > ROTATE_WAIT)
    assert (True, "ok") == private.status


def test_a_symlink_is_followed_to_its_new_target(tmp_path):
    """T17: when a link is switched, the old target's rest and the new target are read, not what is beside it."""
    old, new, link = tmp_path / "a.log", tmp_path / "b.log", tmp_path / "vllm.log"
    log = Log(link)
    log.write(path=old)
    link.symlink_to(old)
    log.poll()
    log.write(1, path=old)
    log.write(90, path=tmp_path / "b.log.1")
    os.utime(tmp_path / "b.log.1", (2**31, 2**31))
    log.write(2, path=new)
    other = tmp_path / "other"
    other.symlink_to(new)
    other.replace(link)

    assert [1, 2] == log.poll()
    log.tail.close()


def test_a_dangling_symlink_is_awaited(tmp_path):
    """T17: a link to nothing is no file yet; it is read from the start when its target appears, or goes and comes."""
    link, target = tmp_path / "vllm.log", tmp_path / "target.log"
    link.symlink_to(target)
    log = Log(link)
    log.poll()
    before = log.status
    log.write(1, path=target)
    found = log.poll()
    target.unlink()
    log.poll()
    log.write(2, path=target)

    assert ((False, "not_found"), [1], [2]) == (before, found, log.poll())
    log.tail.close()


NO_FILES = {
    "folder": (os.mkdir, "not_regular"),
    "fifo": (os.mkfifo, "not_regular"),
    "socket": (lambda path: socket.socket(socket.AF_UNIX).bind(str(path)), "not_regular"),
    "zero": (lambda path: path.symlink_to("/dev/zero"), "not_regular"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), "not_regular"),
    "loop": (lambda path: path.symlink_to(path), "symlink_loop"),
}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize(("make", "reason"), NO_FILES.values(), ids=NO_FILES)
def test_what_is_no_file_is_refused_without_waiting(log, make, reason):
    """T18: a folder, pipe, socket or device is said to be what it is, in time, and counted."""
    make(log.path)
    polls = threading.Thread(target=lambda: (log.poll(), log.poll()), daemon=True)
    polls.start()
    polls.join(SECONDS)

    assert not polls.is_alive()
    assert (False, reason, 2) == (*log.status, log.counts.read_errors)
