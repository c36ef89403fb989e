# SPDX-License-Identifier: Apache-2.0
"""A log whose file system gives no answer costs that log: for as long as it lasts, and nothing when it is over."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest
import structlog

from tests.service.test_supervisor import Told
from tests.support.logs import printed_now
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service import log_polling
from vllm_watch.daemon.service import service_thread as liveness_module
from vllm_watch.daemon.service import supervisor as supervisor_module
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch.daemon.support import hang_guard as hang_guard_module
from vllm_watch.daemon.support.clock import SystemClock


pytestmark = pytest.mark.slow


STATS = (
    "INFO 11-21 02:14:25 [loggers.py:257] Engine 000: Avg prompt throughput: 11.0 tokens/s, "
    "Avg generation throughput: 22.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
    "GPU KV cache usage: 3.0%, Prefix cache hit rate: 0.0%\n"
)


class StandIn:
    """Stands for such a file system: whoever looks at its files waits."""

    def __init__(self, source, place, monkeypatch):
        self.source, self.place = source, place
        place.symlink_to(source)
        self._answers = threading.Event()
        self._answers.set()
        poll = LogTailer.poll

        def wait(tail, now):
            if tail.pattern.startswith(str(place)):
                self._answers.wait(SECONDS)
            return poll(tail, now)

        monkeypatch.setattr(LogTailer, "poll", wait)

    def hang(self):
        """Let whoever looks wait."""
        self._answers.clear()

    def answer(self):
        """Let them go."""
        self._answers.set()


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A folder of a file system that can hang: `source` is behind it."""
    real, place = tmp_path / "real", tmp_path / "remote"
    real.mkdir()
    found = StandIn(real, place, monkeypatch)
    yield found
    found.answer()


class Daemon:
    """A service of servers whose logs may hang, and its main thread."""

    def __init__(self, folder, logs):
        self.folder = folder
        self.config = Config(
            listen="127.0.0.1:0",
            checkpoint=str(folder / "state.json"),
            servers=tuple(ServerConfig(name=name, log=log) for name, log in logs.items()),
        )
        self.told = Told()
        self.service = Supervisor(self.config, SystemClock(), load=lambda: self.config, notifier=self.told)
        self.service.start()
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def lines(self, name):
        """Return how many lines of a server's log were counted."""
        return self._snapshot(name).tail.lines

    def reason(self, name):
        """Return why a log says nothing, or ok."""
        return self._snapshot(name).sources[0].reason

    def _snapshot(self, name):
        return next(each for each in self.service.fleet.snapshots() if each.name == name)

    def saved(self):
        """Return the checkpoint's positions by the names of the files."""
        with contextlib.suppress(OSError, ValueError):
            content = json.loads((self.folder / "state.json").read_text())
            return {file["path"].rpartition("/")[2]: file for file in content["files"]}
        return {}

    def stop(self):
        """End it as a signal does."""
        self.service.request_stop()
        self.thread.join(SECONDS)
        self.service.stop()

    def kill(self):
        """Leave it without a word: nothing more is saved."""
        self.service.checkpointer._file = None
        self.stop()


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a daemon that loses patience soon; it is stopped at the end."""
    monkeypatch.setattr(hang_guard_module, "HANG_SECONDS", 0.2)
    monkeypatch.setattr(log_polling, "HANGS_AFTER", 0.5)
    monkeypatch.setattr(supervisor_module, "TICK_SECONDS", 0.1)
    daemons = []

    def begin(**logs):
        daemons.append(Daemon(tmp_path, {name: str(path) for name, path in logs.items()}))
        return daemons[-1]

    with structlog.testing.capture_logs():
        yield begin
        for daemon in daemons:
            if daemon.thread.is_alive():
                daemon.stop()


def write(path, lines=1):
    """Append lines to a log."""
    with path.open("a") as file:
        file.write(printed_now(STATS) * lines)


@pytest.fixture
def two_logs(tmp_path, remote):
    """A log that is always there and one that can hang, by its real place, with a line each."""
    good, hanging = tmp_path / "good.log", remote.source / "vllm.log"
    write(good)
    write(hanging)
    return good, hanging


@pytest.mark.parametrize("name", ["vllm.log", "*.log"])
def test_the_others_go_on(remote, two_logs, start, monkeypatch, name):
    """While a log hangs from the start the others are read, the daemon is ready and well, and the reason is said."""
    monkeypatch.setattr(liveness_module, "STALE_HEARTBEAT", 2.0)
    good, _ = two_logs
    remote.hang()
    daemon = start(hanging=remote.place / name, good=good)
    until(lambda: daemon.reason("hanging") == "hangs")
    began = time.monotonic() - log_polling.HANGS_AFTER
    until(lambda: "READY" in daemon.told.said)
    for number in range(1, 4):
        write(good)
        until(lambda: daemon.lines("good") == number)  # noqa: B023 - Asked at once.
    # A heartbeat that had stopped when the log began to hang would be stale by then.
    until(lambda: time.monotonic() > began + 1.1 * liveness_module.STALE_HEARTBEAT)
    daemon.told.said.clear()
    until(lambda: "WATCHDOG" in daemon.told.said)
    pages = daemon.service.endpoints

    until(lambda: (pages.ready().status, pages.healthy().status) == (200, 200))
    assert [0, 1] == [each.sources[0].is_up for each in daemon.service.fleet.snapshots()]


def lasting_threads():
    """Return how many threads run but for those that look at processes once in a while."""
    return sum(thread.name not in {"hang-guard", "close"} for thread in threading.enumerate())


def test_it_is_read_on_when_the_file_system_answers(remote, two_logs, start):
    """What was written while a log hung is read when that is over: every line, and none twice."""
    good, hanging = two_logs
    daemon = start(hanging=remote.place / "vllm.log", good=good)
    until(lambda: daemon.service.fleet.is_ready)
    write(hanging, 3)
    until(lambda: daemon.lines("hanging") == 3)
    threads = lasting_threads()
    for _ in range(3):
        remote.hang()
        until(lambda: daemon.reason("hanging") == "hangs")
        write(hanging, 2)
        remote.answer()
        until(lambda: daemon.reason("hanging") == "ok")
    until(lambda: daemon.lines("hanging") >= 9)
    until(lambda: lasting_threads() <= threads)

    assert 9 == daemon.lines("hanging")


def test_the_checkpoint_keeps_what_was_known_of_it(remote, two_logs, start):
    """Lives in which a log's first look never ends save the others' positions, and keep that log's from before."""
    good, hanging = two_logs
    daemon = start(hanging=remote.place / "vllm.log", good=good)
    until(lambda: daemon.service.fleet.is_ready)
    daemon.stop()
    first = daemon.saved()
    write(hanging, 4)
    remote.hang()
    for _ in range(2):
        write(good)
        daemon = start(hanging=remote.place / "vllm.log", good=good)
        until(lambda: daemon.saved()["good.log"]["offset"] == good.stat().st_size)  # noqa: B023 - Asked at once.
        assert 1 == daemon.lines("good")
        daemon.kill()
    kept = daemon.saved()
    remote.answer()
    daemon = start(hanging=remote.place / "vllm.log", good=good)
    until(lambda: daemon.lines("hanging") >= 4)

    assert first["vllm.log"]["offset"] == kept["vllm.log"]["offset"]
    assert 0 < kept["vllm.log"]["read_until"] < hanging.stat().st_mtime
    assert (4, 0) == (daemon.lines("hanging"), daemon.lines("good"))


def test_it_stops_while_a_log_hangs(remote, two_logs, start):
    """A stop does not wait for a log that hangs, and saves how far the others were read."""
    good, hanging = two_logs
    of_other_tests = set(threading.enumerate())

    def looking():
        return [thread for thread in set(threading.enumerate()) - of_other_tests if thread.name == "hang-guard"]

    daemon = start(hanging=remote.place / "vllm.log", good=good)
    until(lambda: daemon.service.fleet.is_ready)
    remote.hang()
    until(lambda: daemon.reason("hanging") == "hangs")
    write(good)
    daemon.stop()
    until(lambda: len(looking()) <= 2)  # Those that do not hang may still be about to end.
    still = looking()
    saved = daemon.saved()
    remote.answer()
    for thread in still:
        thread.join(SECONDS)

    assert still
    assert saved["good.log"]["offset"] == good.stat().st_size
    assert saved["vllm.log"]["offset"] == hanging.stat().st_size
    assert not any(thread.is_alive() for thread in still)
