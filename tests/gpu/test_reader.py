# SPDX-License-Identifier: Apache-2.0
"""When the daemon asks for readings of the GPUs, how long it waits, and when it starts another child process."""

from __future__ import annotations

import threading

import pytest

from structlog.testing import capture_logs
from tests.support.patience import USUAL
from tests.support.waiting import HandClock

from vllm_watch.daemon.catalog.reasons import GPU
from vllm_watch.daemon.gpu import reader as reader_module
from vllm_watch.daemon.gpu.device import reason_of
from vllm_watch.daemon.gpu.reader import DEADLINE, FIRST_DEADLINE, GpuReader, Said


def reading(*gpus, unopened="{}"):
    """Return what a child says of some GPUs, by UUID and state."""
    made = ",".join(
        f'{{"gpu":"{uuid}","number":{number},"name":"A","pci_bus_id":"0000:18:00","mig":false,"state":"{state}",'
        '"values":{"gpu_busy_ratio":0.5},"processes":null}'
        for number, (uuid, state) in enumerate(gpus)
    )
    return f'{{"driver_version":"1","gpus":[{made}],"unopened":{unopened},"listed_at":7,"seconds":0.25}}\n'.encode()


def failure(code):
    """Return what a child says that cannot read the GPUs."""
    return b'{"code":%d,"what":"nvmlInit returned %d"}\n' % (code, code)


ONE = reading(("GPU-1", "ok"))


@pytest.fixture(autouse=True)
def _usual_patience(monkeypatch):
    """Wait for an answer as long as the daemon does: the clock is moved by the test."""
    monkeypatch.setattr(reader_module, "PATIENCE", USUAL["daemon.gpu.reader", "PATIENCE"])


class ScriptedChild:
    """A child that answers as the script says: a line, nothing (``None``), or by ending (``""``)."""

    def __init__(self, now, script):
        self._now = now
        self._script = script
        self._said = []
        self.changed = threading.Event()
        self.is_over = self.is_closed = self.hangs = False
        self.asked = 0

    def ask(self):
        """Note the request, and take the next answer of the script."""
        self.asked += 1
        answer = self._script.pop(0)
        self.hangs = answer is None
        if answer == b"":
            self.is_over = True
        elif answer is not None:
            self.say(answer)

    def say(self, line):
        """Print a line."""
        self._said.append(Said(line, self._now()))

    def take(self):
        """Return what it said."""
        said, self._said = self._said, []
        return said

    def close(self):
        """Note the end, which comes at once unless it hangs."""
        self.is_closed = True
        self.is_over = self.is_over or not self.hangs


class World:
    """A reader with a clock that a test moves; each child begins with the next script."""

    def __init__(self, *scripts):
        self.clock = HandClock()
        self.children = []
        self._scripts = list(scripts)
        self.reader = GpuReader(self.clock, start=self._start)

    def _start(self, now):
        self.children.append(ScriptedChild(now, self._scripts.pop(0)))
        return self.children[-1]

    def report(self, after=5.0):
        """Return a report, some seconds later."""
        self.clock.time += after
        return self.reader.report()

    def seconds_until_next_child(self):
        """Return how long it takes until the next child is started, to the second."""
        there, began = len(self.children), self.clock.time
        while len(self.children) == there:
            self.report(1.0)
            assert self.clock.time < began + 5000
        return round(self.clock.time - began)


def test_a_report_has_the_newest_reading_and_its_time():
    """The report says when the reading came and how long it took; one child is asked once for each report."""
    world = World([ONE, ONE])
    before = world.clock.time

    first, second = world.report(), world.report()

    assert (first.reason, first.at, first.duration, [each.gpu for each in first.gpus]) == (
        "ok", before + 5, 0.25, ["GPU-1"],
    )  # fmt: skip
    assert second.at > first.at
    assert (len(world.children), world.children[0].asked) == (1, 2)


def test_the_first_reading_has_a_minute_and_each_later_one_ten_seconds():
    """Until its deadline has passed a call that does not return is only slow: the earlier report stands, as of then."""
    world = World([None], [])
    assert [world.report(0).reason for _ in range(int(FIRST_DEADLINE))][-1] == "starting"
    assert world.report(1).reason == "call_hangs"

    world = World([ONE, None])
    first = world.report()
    reports = [world.report(0) for _ in range(int(DEADLINE))]
    assert {each.at for each in reports} == {first.at}
    assert world.report(1).reason == "call_hangs"


def test_a_child_that_hangs_is_left_alone_and_its_late_answer_is_not_a_reading():
    """However long a call hangs, there is no second child; its answer began too long ago, and the next one counts."""
    world = World([ONE, None, ONE])
    world.report()
    hanging = [world.report().reason for _ in range(100)]
    world.children[0].say(ONE)
    late, next_one = world.report(), world.report()

    assert hanging[5:] == ["call_hangs"] * 95
    assert (len(world.children), world.children[0].asked, world.children[0].is_closed) == (1, 3, False)
    assert (late.reason, next_one.reason) == ("call_hangs", "ok")


def test_a_child_that_was_closed_while_it_hangs_has_no_other_beside_it():
    """Reading is turned off and on again while a call hangs: the next child is started when that one has ended."""
    world = World([ONE, None], [ONE])
    world.report()
    world.report(DEADLINE + 1)
    for _ in range(3):
        world.report(DEADLINE + 1)
        world.reader.close()
    assert (world.report(100).reason, len(world.children)) == ("call_hangs", 1)
    world.children[0].is_over = True

    assert (world.report().reason, len(world.children)) == ("ok", 2)


def test_an_answer_that_is_not_understood_ends_the_child():
    """It waits for a request that would never come: another one is started soon, and the log has what it said."""
    world = World([ONE, reading(("GPU-1", "unknown"))], [ONE])
    with capture_logs() as logs:
        assert [world.report().reason for _ in range(3)] == ["ok", "reader_ended", "ok"]

    assert world.children[0].is_closed
    assert "unknown" in logs[1]["detail"]


@pytest.mark.parametrize(("code", "reason"), [(12, "no_library"), (9, "no_driver"), (999, "access_lost")])
def test_what_fails_is_tried_more_and_more_rarely_until_it_succeeds(code, reason):
    """After 1, 2, 4 … 300 s, as the interval allows; after a success it begins anew, and each child is closed."""
    world = World([ONE, failure(code)], *[[failure(code)] for _ in range(9)], [ONE, failure(code)], [ONE])
    world.report()
    assert world.report().reason == reason
    waits = [world.seconds_until_next_child() for _ in range(10)]

    assert [round(wait, -1) for wait in waits[4:]] == [20, 30, 60, 130, 260, 300]
    assert world.reader.report().reason == reason
    assert world.seconds_until_next_child() <= 2
    assert all(child.is_closed for child in world.children[:-1])


def test_a_child_that_ends_is_replaced_and_its_last_words_are_logged():
    """A child that ends by an error of its own is reported, with the error in the daemon's log."""
    world = World([None], [ONE])
    with capture_logs() as logs:
        world.report(0)
        for line in (b"Traceback (most recent call last):\n", b"TypeError: no\n"):
            world.children[0].say(line)
        world.children[0].is_over = True
        ended = world.report(0)
        world.report(10)

    assert ended.reason == "reader_ended"
    assert [(each["reason"], each["detail"], each["log_level"]) for each in logs] == [
        ("reader_ended", "TypeError: no", "warning"),
        ("ok", "", "info"),
    ]


def test_a_gpu_that_the_driver_no_longer_shows_is_lost():
    """A GPU that was read and is missing is reported as lost, also when none is left; an instance may go."""
    first, second, third, mig = ("GPU-1", "reset_required"), ("GPU-2", "ok"), ("GPU-3", "ok"), ("MIG-1", "ok")
    world = World([reading(first, second, third, mig), reading(second), reading()])
    states = [[(each.gpu, each.state, len(each.values)) for each in world.report().gpus] for _ in range(3)]

    broken, lost = ("GPU-1", "reset_required", 0), [(uuid, "lost", 0) for uuid in ("GPU-2", "GPU-3")]
    assert sorted(states[1]) == [broken, ("GPU-2", "ok", 1), lost[1]]
    assert sorted(states[2]) == [broken, *lost]


def test_a_driver_without_gpus_and_gpus_that_cannot_be_opened_are_told():
    """No GPU is a reason of its own; one that cannot be opened is in the log once."""
    world = World([reading(unopened='{"1":15}'), reading(unopened='{"1":15}')])
    with capture_logs() as logs:
        assert [world.report().reason, world.report().reason] == ["no_gpus", "no_gpus"]

    assert [(each["event"], each.get("codes_by_number")) for each in logs] == [
        ("gpu.not_opened", {1: 15}), ("gpu.changed", None),
    ]  # fmt: skip


def test_without_the_extra_nothing_is_started(monkeypatch):
    """Where nvidia-ml-py is not installed, that is the reason, and there is no child."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    world = World()

    assert [world.report().reason for _ in range(3)] == ["no_module"] * 3
    assert [] == world.children


def test_a_child_that_cannot_be_started_is_a_reason():
    """No process can be made: the reason says that the reader ended, and it is tried again."""

    def fail(_):
        raise OSError("no memory")

    reader = GpuReader(HandClock(), start=fail)
    assert reader.report().reason == "reader_ended"
    reader.close()


@pytest.mark.parametrize(
    ("code", "at_first", "later"),
    [
        (4, "no_permission", "access_lost"),
        (8, "no_driver", "access_lost"),
        (9, "no_driver", "no_driver"),
        (12, "no_library", "no_library"),
        (17, "no_permission", "access_lost"),
        (18, "driver_mismatch", "driver_mismatch"),
        (28, "no_gpus", "no_gpus"),
        (999, "no_permission", "access_lost"),
    ],
)
def test_each_code_has_a_reason(code, at_first, later):
    """What a code means depends on whether the GPUs could be read before; each reason is one of the list."""
    assert (reason_of(code, was_read=False), reason_of(code, was_read=True)) == (at_first, later)
    assert {at_first, later} <= GPU.keys()
