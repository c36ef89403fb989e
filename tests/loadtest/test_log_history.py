# SPDX-License-Identifier: Apache-2.0
"""The history of a finished log: every part of it, in order, and as many tokens as /metrics counted."""

from __future__ import annotations

import gzip

import pytest

from tests.loadtest.histories import log_of, recorded
from tests.support.recordings import bodies_of, recording

from vllm_watch.analysis.loadtest import history_builder
from vllm_watch.analysis.loadtest.replayed_history import read_logs
from vllm_watch.analysis.loadtest.report_sources import find_logs
from vllm_watch.analysis.loadtest.runs import server_runs
from vllm_watch.analysis.loadtest.server_history import DRAFTED, GENERATED
from vllm_watch_parsers.scrape import read_metrics


def read(*paths):
    """Return the history of a log's parts."""
    return read_logs([str(path) for path in paths], "log", "log", lambda moment: moment)


@pytest.fixture
def written(tmp_path):
    """Write what is printed of a server, or the logs of recordings one after the other, and return the file."""

    def write(*logs):
        path = tmp_path / "vllm.log"
        path.write_bytes(b"".join(log if isinstance(log, bytes) else log_of(recording(log)) for log in logs))
        return path

    return write


def split(tmp_path, data, at=(0.3, 0.7)):
    """Write a log as rotation leaves it: a compressed part, one that is not, and the present one."""
    cuts = [data.index(b"\n", int(len(data) * share)) + 1 for share in at]
    (tmp_path / "vllm.log.2.gz").write_bytes(gzip.compress(data[: cuts[0]]))
    (tmp_path / "vllm.log.1").write_bytes(data[cuts[0] : cuts[1]])
    (tmp_path / "vllm.log").write_bytes(data[cuts[1] :])
    return tmp_path


@pytest.mark.parametrize("name", ["busy", "queue", "acceptance", "sustained"])
def test_tokens_are_those_that_metrics_counted(written, name):
    """The sum of the log's rates differs from the counter by less than one per cent."""
    engines = read_metrics(bodies_of(name)[-1]).engines.values()
    logged = read(written(name)).points[-1].counters

    for counted, of in (("generation_tokens", GENERATED), ("drafted_tokens", DRAFTED)):
        assert logged[of] == pytest.approx(sum(engine.counters[counted] for engine in engines), rel=0.01)


def test_rotated_parts_are_one_log(tmp_path):
    """The log's own path finds its parts, and in any order they give what the whole log gives."""
    data = log_of(recording("busy"))
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "vllm.log").write_bytes(data)
    folder = split(tmp_path, data)
    (name, files), *others = find_logs([str(folder / "vllm.log")]).items()

    assert (name, others) == (str(folder / "vllm.log"), [])
    assert sorted(files) == [str(folder / each) for each in ("vllm.log", "vllm.log.1", "vllm.log.2.gz")]
    whole = [(point.at, point.state, point.counters) for point in read(tmp_path / "whole" / "vllm.log").points]
    for parts in (files, files[::-1]):
        assert [(point.at, point.state, point.counters) for point in read(*parts).points] == whole


def test_a_silence_shows_the_stall(written):
    """A log that ends with work and no token is stalled half a minute later, although no line says so."""
    assert "stalled" in {point.state for point in read(written("stall")).points}


def test_a_long_log_takes_no_more_points(written, monkeypatch):
    """Above the limit every second point is dropped; counters stay, and the history says how coarse it is."""
    path = written("sustained")
    whole = read(path)
    monkeypatch.setattr(history_builder, "MAX_POINTS", 12)
    coarse = read(path)

    assert len(coarse.points) <= 12 < len(whole.points)
    assert coarse.points[-1].counters == whole.points[-1].counters
    assert "The history is long" in coarse.warnings[-1]


def test_the_first_line_of_statistics_counts(written):
    """A test that begins right after the start has its first ten seconds, too."""
    data = log_of(recording("busy"))
    first = data.index(b"Avg generation throughput: ")
    rate = float(data[first:].split(b" ")[3])
    points = read(written(data[: data.index(b"\n", first) + 1])).points

    assert points[0].counters["generation_tokens_total"] == 0
    assert points[-1].counters["generation_tokens_total"] == pytest.approx(10 * rate)


def test_a_log_that_begins_with_the_test_counts_as_metrics_do(written):
    """Cut at the last line before a load, its first gap is a pause: the line after it has tokens of ten seconds."""
    data = log_of(recording("stall"))
    before = data.rindex(b"\n", 0, data.index(b"throughput: 0.0 tokens/s, Running: 1")) + 1
    found = read(written(data[before:]))
    counted = [point.counters[GENERATED] for point in recorded("stall").points if point.counters]

    assert found.points[-1].counters[GENERATED] == pytest.approx(counted[-1] - counted[12], rel=0.001)


def test_a_log_that_begins_during_the_load_says_so(written):
    """Its first line of statistics has no line before it: its tokens are not the load's, and that is said."""
    lines = log_of(recording("busy")).splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if b"Avg generation" in line)
    said = [server_runs(read(written(*part)))[0].warnings for part in (lines, lines[at:])]

    assert ["begins during the load" in " ".join(each) for each in said] == [False, True]


def test_a_start_with_other_flags_begins_anew(written):
    """The flags of a history are those of its end, and it is known since when; of one life it is all its time."""
    last, alone = read(written("busy", "queue")), read(written("queue"))
    started = next(point.at for point in last.points if point.process == last.points[-1].process)

    assert (last.config["max-num-seqs"], alone.config_since) == ("4", 0.0)
    assert last.points[0].at < last.config_since == started < last.points[-1].at
    assert read(written("busy", "acceptance")).config_since == 0.0
