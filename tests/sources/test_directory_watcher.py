# SPDX-License-Identifier: Apache-2.0
"""Hints that a log has grown: they come at once, only for the log, and may be missing."""

from __future__ import annotations

import contextlib
import errno
import json
import subprocess
import threading

from pathlib import Path

import pytest
import structlog

from tests.support.logs import Log, open_files, run_child
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service import log_polling
from vllm_watch.daemon.service.log_polling import LogThread
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.sources import directory_watcher as wake_module
from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher, places
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.own_health import InternalErrors


pytestmark = pytest.mark.slow


@contextlib.contextmanager
def following(path, *, is_there=True):
    """Follow a log as the daemon does; give its server and the log, with the loop."""
    log = Log(path)
    if is_there:
        log.write()
    server = ServerMonitor(ServerConfig(name="a", log=str(path)), SystemClock())
    log.loop = LogThread(SystemClock(), InternalErrors())
    log.loop.follow([server.log])
    until(lambda: server.log.was_polled)
    try:
        yield server, log
    finally:
        log.loop.request_stop()
        log.loop.join()
        server.close()


@pytest.fixture
def wake():
    """The event that a hint sets."""
    return threading.Event()


@pytest.fixture
def watch(wake):
    """A running watch of nothing yet."""
    found = DirectoryWatcher(wake)
    found.start()
    yield found
    found.stop()


def test_a_rotation_wakes(watch, wake, tmp_path):
    """Renaming the log, and what appears under a glob, are hints."""
    log = tmp_path / "vllm-a.log"
    log.touch()
    watch.refresh(places([str(tmp_path / "vllm-*.log")]))
    wake.clear()
    log.rename(tmp_path / "elsewhere")

    assert wake.wait(SECONDS)


def test_other_files_of_a_busy_folder_do_not_wake(watch, wake, tmp_path):
    """Changes of other files are no hints: the log's own comes after theirs and is the first."""
    watch.refresh(places([str(tmp_path / "vllm.log")]))
    wake.clear()
    for number in range(20):
        (tmp_path / f"other-{number}").write_bytes(b"x")
    assert not wake.is_set()
    (tmp_path / "vllm.log").write_bytes(b"x")

    assert wake.wait(SECONDS)


def test_opening_and_reading_a_log_is_no_change(watch, wake, tmp_path):
    """The kernel is asked for changes only: whoever else reads the log costs nothing."""
    log = tmp_path / "vllm.log"
    log.write_bytes(b"x")
    watch.refresh(places([str(log)]))
    watch.take_changed()
    wake.clear()
    for _ in range(20):
        log.read_bytes()
    assert not wake.is_set()
    log.rename(tmp_path / "vllm.log.1")

    assert wake.wait(SECONDS)
    assert {str(log)} == watch.take_changed()


def test_a_replaced_folder_is_watched_anew(watch, wake, tmp_path):
    """T15: a folder that was removed and made again gives hints again after the next poll."""
    folder = tmp_path / "logs"
    folder.mkdir()
    log = folder / "vllm.log"
    watch.refresh(places([str(log)]))
    folder.rmdir()
    folder.mkdir()
    log.touch()

    def hinted():
        watch.refresh(places([str(log)]))
        wake.clear()
        log.write_bytes(b"x\n")
        return wake.wait(0.1)

    until(hinted)


LIMITED = """
    import json, time
    from pathlib import Path
    import structlog
    from vllm_watch.daemon.support.clock import SystemClock
    from vllm_watch.daemon.config.model import ServerConfig
    from vllm_watch.daemon.support.own_health import InternalErrors
    from vllm_watch.daemon.service.log_polling import LogThread
    from vllm_watch.daemon.service.monitor import ServerMonitor
    from tests.support.logs import stats_line
    limit, folder = sys.argv[1], Path(sys.argv[2])
    Path("/proc/sys/user", limit).write_text("0")
    log = folder / "vllm.log"
    log.touch()
    server = ServerMonitor(ServerConfig(name="a", log=str(log)), SystemClock())
    with structlog.testing.capture_logs() as said:
        loop = LogThread(SystemClock(), InternalErrors())
        loop.follow([server.log])
        number = 0
        while server.snapshot().tail.lines < 3:
            if server.log.was_polled and number == server.snapshot().tail.lines:
                number += 1
                with log.open("ab") as file:
                    file.write(stats_line(number))
            time.sleep(0.02)
        loop.request_stop()
        loop.join()
    events = [each["event"] for each in said if "file_events" in each["event"]]
    print(json.dumps([server.snapshot().tail.watch_mode, events]))
"""


def can_limit_inotify():
    """Tell whether a user namespace can be made whose limits of inotify can be set."""
    command = ["unshare", "-Ur", "sh", "-c", "echo 5 > /proc/sys/user/max_inotify_watches"]
    return subprocess.run(command, capture_output=True, check=False, timeout=SECONDS).returncode == 0


@pytest.mark.needs_namespaces("--user", "--map-root-user")
@pytest.mark.parametrize("limit", ["max_inotify_watches", "max_inotify_instances"])
def test_with_exhausted_limits_every_line_is_read(tmp_path, limit):
    """T22: with no inotify watch or instance left every line is read by polling, which is shown, and said once."""
    if not can_limit_inotify():
        pytest.skip("a user namespace of this machine cannot set its own inotify limits")
    mode, said = json.loads(run_child(LIMITED, limit, tmp_path, before=("unshare", "-Ur")))

    assert ("poll", 1) == (mode, len(said))
    assert said[0] in {"file_events.watch_failed", "file_events.unavailable"}


def test_an_overflowing_queue_is_survived(tmp_path):
    """T23: when the kernel drops events, every line is read by the next poll, and later ones give hints again."""
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip("the kernel's queue of events is too long here to be filled in a test")
    printed = run_child(
        """
        import os, signal, threading, time
        from tests.support.logs import Log
        from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher, places
        folder, limit = sys.argv[1], int(sys.argv[2])
        log = Log(os.path.join(folder, "vllm.log"))
        log.grow()
        wake = threading.Event()
        watch = DirectoryWatcher(wake)
        watch.start()
        watch.refresh(places([str(log.path)]))
        # This process is stopped, as one that hangs, while another one fills the queue and writes the log.
        child = os.fork()
        if child == 0:
            parent = os.getppid()
            os.kill(parent, signal.SIGSTOP)
            other = os.path.join(folder, "other")
            for _ in range(limit // 2 + 1000):
                os.close(os.open(other, os.O_CREAT | os.O_WRONLY))
                os.unlink(other)
            log.write(1, 2, 3)
            os.kill(parent, signal.SIGCONT)
            os._exit(0)
        os.waitpid(child, 0)
        found = log.poll()
        hinted = False
        while not hinted:
            watch.refresh(places([str(log.path)]))
            wake.clear()
            log.write(4)
            hinted = wake.wait(0.2)
        print(found, hinted, watch.covers(places([str(log.path)])))
        """,
        tmp_path,
        limit,
    )

    assert "[1, 2, 3] True True" == printed


class SilentObserver:
    """An observer of a file system that tells nothing, as a network's."""

    emitters = frozenset()

    def start(self):
        """Do nothing."""

    def schedule(self, _handler, folder, **_options):
        """Pretend to watch."""
        return folder

    def unschedule(self, _watch):
        """Do nothing."""

    def is_alive(self):
        """Say that all is well."""
        return True

    def stop(self):
        """Do nothing."""

    def join(self, _seconds):
        """Do nothing."""


def test_without_any_event_every_line_is_read(tmp_path, monkeypatch):
    """T24: on a file system without events the log is read by the clock alone."""
    monkeypatch.setattr(wake_module, "Observer", SilentObserver)
    monkeypatch.setattr(log_polling, "POLL_SECONDS", 0.02)
    with following(tmp_path / "vllm.log") as (server, log):
        for number in range(1, 6):
            log.write(number)
            until(lambda: server.snapshot().tail.lines == number)  # noqa: B023 - Asked at once.


def test_a_watch_that_works_is_shown(tmp_path):
    """T22: where hints come that is shown, and where the folder is missing the log is polled until it is there."""
    with following(tmp_path / "vllm.log") as (server, _):
        until(lambda: server.snapshot().tail.watch_mode == "events")
    with following(tmp_path / "later" / "vllm.log", is_there=False) as (server, log):
        until(lambda: server.log.was_polled)
        assert "poll" == server.snapshot().tail.watch_mode
        log.path.parent.mkdir()
        log.write(1)
        until(lambda: server.snapshot().tail.watch_mode == "events")
        until(lambda: server.snapshot().tail.lines == 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # It is what the test is about.
def test_the_watching_thread_dies(tmp_path):
    """T24: when the thread that brings hints ends, that is said once, and every line is read by polling."""
    with following(tmp_path / "other.log"):
        pass  # The library keeps one thread for good.
    before = threading.active_count()
    with structlog.testing.capture_logs() as said, following(tmp_path / "vllm.log") as (server, log):
        until(lambda: server.snapshot().tail.watch_mode == "events")
        wake = log.loop._watcher
        wake._observer._handlers.clear()
        wake._observer.event_queue.put(("no event", "no watch"))  # Its thread fails at this.
        until(lambda: server.snapshot().tail.watch_mode == "poll")
        until(lambda: threading.active_count() <= before + 1)  # The loop's.
        for number in range(1, 4):
            log.write(number)
            until(lambda: server.snapshot().tail.lines == number)  # noqa: B023 - Asked at once.

    assert ["file_events.stopped"] == [record["event"] for record in said if "file_events" in record["event"]]


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "no instance"), RuntimeError("can't start new thread")])
def test_the_watching_thread_cannot_start(tmp_path, monkeypatch, error):
    """T22: when the thread that brings hints cannot start, that is said once, and the log is read by polling."""

    class Refusing(SilentObserver):
        def start(self):
            raise error

    monkeypatch.setattr(wake_module, "Observer", Refusing)
    with structlog.testing.capture_logs() as said, following(tmp_path / "vllm.log") as (server, log):
        log.write(1)
        until(lambda: server.snapshot().tail.lines == 1)
        assert "poll" == server.snapshot().tail.watch_mode

    assert ["file_events.unavailable"] == [record["event"] for record in said if "file_events" in record["event"]]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
def test_a_refused_watch_is_asked_for_again(wake, tmp_path, monkeypatch, number):
    """T22: a watch that was refused, which is said once, is asked for again after a minute, not at each poll."""
    now = [1000.0]
    watch = DirectoryWatcher(wake, lambda: now[0])
    watch.start()
    asked = []
    schedule = watch._observer.schedule

    def refuse(*arguments, **_options):
        asked.append(arguments)
        raise OSError(number, "inotify limit reached")

    monkeypatch.setattr(watch._observer, "schedule", refuse)
    paths = [str(tmp_path / "vllm.log")]
    with structlog.testing.capture_logs() as said:
        for _ in range(60):
            watch.refresh(places(paths))
            now[0] += 1
    before = len(asked), watch.covers(places(paths))
    monkeypatch.setattr(watch._observer, "schedule", schedule)
    watch.refresh(places(paths))
    after = watch.covers(places(paths))
    watch.stop()

    assert ((1, False), True) == (before, after)
    assert ["file_events.watch_failed"] == [record["event"] for record in said]


def test_folders_that_are_followed_no_more_are_let_go(watch, tmp_path):
    """T32: a hundred reloads, each with another folder, leave one watch and as many threads and files as the first."""
    counts = []
    for number in range(100):
        folder = tmp_path / str(number)
        folder.mkdir()
        watch.refresh(places([str(folder / "vllm.log")]))
        counts.append((len(watch._watches), len(watch._observer.emitters), threading.active_count(), open_files()))

    assert [] == [each for each in counts if any(now > first for now, first in zip(each, counts[0], strict=True))]
    watch.refresh(places([]))
    assert (0, 0) == (len(watch._watches), len(watch._observer.emitters))


def test_a_log_behind_a_link_gives_hints(watch, wake, tmp_path):
    """T17: changes of a log behind a link, and of one in a folder behind a link, are hints."""
    (tmp_path / "data").mkdir()
    real = tmp_path / "data" / "vllm.log"
    real.touch()
    folder = tmp_path / "folder"
    folder.symlink_to(tmp_path / "data")
    watch.refresh(places([str(folder / "vllm.log")]))
    wake.clear()
    real.write_bytes(b"x")
    assert wake.wait(SECONDS)

    link = tmp_path / "vllm.log"
    link.symlink_to(real)
    log = Log(link)
    log.poll()
    watch.refresh(places(log.tail.watched_paths))
    wake.clear()
    real.write_bytes(b"y")
    log.tail.close()

    assert wake.wait(SECONDS)
