# SPDX-License-Identifier: Apache-2.0
"""What is asked of the daemon includes the lines that were written before, however rarely their log is polled."""

from __future__ import annotations

import errno
import os
import threading

import pytest
import structlog

from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.options import config_from_options
from vllm_watch.daemon.service import log_thread as log_thread_module
from vllm_watch.daemon.service import poll_schedule as poll_schedule_module
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.sources import directory_watcher as directory_watcher_module
from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch.daemon.support.clock import SystemClock


LINE = b'INFO:     127.0.0.1:4242 - "POST /v1/completions HTTP/1.1" 200 OK\n'


class Watched:
    """A daemon that follows one log, and its writer."""

    def __init__(self, folder):
        path = folder / "vllm.log"
        path.touch()
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self.service = Supervisor(config_from_options([str(path)], [], "127.0.0.1:0"), SystemClock())
        self.tail = self.service.threads.tail

    def start(self):
        """Start it, and wait until the log was polled and its folder is watched, if it can be."""
        self.service.start()
        until(lambda: self.service.fleet.is_ready and self.tail._folders._refreshed[0] is self.tail._logs)

    def write(self, lines):
        """Write some lines, each as one write."""
        for _ in range(lines):
            os.write(self.file, LINE)

    def lines(self):
        """Return how many lines were read, for somebody who asks now."""
        return self.service.fleet.snapshots()[0].tail.lines


def no_inotify():
    """Fail as where the kernel has no room for another user of inotify."""
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def watched(tmp_path, monkeypatch):
    """A daemon that polls by the clock once only, and whoever asks it waits for as long as it takes."""
    monkeypatch.setattr(poll_schedule_module, "POLL_SECONDS", 10 * SECONDS)
    monkeypatch.setattr(log_thread_module, "CATCH_UP_SECONDS", SECONDS)
    daemon = Watched(tmp_path)
    with structlog.testing.capture_logs():
        yield daemon
        daemon.service.stop()
    os.close(daemon.file)


@pytest.mark.parametrize("is_notified", [True, False])
def test_who_asks_sees_what_was_written_before(watched, monkeypatch, is_notified):
    """Each answer has every line that was written before it was asked for, notified or not."""
    if not is_notified:
        monkeypatch.setattr(directory_watcher_module, "Observer", no_inotify)
    watched.start()
    seen = []
    for number in (1, 100, 1):
        watched.write(number)
        seen.append(watched.lines())

    assert [1, 101, 102] == seen


def test_who_asks_does_not_wait_for_notifications_to_be_shared(watched, monkeypatch):
    """A notification that waits for others is acted upon as soon as somebody asks."""
    monkeypatch.setattr(poll_schedule_module.PollSchedule, "pause", lambda _, __: SECONDS)
    watched.start()
    until(lambda: watched.service.fleet.logs[0].has_events)
    watched.write(1)
    until(watched.tail._wake.is_set)

    assert 1 == watched.lines()


def test_a_log_that_hangs_holds_up_no_answer(watched, monkeypatch):
    """Who asks while a poll hangs is answered with what is known."""
    hangs, answers, poll = threading.Event(), threading.Event(), LogTailer.poll

    def wait(tail, now):
        if hangs.is_set():
            answers.wait(SECONDS)
        return poll(tail, now)

    monkeypatch.setattr(LogTailer, "poll", wait)
    monkeypatch.setattr(directory_watcher_module, "Observer", no_inotify)
    monkeypatch.setattr(log_thread_module, "CATCH_UP_SECONDS", 0.01)
    watched.start()
    hangs.set()
    watched.write(1)
    try:
        assert 0 == watched.lines()
    finally:
        answers.set()
