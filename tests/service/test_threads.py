# SPDX-License-Identifier: Apache-2.0
"""Many servers' scrapes: spread over the interval, and on time whatever others do."""

from __future__ import annotations

import threading
import time

import pytest
import structlog

from tests.support.waiting import SECONDS, HandClock, until

from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.service.threads import ScrapeThread
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.own_health import InternalErrors


pytestmark = pytest.mark.slow


class Server:
    """Stands for a server whose page is there at once, or never."""

    def __init__(self, name="a", interval=5.0, hangs_until=None):
        self.name = name
        self.interval = interval
        self.times = []
        self._hangs_until = hangs_until

    def scrape(self):
        """Keep when it was, and hang."""
        self.times.append(time.monotonic())
        if self._hangs_until is not None:
            self._hangs_until.wait(SECONDS)


class Sent:
    """Stands for the workers and keeps when each server's scrape was sent out."""

    def __init__(self):
        self.now = 0.0
        self.times = {}

    def send(self, key, _server):
        """Keep it."""
        self.times.setdefault(key, []).append(self.now)

    def at(self, loop, moments):
        """Let the loop send out what is due at these moments."""
        for self.now in moments:
            loop._clock.time = self.now
            loop._turn()


@pytest.fixture
def sent():
    """A loop of the given servers, whose thread is not started, and what it sends out."""

    def make(servers):
        loop = ScrapeThread(HandClock(), InternalErrors())
        loop._servers = tuple(servers)
        loop._workers = found = Sent()
        return loop, found

    return make


def moments(first, last):
    """Return each hundredth of a second."""
    return [number / 100 for number in range(round(first * 100), round(last * 100))]


@pytest.mark.parametrize(("count", "seconds"), [(1, 0.0), (10, 0.18), (200, 3.98), (1000, 4.995)])
def test_first_scrapes_are_spread(sent, count, seconds):
    """A few servers are scraped nearly at once, many within one interval, and then each every 5 s."""
    servers = [Server(str(number)) for number in range(count)]
    loop, found = sent(servers)
    found.at(loop, moments(1000, 1010.5))
    firsts = [found.times[server][0] for server in servers]

    assert firsts == sorted(firsts)
    assert 1000 == firsts[0]
    assert seconds == pytest.approx(firsts[-1] - 1000, abs=0.011)
    assert max(firsts.count(first) for first in firsts) <= max(1, count // 250)
    assert all(5 == pytest.approx(times[1] - times[0], abs=0.011) for times in found.times.values())


def test_a_pause_of_the_machine_keeps_the_distances(sent):
    """After a machine slept the turns it missed are not made up for, and the scrapes are as far apart as before."""
    servers = [Server(str(number)) for number in range(100)]
    loop, found = sent(servers)
    found.at(loop, moments(1000, 1004))
    found.at(loop, moments(1032, 1045))
    after = [[at for at in found.times[server] if at > 1032] for server in servers]

    assert all(len(times) == len({round(at) for at in times}) for times in after)
    assert 1.98 == pytest.approx(after[-1][-1] - after[0][-1], abs=0.03)


def test_servers_that_hang_hold_up_no_other():
    """With 60 servers of which 50 hang, those that answer are scraped again and again."""
    over = threading.Event()
    hanging = [Server(f"h{number}", 0.5, over) for number in range(50)]
    good = [Server(f"g{number}", 0.5) for number in range(10)]
    loop = ScrapeThread(SystemClock(), InternalErrors())
    try:
        loop.follow([*hanging, *good])
        until(lambda: all(len(server.times) >= 4 for server in good))
        until(lambda: all(server.times for server in hanging))
        scraped = {len(server.times) for server in hanging}
    finally:
        over.set()
        loop.request_stop()
        loop.join()

    assert {1} == scraped


def test_without_threads_the_loop_goes_on(monkeypatch):
    """Where the system gives no further thread it is said once, and a scrape is tried again when it is next due."""
    workers, server = ScrapeThread(SystemClock(), InternalErrors())._workers, Server("g")
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logged:
        patch.setattr(threading.Thread, "start", _refuse)
        workers.send(server, server)
        workers.send(server, server)
    workers.send(server, server)
    until(lambda: server.times)

    assert [("threads.start_failed", "scrape")] == [(entry["event"], entry["what"]) for entry in logged]


def _refuse(_thread):
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("is_awaited", [True, False])
def test_every_thread_ends_and_closes_what_it_opened(is_awaited):
    """A stop that comes at any moment, also within a turn, is not missed, and the thread itself closes at its end."""
    for moment in range(50):
        thread = Opening(moment % 5, is_awaited=is_awaited)
        thread.start()
        turns = min(moment % 3, 1 + thread.wakes)
        until(lambda thread=thread, turns=turns: thread.turns >= turns)
        thread.request_stop()
        thread.join()
        until(lambda thread=thread: thread.closed_by is not None)

        assert thread.closed_by is thread._thread
        thread._thread.join(SECONDS)
        assert not thread._thread.is_alive()


class Opening(ServiceThread):
    """A thread that would wait for an hour after each turn, and is woken a few times."""

    def __init__(self, wakes, *, is_awaited):
        super().__init__("opening", SystemClock(), InternalErrors())
        self.is_awaited = is_awaited
        self.wakes, self.turns, self.closed_by = wakes, 0, None

    def _turn(self):
        self.turns += 1
        if self.turns <= self.wakes:
            self.turn_now()
        return 3600.0

    def _close(self):
        assert self.closed_by is None
        self.closed_by = threading.current_thread()


def test_what_is_asked_in_a_turn_is_done_in_the_next():
    """An ask is taken by one turn; one that comes later, also while that turn runs, by another."""
    thread = Opening(0, is_awaited=True)
    thread.turn_now()
    assert [thread._take_asked(), thread._take_asked()] == [True, False]
    thread.turn_now()
    assert thread._take_asked()


def test_a_turn_that_raises_closes_too():
    """A fault that a thread does not survive leaves nothing open, and shows in its heartbeat."""
    thread = Opening(0, is_awaited=True)
    thread._turn = lambda: 1 / 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", lambda _: None)
        thread.start()
        thread._thread.join(SECONDS)

    assert thread.closed_by is thread._thread
