# SPDX-License-Identifier: Apache-2.0
"""The comparison of a run's figures with those that are kept."""

from __future__ import annotations

import msgspec
import pytest

from tests.benchmarks.__main__ import BENCHMARKS, KEPT, LONG
from tests.benchmarks.figures import (
    Change,
    Figure,
    Kept,
    KeptBenchmark,
    KeptFigure,
    Machine,
    compare,
    gone,
    keep,
    number,
    row,
)


MACHINE = Machine(2, "a processor", "3.11")


def figure(value, better="lower", **more):
    """Return a figure in seconds."""
    return Figure("start", value, more.pop("unit", "s"), better, **more)


def before(value, better="lower", unit="s"):
    """Return the same figure as it was."""
    return KeptFigure(value, unit, better)


@pytest.mark.parametrize(
    ("now", "then", "change"),
    [
        (figure(1.0), before(1.0), Change("same", 1.0)),
        (figure(1.2), before(1.0), Change("same", 1.2)),
        (figure(1.25), before(1.0), Change("worse", 1.25)),
        (figure(0.5), before(1.0), Change("better", 0.5)),
        (figure(8.0, "higher"), before(10.0, "higher"), Change("worse", 0.8)),
        (figure(9.0, "higher"), before(10.0, "higher"), Change("same", 0.9)),
        (figure(20.0, "higher"), before(10.0, "higher"), Change("better", 2.0)),
    ],
)
def test_more_than_a_fifth_is_told(now, then, change):
    """Up to a factor of 1.2 a figure is as before, in both directions; beyond it is better or worse."""
    assert change == compare(now, then, slower=1.0)


@pytest.mark.parametrize(
    ("now", "then", "change"),
    [
        (figure(0.0), before(0.0), Change("same", 1.0)),
        (figure(0.1), before(0.0), Change("worse")),
        (figure(0.0), before(0.1), Change("better", 0.0)),
        (figure(0.0, "higher"), before(3.0, "higher"), Change("worse", 0.0)),
        (figure(3.0, "higher"), before(0.0, "higher"), Change("better")),
    ],
)
def test_zero(now, then, change):
    """From or to nothing there is no percentage, and still a direction."""
    assert change == compare(now, then, slower=1.0)


def test_what_is_not_there():
    """A figure without a value is gone, one that was never kept is new, and what is only told is not compared."""
    assert Change("gone") == compare(figure(None), before(1.0), slower=1.0)
    assert Change("new") == compare(figure(1.0), None, slower=1.0)
    assert compare(figure(None), None, slower=1.0) is None
    assert compare(figure(1.0, None), before(1.0), slower=1.0) is None


def test_another_unit_is_another_figure():
    """Seconds are not compared with milliseconds, nor a figure with one whose direction was the other."""
    assert Change("new") == compare(figure(1.0), before(1.0, unit="ms"), slower=1.0)
    assert Change("new") == compare(figure(1.0), before(1.0, "higher"), slower=1.0)


def test_a_slower_machine_takes_more_processor_time():
    """Processor time is compared with what this machine takes for the work of then, and nothing else is."""
    assert Change("same", 1.0) == compare(figure(2.0, is_processor=True), before(1.0), slower=2.0)
    assert Change("worse", 2.0) == compare(figure(1.0, is_processor=True), before(1.0), slower=0.5)
    assert Change("worse", 2.0) == compare(figure(2.0), before(1.0), slower=2.0)


def test_noise_says_nothing():
    """A difference within a figure's noise is no change, however large its share is."""
    assert Change("same", 3.0) == compare(figure(3.0, noise=2.0), before(1.0), slower=1.0)
    assert Change("worse", 3.5) == compare(figure(3.5, noise=2.0), before(1.0), slower=1.0)
    assert Change("same") == compare(figure(0.1, noise=0.2), before(0.0), slower=1.0)


@pytest.mark.parametrize(
    ("value", "better", "goal", "misses"),
    [(1.0, "lower", 1.0, False), (1.1, "lower", 1.0, True), (6.0, "higher", 6.0, False), (5.9, "higher", 6.0, True)],
)
def test_a_goal(value, better, goal, misses):
    """A goal is missed on its wrong side only; without a value nothing is known."""
    assert misses == figure(value, better, goal=goal).misses_goal
    assert not figure(None, better, goal=goal).misses_goal


def test_what_is_kept_is_read_again():
    """What is kept is what has a value, with four digits; what is compared and not measured again is gone."""
    now = [figure(0.123456), Figure("told", 5.0, "s"), Figure("missing", None, "x", "higher")]
    kept = keep("0.1.0", "2026-11-22", MACHINE, {"start": (0.05, now)}, {})

    figures = {"start": before(0.1235), "told": before(5.0, None)}
    assert {"start": KeptBenchmark(0.05, figures)} == kept.benchmarks
    assert kept == msgspec.json.decode(msgspec.json.encode(kept), type=Kept)
    assert [] == list(gone({"start": now}, kept))
    assert ["start: start"] == list(gone({"start": [figure(None)]}, kept))
    assert ["start: start"] == list(gone({"start": []}, kept))
    assert [] == list(gone({"scrape": []}, kept))


def test_one_benchmark_can_be_kept_alone():
    """The figures of a benchmark that is run again take the place of its old ones; the others stay."""
    old = {name: KeptBenchmark(0.04, {"start": before(2.0)}) for name in ("start", "scrape")}
    kept = keep("0.1.0", "2026-11-22", MACHINE, {"start": (0.05, [figure(1.0)])}, old)

    assert {"start": KeptBenchmark(0.05, {"start": before(1.0)}), "scrape": old["scrape"]} == kept.benchmarks


def test_a_row():
    """A row has the value with its unit, a goal that is missed, the change in per cent, and the note."""
    told = row(figure(0.25, goal=0.15, note="median of 11"), Change("worse", 1.5))

    assert ["start", "0.25", "s", "≤", "0.15", "missed", "+50%", "worse", "median", "of", "11"] == told.split()
    assert ["start", "-", "gone", "no", "mtail"] == row(figure(None, note="no mtail"), Change("gone")).split()
    assert ["start", "2", "s", "-5%"] == row(figure(2.0), Change("same", 0.95)).split()


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (0.012345, "0.0123"), (99.94, "99.9"), (1.2e6, "1,200,000")])
def test_a_number(value, text):
    """Three digits are shown, and all before the point."""
    assert text == number(value)


def test_the_file_is_of_what_there_is():
    """The file of kept figures can be read, and has every benchmark that a whole run has."""
    kept = msgspec.json.decode(KEPT.read_bytes(), type=Kept)

    assert set(BENCHMARKS) - LONG == set(kept.benchmarks)
    assert all(benchmark.figures for benchmark in kept.benchmarks.values())
