# SPDX-License-Identifier: Apache-2.0
"""When which log is polled and which folders are watched: simulated, at times that the test gives."""

from __future__ import annotations

import random

import pytest

from vllm_watch.daemon.service.poll_schedule import (
    FEW_GROWTHS,
    MANY_EVENTS,
    POLL_SECONDS,
    PROMPT_POLLS,
    REST_SECONDS,
    WINDOW_SECONDS,
    BusyFolders,
    PollSchedule,
)


class Machine:
    """
    A thread that polls as the schedule says, and a kernel that notifies it; neither takes time.

    `polls` are the times of each log's polls, `delays` how long each line waited for its poll.
    """

    def __init__(self, *logs, notified=True):
        self.schedule = PollSchedule()
        self.now = 1000.0
        self.logs = logs
        self.notified = notified
        self.unread = {log: [] for log in logs}
        self.polls = {log: [] for log in logs}
        self.delays = []

    def run(self, lines, seconds):
        """Write lines, given as times and logs, and poll for so many seconds."""
        self.schedule.follow(self.logs)
        end = self.now + seconds
        lines = sorted(((self.now + at, log) for at, log in lines), reverse=True)
        changed = set()
        while self.now < end:
            for log in self.schedule.take_due(changed, self.now):
                self.poll(log)
            changed = set()
            due = self.now + self.schedule.wait(self.now)
            if lines and lines[-1][0] <= due:
                at, log = lines.pop()
                self.unread[log].append(at)
                self.now = max(self.now, at)
                if self.notified:
                    changed.add(log)
                    due = self.now + self.schedule.pause(self.now)
                while lines and lines[-1][0] <= due:
                    at, log = lines.pop()
                    self.unread[log].append(at)
                    if self.notified:
                        changed.add(log)
                if not self.notified:
                    continue
            self.now = due

    def poll(self, log):
        """Read all that is there."""
        self.polls[log].append(self.now)
        self.delays += [self.now - at for at in self.unread[log]]
        self.unread[log] = []


def every(seconds, count, log="a"):
    """Return lines of one log at a steady pace."""
    return [(0.5 + number * seconds, log) for number in range(count)]


def test_rare_lines_are_read_at_once():
    """Lines half a second to two seconds apart wait for nothing, wherever they fall between two polls by the clock."""
    chance = random.Random(1)
    at, lines = 0.5, []
    for _ in range(200):
        at += chance.uniform(0.5, 2.0)
        lines.append((at, "a"))
    machine = Machine("a")
    machine.run(lines, at + 2)

    assert 200 == len(machine.delays)
    assert 0 == max(machine.delays)


def test_a_few_lines_at_once_are_read_at_once():
    """A line of statistics and the line after it do not wait for each other."""
    machine = Machine("a")
    machine.run([(0.5, "a"), (0.501, "a"), (0.52, "a")], 2)

    assert [0, 0, 0] == machine.delays


@pytest.mark.parametrize("rate", [10, 20, 100, 500, 5000])
@pytest.mark.parametrize("notified", [True, False])
def test_lines_that_come_often_share_polls(rate, notified):
    """However many lines there are, there is a poll in each second, and no line waits for longer."""
    machine = Machine("a", notified=notified)
    machine.run(every(1 / rate, rate * 10), 12)
    polls = [at for at in machine.polls["a"] if at >= 1002]

    assert rate * 10 == len(machine.delays)
    assert 10 + PROMPT_POLLS >= len(polls)
    assert POLL_SECONDS + 1e-6 >= max(machine.delays)


def test_only_the_log_that_has_changed_is_polled():
    """A log that changes does not have the others polled more often than by the clock."""
    machine = Machine("a", "b", "c")
    machine.run(every(1.3, 7), 10)

    assert 7 + 7 <= len(machine.polls["a"])
    assert 10 + 1 >= len(machine.polls["b"]) == len(machine.polls["c"])


def test_every_log_is_polled_every_second():
    """Without any notification, and while other logs are busy, no log waits for longer than a second."""
    machine = Machine("a", "b")
    machine.run(every(0.02, 400), 10)
    pauses = [later - at for at, later in zip(machine.polls["b"], machine.polls["b"][1:], strict=False)]

    assert POLL_SECONDS + 0.02 + 1e-6 >= max(pauses)


def test_who_asks_has_all_logs_polled():
    """A notification may be late, and some file systems send none; the next poll by the clock is a second later."""
    schedule = PollSchedule()
    schedule.follow(["a", "b"])
    schedule.take_due([], 0.0)
    assert ["a", "b"] == schedule.take_due(["b"], 0.7, is_asked=True)
    assert POLL_SECONDS == pytest.approx(schedule.wait(0.7))
    assert ["b"] == schedule.take_due(["b"], 1.2)


def test_what_is_not_read_to_its_end_is_read_on_at_once():
    """A backlog is read without a pause, and the other logs are polled meanwhile."""
    schedule = PollSchedule()
    schedule.follow(["a", "b"])
    assert ["a", "b"] == schedule.take_due([], 0.0)
    schedule.poll_soon(["a"])
    assert 0 == schedule.wait(0.1)
    assert ["a"] == schedule.take_due([], 0.1)
    schedule.poll_soon(["a"])
    assert {"a", "b"} == set(schedule.take_due(["b"], 0.2))

    assert 0 < schedule.wait(0.3)


def test_new_logs_are_polled_at_once_and_old_ones_forgotten():
    """After a reload every log is polled, and nothing is polled that is not followed any more."""
    schedule = PollSchedule()
    schedule.follow(["a", "b"])
    schedule.take_due([], 0.0)
    schedule.poll_soon(["a", "b"])
    schedule.follow(["b", "c"])
    assert 0 == schedule.wait(0.01)
    assert ["b", "c"] == schedule.take_due([], 0.01)
    schedule.poll_soon(["c"])
    schedule.follow(["b"])
    schedule.take_due([], 0.02)

    assert POLL_SECONDS == pytest.approx(schedule.wait(0.02))


def test_a_pause_ends_when_another_poll_is_due():
    """A notification does not wait beyond the next poll by the clock, in which its log is polled anyway."""
    schedule = PollSchedule()
    schedule.follow(["a"])
    schedule.take_due([], 0.0)
    for _ in range(2 * PROMPT_POLLS):
        schedule.take_due(["a"], 0.95)

    assert POLL_SECONDS - 0.95 == pytest.approx(schedule.pause(0.95))


def test_no_notification_waits_for_longer_than_one_pause():
    """Polls by the clock between notifications do not lengthen the next pause."""
    schedule = PollSchedule()
    schedule.follow(["a"])
    for number in range(100):
        schedule.take_due(["a"], number / 100)
    schedule.take_due(["a"], 1.01)

    assert POLL_SECONDS + 1e-6 >= schedule.pause(1.01)


class TestBusyFolders:
    """Folders with many events are not watched for a while."""

    def test_few_events_change_nothing(self):
        """A line in each second is no load, for however long."""
        folders = BusyFolders()
        for second in range(100):
            folders.note_events({"/logs": 1}, float(second))

        assert frozenset() == folders.current

    def test_a_busy_folder_rests_until_its_logs_are_quiet(self):
        """A folder with many events rests for as long as its logs grow often, and is then watched again."""
        folders = BusyFolders()
        folders.note_events({"/logs": MANY_EVENTS}, 0.0)
        assert {"/logs"} == folders.current
        for _ in range(FEW_GROWTHS):
            folders.note_growth(["/logs"])
        folders.review(REST_SECONDS)
        assert {"/logs"} == folders.current
        folders.note_growth(["/logs"])
        folders.review(2 * REST_SECONDS - 0.1)
        assert {"/logs"} == folders.current
        folders.review(2 * REST_SECONDS)

        assert frozenset() == folders.current

    def test_many_folders_with_some_events_each_rest_together(self):
        """What costs time is the number of all events; a folder with a single one is not the cause."""
        folders = BusyFolders()
        folders.note_events({f"/{number}": 2 for number in range(MANY_EVENTS // 2)} | {"/quiet": 1}, 0.0)

        assert {f"/{number}" for number in range(MANY_EVENTS // 2)} == folders.current

    def test_events_of_long_ago_do_not_count(self):
        """Only events within one window are added up."""
        folders = BusyFolders()
        for number in range(10):
            folders.note_events({"/logs": MANY_EVENTS - 1}, number * WINDOW_SECONDS)

        assert frozenset() == folders.current
