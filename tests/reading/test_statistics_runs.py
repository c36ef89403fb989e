# SPDX-License-Identifier: Apache-2.0
"""Of long runs of statistics only some lines are read, and what is known after them is the same."""

from __future__ import annotations

import math

from typing import NamedTuple

import pytest

from hypothesis import example, given
from hypothesis import strategies as st
from tests.parsers.lines import SPEC_MESSAGE, STATS_MESSAGE, TIME, record

from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.parsed_text import parse_text
from vllm_watch.daemon.reading.statistics_runs import without_middles
from vllm_watch.daemon.reading.times import PrintedTimes
from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import LogStatus, TailCounts


END = 1_795_302_000.0
API = "(APIServer pid=7) "
FIRST = b'INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK'
OTHERS = [
    b"INFO:     Application startup complete.",
    b"INFO:     Shutting down",
    record("vLLM API server version 0.12.0", "api_server.py", process=API),
    record("EngineCore encountered a fatal error.", "core.py", "ERROR", "(EngineCore_DP0 pid=9) "),
    record(STATS_MESSAGE.replace("12.3", "nan"), process=API),
    record("1 Engines Aggregated: " + STATS_MESSAGE.partition(": ")[2], process=API),
]


class Printed(NamedTuple):
    """What an engine prints at one moment, `seconds` after the one before; no drafts without `drafted`."""

    seconds: int
    prompt: str
    generation: str
    drafted: int | None


BUSY = Printed(10, "12.3", "45.6", 400)
DECODING = BUSY._replace(prompt="0.0")
INTERVALS = st.builds(
    Printed,
    st.sampled_from([10, 10, 10, 1, 40, 41, 0, -3]),
    st.sampled_from(["12.3", "0.0"]),
    st.sampled_from(["45.6", "45.6", "45.6", "0.0"]),
    st.sampled_from([None, 400, 400, 0]),
)
RUNS = st.tuples(
    st.sampled_from([API, "(ApiServer_0 pid=7) ", "(ApiServer_1 pid=8) ", ""]),
    st.sampled_from(["000", "001"]),
    st.one_of(
        st.lists(INTERVALS, max_size=9),
        st.lists(st.sampled_from([1, 10, 40]), max_size=24).map(
            lambda gaps: [DECODING._replace(seconds=x) for x in gaps]
        ),
        st.tuples(INTERVALS, st.integers(1, 50)).map(lambda found: [found[0]] * found[1]),
    ),
    st.sampled_from([[], *([line] for line in OTHERS)]),
)


def printed(process: str, engine: str, clock: int, interval: Printed) -> list[bytes]:
    """Return the lines that a process prints so many seconds after two o'clock."""
    stats = STATS_MESSAGE.replace("Engine 000", f"Engine {engine}").replace("Running: 7", f"Running: {clock}")
    stats = stats.replace("12.3", interval.prompt).replace("45.6", interval.generation)
    lines = [record(stats, process=process)]
    if interval.drafted is not None:
        drafts = SPEC_MESSAGE.replace("Drafted: 400", f"Drafted: {interval.drafted}")
        lines.append(record(drafts.replace("Accepted: 300", f"Accepted: {clock}"), "metrics.py", process=process))
    now = f"11-21 {2 + clock // 3600:02}:{clock // 60 % 60:02}:{clock % 60:02}"
    return [line.replace(TIME.encode(), now.encode()) for line in lines]


def log_of(runs) -> list[bytes]:
    """Return the lines of some runs, one after the other."""
    lines, clock = [FIRST], 3000
    for process, engine, intervals, others in runs:
        for interval in intervals:
            clock += interval.seconds
            lines += printed(process, engine, clock, interval)
        lines += others
    return lines


def batches(lines: list[bytes]) -> tuple[LogBatch, LogBatch]:
    """Return what all lines report, and what those do that are kept of them."""
    text = b"".join(line + b"\n" for line in lines)
    readers = LogReader(), LogReader()
    for reader in readers:
        reader.read([FIRST], times())
    return readers[0].read_text(text, times()), readers[1].read_parsed(parse_text(text, 0), times())


def times() -> PrintedTimes:
    """Return the times of lines between two and five o'clock."""
    return PrintedTimes("11-21 05:00:00", END, "11-21 02:00:00")


@given(st.lists(RUNS, min_size=1, max_size=5))
@example([(API, "000", [BUSY], [b"INFO:     Shutting down"]), (API, "000", [DECODING] * 30, [])])
@example([(API, "000", [DECODING._replace(seconds=gap) for gap in [30] * 9 + [10, 10, 40, 40, 40]], [])])
def test_what_is_known_is_the_same(runs):
    """After any statistics, starts and ends: the last lines, how often they come, the server's life, and the sums."""
    one, other = LogSource(), LogSource()
    for log, batch in zip((one, other), batches(log_of(runs)), strict=True):
        log.apply(batch)

    assert one.engines == other.engines
    assert [known.step_times.recent(known.stats_at) for known in one.engines.values()] == [
        known.step_times.recent(known.stats_at) for known in other.engines.values()
    ]
    assert one.token_at == other.token_at
    assert one.totals.counters("0", 0.0) == other.totals.counters("0", 0.0)
    assert (one.life.phase, one.life.phase_at) == (other.life.phase, other.life.phase_at)
    assert one.counts(END) == other.counts(END)


@given(st.lists(RUNS, min_size=1, max_size=3), st.booleans())
@example([(API, "000", [BUSY], [b"INFO:     Shutting down"]), (API, "000", [], [OTHERS[3]])], False)
def test_what_is_shown_is_the_same(runs, keeps_stale):
    """Soon, when lines are stale, when engines stall, and after more lines."""
    every, kept = batches(log_of(runs))
    # Time does not go back: the moment of the last line is asked of a state of its own.
    states = [ServerState(ServerSettings("vllm", True, None, keeps_stale=keeps_stale)) for _ in range(3)]
    more = LogReader().read(printed(API, "000", 7300, Printed(0, "1.0", "1.0", 4)), times())
    for state, batch in zip(states, (every, kept, every), strict=True):
        state.apply_log_status(LogStatus(True, "ok", TailCounts()))
        state.apply_log(batch)
    one, other, at_end = states
    last = at_end.snapshot(END).sources[0].last_reading or END

    for later in (0, 25, 31, 100, 400, 2000):
        assert one.snapshot(last + later) == other.snapshot(last + later)
    for state in (one, other):
        state.apply_log(more)
    assert one.snapshot(more.end + 45) == other.snapshot(more.end + 45)


@pytest.mark.parametrize("drafted", [None, 400])
def test_the_middle_of_a_run_is_not_read(drafted):
    """Of ten minutes the first seconds and the last minutes are left, and the middle's drafts are one sum."""
    lines = log_of([(API, "000", [Printed(10, "12.3", "45.6", drafted)] * 59, [])])[1:]
    found = list(without_middles(lines))
    sums = [each for each in found if math.isnan(float(each.event[1] or "nan"))]

    assert len(found) < len(lines) * 3 / 4
    assert [400 * (59 - (len(found) - 1) // 2)] * bool(drafted) == [each.event.drafted_tokens for each in sums]


def test_the_last_minutes_of_an_earlier_run_are_not_read():
    """Only the last run of an engine in a block is shown with its last minutes: steps of others are too old by then."""
    busy = [Printed(10, "12.3", "45.6", None)] * 59
    alone, twice = ([(API, "000", busy, [])] * count for count in (1, 2))
    pause = [(API, "000", [Printed(10, "0.0", "0.0", None)], [])]
    once, both = (len(list(without_middles(log_of(runs)[1:]))) for runs in (alone, alone + pause + alone))

    assert len(list(without_middles(log_of(twice)[1:]))) < once + 20
    assert once < both < once + 20


@pytest.mark.parametrize("lines", [[], [b""], OTHERS, [b"\xff\xfe", "é".encode()]])
def test_other_lines_are_left_as_they_are(lines):
    """Whatever their bytes are."""
    assert lines == list(without_middles(lines))
