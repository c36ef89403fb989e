# SPDX-License-Identifier: Apache-2.0
"""The values that rules are evaluated over, and what is made of the answers; without promtool."""

from __future__ import annotations

import gzip

import pytest

from tests.support.recordings import RECORDINGS

from vllm_watch.analysis.backtest.fired import Alert, intervals
from vllm_watch.analysis.backtest.promtool import NOTHING, STALE, values_text
from vllm_watch.analysis.backtest.series_grid import SeriesGrid, Subject, from_points, padded, together
from vllm_watch.analysis.backtest.subjects import SubjectOptions, file_sources, read_file_source
from vllm_watch.daemon.support.errors import FileError


LINE = (
    "(EngineCore_DP0 pid=1) INFO 11-21 {time} [loggers.py:257] Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg "
    "generation throughput: {rate} tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%, Prefix cache "
    "hit rate: 0.0%\n"
)
RATE = 'vllm_watch_generation_tokens_per_second{server="vllm",model_name="",engine="0"}'


def test_a_series_that_ends_is_stale_at_once():
    """Between two stretches of values there is one mark of staleness, and nothing before the first."""
    assert from_points({1: "5", 2: "5", 5: "7"}, 8) == [NOTHING, "5", "5", STALE, NOTHING, "7", STALE, NOTHING]
    assert padded([], 2) == [NOTHING, NOTHING]
    assert padded(["1"], 1) == ["1"]


def test_values_are_written_as_promtool_reads_them():
    """Equal values are one word, and what is no number stands alone."""
    values = ["1.5", "1.5", "1.5", NOTHING, NOTHING, STALE, "1e+06", "1e+06", "Inf", "Inf", "2"]

    assert values_text(values) == "1.5+0x2 _x2 stale 1e+06+0x1 Inf Inf 2"


def test_servers_of_one_recording_end_with_the_longest():
    """A server whose values end sooner is stale from then on."""
    grid = together([SeriesGrid(7.0, 1, {"a": ["1"]}), SeriesGrid(7.0, 3, {"b": ["2", "2", "2"]})])

    assert grid == SeriesGrid(7.0, 3, {"a": ["1", STALE, NOTHING], "b": ["2", "2", "2"]})


def test_times_move_with_the_clock_of_the_evaluation():
    """Only the values of series that are times are moved to where the evaluation begins."""
    series = {
        'x_timestamp_seconds{a="b"}': ["1700000010.0", STALE, NOTHING, "0.0"],
        "process_start_time_seconds": ["1700000000", "1700000000", "1700000000", "1700000000"],
        "x_timestamp_seconds_total": ["1700000010.0", "1700000010.0", "1700000010.0", "1700000010.0"],
    }
    moved = Subject("", SeriesGrid(1_700_000_000.0, 4, series), 5.0).in_virtual_time

    assert moved['x_timestamp_seconds{a="b"}'] == ["10.0", STALE, NOTHING, "0.0"]
    assert moved["process_start_time_seconds"] == ["0.0"] * 4
    assert moved["x_timestamp_seconds_total"] == series["x_timestamp_seconds_total"]


def test_intervals():
    """An alert lasts while each evaluation has its labels; the last may have no end."""
    one = (("__name__", "ALERTS"), ("alertname", "A"), ("alertstate", "firing"), ("severity", "info"), ("x", "1"))
    two = (("__name__", "ALERTS"), ("alertname", "B"), ("alertstate", "firing"))
    dog = (("__name__", "ALERTS"), ("alertname", "Watchdog"), ("alertstate", "firing"))
    answers = {0: {dog: 1.0}, 15: {one: 1.0}, 30: {one: 1.0, two: 1.0}, 45: {two: 1.0}, 60: {one: 1.0, two: 1.0}}

    assert list(intervals(answers)) == [
        Alert("A", "info", {"x": "1"}, 15, 45),
        Alert("B", "", {}, 30, None),
        Alert("A", "info", {"x": "1"}, 60, None),
    ]


class TestLogs:
    """Old logs as series."""

    @pytest.fixture
    def rotated(self, tmp_path):
        """A log of two files, the older one compressed, with an hour of silence between them."""
        log = tmp_path / "vllm.log"
        older = "".join(LINE.format(time=f"02:00:{second:02d}", rate="30.0") for second in range(0, 60, 10))
        newer = "".join(LINE.format(time=f"03:00:{second:02d}", rate="60.0") for second in range(0, 60, 10))
        (tmp_path / "vllm.log.1.gz").write_bytes(gzip.compress(older.encode()))
        log.write_text(newer)
        return log

    def test_a_rotated_log_is_one_source(self, rotated):
        """The parts of a log are read in order, and its values have a step even where nothing was printed."""
        (source,) = file_sources([str(rotated)])
        subject = read_file_source(source, SubjectOptions(step=10.0))
        values = subject.grid.series[RATE]

        assert subject.grid.steps == 366
        assert subject.seconds == 3650
        assert (values[1], values[-1]) == ("30.0", "60.0")
        assert STALE in values  # In the silence.
        states = [name for name in subject.grid.series if "engine_state" in name]
        assert states
        for step in range(1, 366):
            assert sum(subject.grid.series[name][step] == "1.0" for name in states) <= 1
        assert all(value not in {STALE, NOTHING} for value in subject.grid.series[states[0]][1:])

    def test_what_is_no_source(self, tmp_path):
        """Results of benchmarks and texts of anything else have no alerts."""
        (tmp_path / "result.json").write_text('{"backend": "vllm", "completed": 3, "request_throughput": 1.0}')
        (tmp_path / "notes.txt").write_text("buy milk\n")

        with pytest.raises(FileError, match=r"notes\.txt: no line of a vLLM server's log is in it"):
            read_file_source(*file_sources([str(tmp_path / "notes.txt")]), SubjectOptions())
        with pytest.raises(FileError, match="is a benchmark's result: here a server's log or a recording is needed"):
            file_sources([str(tmp_path / "result.json")])

    def test_each_source_is_there_once(self, rotated):
        """A source that is named twice is read once, and recordings come before logs."""
        log, played = str(rotated), str(RECORDINGS["stall"])

        assert [source.name for source in file_sources([log, played, log])] == [played, log]
