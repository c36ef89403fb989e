# SPDX-License-Identifier: Apache-2.0
"""T31: what the system answers when a disk or a network's file system fails, through a stand-in for `os`."""

from __future__ import annotations

import errno
import os

import pytest
import structlog

from tests.support.logs import open_files, stats_line
from tests.support.waiting import HandClock

from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.sources import file_follower, log_file, rotation
from vllm_watch.daemon.sources.rotation import ROTATE_WAIT


ERRORS = [errno.EINTR, errno.EIO, errno.ESTALE, errno.EBADF, errno.ENOMEM]


class FailingOs:
    """Passes everything to `os`, but fails where it is told to."""

    def __init__(self):
        self.failing = {}
        self.calls = 0

    def __getattr__(self, name):
        """Return what `os` has, or something that fails."""
        real = getattr(os, name)
        if name not in self.failing:
            return real

        def fail(*arguments, **options):
            self.calls += 1
            number, file = self.failing[name]
            if file is not None and file not in {arguments[0], self.name(arguments[0])}:
                return real(*arguments, **options)
            raise OSError(number, os.strerror(number))

        return fail

    @staticmethod
    def name(descriptor):
        """Return the name of an open file."""
        return os.readlink(f"/proc/self/fd/{descriptor}") if isinstance(descriptor, int) else descriptor

    def fail(self, name, number, file=None):
        """Let a function fail, of one file or of all."""
        self.failing[name] = (number, None if file is None else str(file))

    def heal(self):
        """Let everything work again."""
        self.failing.clear()


@pytest.fixture
def system(monkeypatch):
    """The stand-in, in the tailer's modules."""
    stand_in = FailingOs()
    monkeypatch.setattr(log_file, "os", stand_in)
    monkeypatch.setattr(file_follower, "os", stand_in)
    return stand_in


@pytest.mark.parametrize("number", ERRORS)
@pytest.mark.parametrize("name", ["pread", "fstat", "open", "lseek"])
@pytest.mark.parametrize("seconds", [1.0, ROTATE_WAIT])
def test_a_failure_is_waited_out(followed, system, name, number, seconds):
    """T31: while a file cannot be read that is said and counted; then it is read on where it was, nothing twice."""
    found = followed.grow(1)
    before = open_files()
    system.fail(name, number)
    for _ in range(3):
        followed.write(2)
        found += followed.poll(seconds)
        assert followed.tail.positions()
    said, errors = followed.status, followed.counts.read_errors
    system.heal()
    found += followed.grow(3)

    assert [1, 2, 2, 2, 3] == found
    assert (True, "ok") == followed.status
    assert before == open_files()
    if name == "pread":
        assert ((False, "read_error"), 3) == (said, errors)


def test_a_handle_that_has_expired_is_replaced(followed, system, monkeypatch):
    """T31: a file whose open handle has expired is opened anew and read on from where it was."""
    found = followed.grow(1)
    expired = followed.tail._followers[str(followed.path)].logs[0]._fd
    opened = os.open(os.devnull, os.O_RDONLY)  # The next one will have another number.
    read = os.pread

    def expire(descriptor, size, offset):
        if descriptor == expired:
            raise OSError(errno.ESTALE, "stale")
        return read(descriptor, size, offset)

    monkeypatch.setattr(system, "pread", expire, raising=False)
    found += followed.grow(2)
    os.close(opened)
    found += followed.poll()

    assert [1, 2] == found
    assert 1 == followed.counts.read_errors


def test_a_rotated_file_that_stays_unreadable_is_given_up(followed, system):
    """T31: a rotated file that cannot be read keeps its successors waiting for a while only, and is counted as lost:
    what was said before it is not the present any more, which what follows says once.
    """
    found = followed.grow(1)
    followed.write(2)
    followed.rotate()
    followed.write(3)
    system.fail("pread", errno.EIO, followed.named(".1"))
    found += followed.poll()
    waiting = followed.status
    found += followed.poll(ROTATE_WAIT)
    found += followed.grow(4)

    assert ((False, "read_error"), [1, 3, 4]) == (waiting, found)
    assert [False, True, False] == followed.gaps
    assert 1 == followed.counts.files_lost
    assert (True, "ok") == followed.status


def test_an_error_is_said_once(followed, system):
    """T31: the daemon's own log says once what the system answers."""
    with structlog.testing.capture_logs() as said:
        for number in (errno.EIO, errno.ESTALE, errno.EIO):
            system.fail("pread", number)
            followed.poll()
            followed.poll()

    assert [os.strerror(errno.EIO), os.strerror(errno.ESTALE)] == [each["error"].split("] ")[1] for each in said]


def test_the_first_poll_fails(log, system):
    """T31: a log that cannot be read at first is begun once it can be, and what it held is history, once."""
    log.write(1, 2)
    before = open_files()
    system.fail("pread", errno.EIO)
    log.poll()
    log.poll()
    said, opened = log.status, open_files()
    system.heal()
    log.poll()
    log.write(3)

    assert ((False, "read_error"), before) == (said, opened)
    assert ([1, 2], [3]) == (log.history, log.poll())


def test_a_poll_that_fails_has_not_read_all(followed, system, monkeypatch):
    """T31: what was copied away before a poll that fails is read after a restart, however long ago it was written."""
    monkeypatch.setattr(rotation, "os", system)
    followed.write(1)
    followed.copytruncate()
    followed.write(2)
    followed.date(60.0)
    system.fail("scandir", errno.EIO)
    found = followed.poll()
    with followed.away():
        system.heal()

    assert ([], [1, 2]) == (found, followed.poll())


def test_the_positions_say_until_when_all_was_read(tmp_path, system):
    """T31: until when all of a log was read stands still while it cannot be read, and while nothing comes."""
    clock = HandClock()
    clock.wall = lambda moment: moment + 500.0
    paths = tmp_path / "a.log", tmp_path / "b.log"
    for path in paths:
        path.write_bytes(stats_line(1))
    server = ServerMonitor(ServerConfig(name="a", log=str(tmp_path / "*.log")), clock)
    server.log.poll()
    good = clock.wall(clock.now())
    said = [server.log.positions.files]
    for number in (errno.EIO, None):
        clock.time += 60.0
        if number:
            system.fail("pread", number, paths[0])
            paths[0].write_bytes(stats_line(1) + stats_line(2))
        else:
            system.heal()
        server.log.poll()
        said.append(server.log.positions.files)
    server.close()

    moments = [[each.read_until for each in sorted(files)] for files in said]
    assert [[good, good], [good, good], [good + 120.0, good]] == moments
