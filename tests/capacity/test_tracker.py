# SPDX-License-Identifier: Apache-2.0
"""What an engine shows of its capacity while it runs: of what time, in bounded memory, and from anew after a start."""

from __future__ import annotations

import pytest

from vllm_watch.daemon.capacity.curve import LoadWindow, NoCurve, WindowCutter, draw_curve
from vllm_watch.daemon.capacity.load import LoadSample
from vllm_watch.daemon.capacity.saturation import MAX_STRETCHES, SaturationMeter
from vllm_watch.daemon.capacity.tracker import WINDOWS_PER_LEVEL, CapacityTracker


SEATS = {"max_running_requests": 24.0}
TOKENS = 100
"""What a request generates each second, in these tests."""


def work(running, seconds, queued=0.0, start=0.0, generated=0.0, step=5.0, tokens=TOKENS):
    """Return samples of an engine that has run so many requests since `start`, and the last one."""
    count = round(seconds / step)
    return [
        LoadSample(start + at * step, running, queued, 0.1, generated + tokens * running * at * step)
        for at in range(count + 1)
    ]


def measured(samples, facts=SEATS):
    """Return the capacity that samples show by saturation."""
    meter = SaturationMeter()
    for sample in samples:
        meter.add(sample)
    return meter.measured(facts)


def windows(samples):
    """Return the windows that count among samples."""
    cutter = WindowCutter()
    return [window for sample in samples if (window := cutter.add(sample)) is not None]


def test_the_first_and_the_last_window_of_work_do_not_count():
    """The window in which work begins and the last one are not steady; idle time is none."""
    busy = work(4.0, 60, start=30)
    idle = [LoadSample(at, 0.0, 0.0, 0.0, 0.0) for at in (0.0, 5.0, 10.0, 15.0, 20.0, 25.0)]
    after = [LoadSample(at, 0.0, 0.0, 0.0, busy[-1].generated) for at in (95.0, 100.0, 105.0, 110.0, 115.0, 120.0)]
    found = windows([*idle, *busy, *after])

    assert [pytest.approx(4.0)] * 3 == [window.running for window in found]
    assert [pytest.approx(400.0)] * 3 == [window.generated for window in found]


@pytest.mark.parametrize("queued", [0.0, 1.0], ids=["none", "one"])
def test_a_window_with_a_queue_does_not_count(queued):
    """Where requests wait for capacity the engine is not steady."""
    assert bool(windows(work(4.0, 90, queued))) == (not queued)


def test_a_start_and_a_silence_cut_windows():
    """What an engine did across a start, or in minutes without a sample, is not known."""
    restarted = [*work(4.0, 20), *work(4.0, 20, start=25)]
    silent = [*work(4.0, 20), *work(4.0, 20, start=400, generated=160_000)]

    assert [] == windows(restarted)
    assert [] == windows(silent)


@pytest.mark.parametrize(
    ("running", "seconds", "facts", "is_shown"),
    [
        (24.0, 60, SEATS, True),
        (24.0, 55, SEATS, False),
        (20.0, 300, SEATS, False),
        (24.0, 300, {}, False),
    ],
    ids=["a minute", "less", "a seat is free", "no limit known"],
)
def test_saturation_is_measured(running, seconds, facts, is_shown):
    """A minute in which requests wait because all seats are taken shows the capacity; nothing less does."""
    found = measured(work(running, seconds, queued=3.0), facts)

    assert (found is not None) == is_shown
    if found is not None:
        assert pytest.approx(2400.0) == found.generated


def test_a_short_pause_of_the_queue_is_within_a_saturation():
    """For a moment no request waits: that is one saturation, and its throughput is of all of it."""
    samples = [sample._replace(queued=0.0) if sample.at == 40.0 else sample for sample in work(24.0, 90, queued=2.0)]

    assert measured(samples).seconds == 90.0


def test_a_stalled_engine_shows_no_capacity():
    """While no token comes nothing is measured, however many requests wait."""
    assert measured(work(24.0, 600, queued=9.0, tokens=0)) is None


def test_the_seconds_of_a_stall_are_no_part_of_the_saturation_after_it():
    """Requests waited all through a stall: the capacity is that of the time from its end on, in full."""
    stalled = work(24.0, 90, queued=9.0, tokens=0)
    after = work(24.0, 100, queued=9.0, start=92.0)

    assert measured([*stalled, *after]).generated == pytest.approx(2400.0, rel=0.001)


def test_the_interval_in_which_a_stall_begins_is_no_part_of_the_saturation_before_it():
    """The last tokens before a stall came in some part of their interval: how fast is not known."""
    before = work(24.0, 100, queued=9.0)
    last = before[-1]
    begins = last._replace(at=last.at + 10, generated=last.generated + 2400.0)
    stalled = [begins._replace(at=begins.at + 10 * number) for number in range(1, 7)]

    assert measured([*before, begins, *stalled]).generated == pytest.approx(2400.0, rel=0.001)


def test_the_last_long_saturation_counts():
    """Five minutes are enough: later ones replace them, as lengths of requests change; a shorter one does not."""
    first = work(24.0, 300, queued=5.0)
    later = work(24.0, 310, queued=5.0, start=450, generated=first[-1].generated, tokens=50)
    short = work(24.0, 100, queued=5.0, start=900, generated=later[-1].generated, tokens=10)

    assert measured([*first, *later]).generated == pytest.approx(1200.0)
    assert measured([*first, *later, *short]).generated == pytest.approx(1200.0)


def test_memory_is_bounded():
    """Of weeks of work the last windows of each level are kept, and the last saturations."""
    tracker = CapacityTracker()
    generated = 0.0
    for turn in range(60):
        running = float(2 ** (turn % 6))
        samples = work(running, 600, float(turn % 2), turn * 700.0, generated)
        generated = samples[-1].generated
        for sample in samples:
            tracker.add(sample)

    assert max(len(kept) for kept in tracker._windows.values()) == WINDOWS_PER_LEVEL
    assert len(tracker._windows) <= 6
    assert len(tracker.meter.stretches) == MAX_STRETCHES


def test_what_is_learnt_is_the_same_until_something_changes():
    """Between two scrapes, and while there is nothing new, nothing is worked out again."""
    tracker = CapacityTracker()
    before = tracker.learnt(SEATS)
    for sample in work(8.0, 150.0):
        tracker.add(sample)

    assert tracker.learnt(SEATS) is before
    assert tracker.learnt({"max_running_requests": 8.0}) is not before


def window(running, **changes):
    """Return a window of an engine whose step takes 20 ms and half a millisecond for each request."""
    found = LoadWindow(running, running / (0.02 + 0.0005 * running), None, 0.1, False, 300.0, 250.0, 0.0, None)
    return found._replace(**changes)


LOADS = [window(running) for running in (1.0, 2.0, 4.0, 8.0, 20.0) for _ in range(6)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"is_preempted": True}, "preempted"),
        ({"length": 600.0}, "lengths_differ"),
        ({"prefix_hits": 0.5}, "prefix_hits_differ"),
        ({"acceptance_length": 4.0}, "acceptance_differs"),
    ],
)
def test_windows_that_differ_are_left_out(changes, reason):
    """A few windows with other requests do not count; with too many of them there is no estimate, and why is said."""
    known = [each._replace(acceptance_length=2.0) for each in LOADS]
    few = [*known[:-2], *(each._replace(**changes) for each in known[-2:])]
    many = [*known[:14], *(each._replace(**changes) for each in known[14:])]

    assert draw_curve(few, SEATS).at_limit == pytest.approx(24 / (0.02 + 0.0005 * 24))
    assert isinstance(found := draw_curve(many, SEATS), NoCurve)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ({"max_running_requests": 24.0, "kv_cache_capacity_tokens": 5000.0}, (20.0, "KV cache")),
        ({"max_running_requests": 16.0, "kv_cache_capacity_tokens": 5000.0}, (16.0, "max-num-seqs")),
        ({"kv_cache_capacity_tokens": 5000.0}, (20.0, "KV cache")),
    ],
)
def test_the_smaller_limit_counts(facts, limit):
    """What is full first limits the batch: the seats, or the KV cache by what each request holds of it."""
    held = [each._replace(kv_cache_usage=each.running / 20) for each in LOADS]

    assert draw_curve(held, facts).limit == pytest.approx(limit)


@pytest.mark.parametrize("facts", [{}, {"kv_cache_capacity_tokens": 250.0 * 1000}], ids=["nothing", "a large KV cache"])
def test_a_limit_that_is_not_known_is_not_guessed(facts):
    """Without --max-num-seqs a server has a limit of its own; a KV cache for more requests does not tell which."""
    empty = [each._replace(kv_cache_usage=0.0) for each in LOADS]

    assert draw_curve(empty, facts) == NoCurve("limit_unknown")
