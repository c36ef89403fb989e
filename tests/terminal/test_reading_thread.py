# SPDX-License-Identifier: Apache-2.0
"""The thread that reads: it says what is lost and since when, recovers by itself, and holds nobody up."""

from __future__ import annotations

import json
import threading

import pytest

from tests.support.waiting import SECONDS, until
from tests.terminal.documents import body, fleet

from vllm_watch.cli.terminal.frames import Frame, Lost
from vllm_watch.cli.terminal.reading_thread import RECENT_POINTS, ReadingThread
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import DaemonError, WrongDaemonError


class Reader:
    """A source that gives what the test has put there: a document or what makes one, an error, or nothing at all."""

    title = "made up"
    is_settled = True

    def __init__(self, given):
        self.given = given
        self.asked = []
        self.reads = 0
        self.is_closed = threading.Event()

    def start(self):
        """Do nothing."""

    def read(self, hours):
        """Return or raise what is there."""
        self.asked.append(hours)
        self.reads += 1
        if self.given is None:
            self.is_closed.wait(SECONDS)
            raise DaemonError("closed")
        if isinstance(self.given, Exception):
            raise self.given
        return self.given(self.reads) if callable(self.given) else self.given

    def close(self):
        """End a read."""
        self.is_closed.set()


@pytest.fixture
def reading():
    """Return a function that starts a thread on what a source gives."""
    threads = []

    def start(given, *, delay=0.01, only=None):
        reader = Reader(given)
        thread = ReadingThread(reader, SystemClock(), delay, only)
        threads.append(thread)
        thread.start()
        return reader, thread

    yield start
    for thread in threads:
        thread.stop()
        assert not thread._thread.is_alive()


def test_what_is_lost_comes_back(reading):
    """A source that fails is lost since its first failure, with the last frame; once it answers there is a new one."""
    reader, thread = reading(body("serving"))
    first = until(thread.latest)
    reader.given = DaemonError("gone")
    lost = until(lambda: isinstance(thread.latest(), Lost) and thread.latest())
    reads = reader.reads
    until(lambda: reader.reads > reads + 2)

    assert isinstance(first, Frame)
    assert thread.latest() is lost  # The same object: nothing is to be drawn again.
    assert (lost.reason, lost.last.servers[0].name) == ("gone", "day")
    assert lost.last.received <= lost.since <= thread.now()
    reader.given = DaemonError("still gone, differently")
    assert until(lambda: thread.latest().reason != "gone" and thread.latest()).since == lost.since
    reader.given = body("idle")
    assert until(lambda: isinstance(thread.latest(), Frame) and thread.latest()).servers[0].state == "idle"


def test_a_mistake_of_our_own_is_said(reading):
    """A mistake of our own is told in words, and the thread goes on."""
    reader, thread = reading(RuntimeError("oops"))
    lost = until(thread.latest)

    assert "inside this program: RuntimeError('oops')" in lost.reason
    assert (lost.last, lost.is_final) == (None, False)
    reader.given = body("idle")
    until(lambda: isinstance(thread.latest(), Frame))


@pytest.mark.parametrize(
    ("given", "reason"),
    [(b"<html>", "not what a vllm-watch answers"), (WrongDaemonError("it asks for a user name"), "asks for a user")],
)
def test_what_was_never_right_is_final_and_what_was_is_not(reading, given, reason):
    """What is no vllm-watch, or rejects us, is not asked again if it never answered; what has answered before is."""
    _, never = reading(given)
    until(lambda: never.latest() and not never._thread.is_alive())
    reader, thread = reading(body("idle"))
    until(thread.latest)
    reader.given = given
    lost = until(lambda: isinstance(thread.latest(), Lost) and thread.latest())
    reader.given = body("serving")
    until(lambda: isinstance(thread.latest(), Frame))

    assert reason in never.latest().reason
    assert (never.latest().last, never.latest().is_final, lost.is_final) == (None, True, False)


def test_a_source_that_never_answers_holds_nobody_up(reading):
    """Nothing is known until the first answer, and the end does not wait for it."""
    reader, thread = reading(None)
    until(lambda: reader.reads)

    assert thread.latest() is None
    thread.stop()
    assert thread.latest() is None


def test_recent_readings_are_kept(reading):
    """The numbers of the last readings are there, the latest last, not more than are shown, each moment once."""
    reader, thread = reading(lambda reads: json.dumps({**fleet("idle"), "at": reads // 2}).encode(), delay=0.001)
    until(lambda: reader.reads > 2 * RECENT_POINTS + 5)
    (server,) = thread.latest().servers

    assert len(server.recent) == RECENT_POINTS
    assert len({point.at for point in server.recent}) == RECENT_POINTS
    assert server.recent[-1] == server.now
    assert server.hour


def test_only_the_servers_that_are_shown_have_their_hour(reading):
    """The last hour of a server is read once it is shown, and at once."""
    document = fleet("idle", "serving")
    reader, thread = reading(json.dumps(document).encode(), delay=3600)
    until(thread.latest)
    thread.show_hours({"idle"})
    until(lambda: len(reader.asked) > 1)

    assert reader.asked[:2] == [frozenset(), frozenset({"idle"})]


def test_the_delay_can_be_skipped(reading):
    """A wish to read now ends the present delay; subscribers hear of each frame."""
    _, thread = reading(body("serving"), delay=3600)
    until(thread.latest)
    heard = threading.Event()
    thread.subscribe(heard.set)
    thread.read_now()
    assert heard.wait(SECONDS)


def test_a_server_that_is_not_there(reading):
    """A chosen server that the source does not have is final, with those that it has; if it has none it may come."""
    _, thread = reading(body("serving"), only="nobody")
    _, empty = reading(json.dumps({"at": 1.0, "servers": []}).encode(), only="nobody")

    assert until(thread.latest)[1:] == ('there is no server "nobody"; there are: "day"', None, True)
    assert until(empty.latest)[1:] == ('there is no server "nobody"; there are: none', None, False)
