# SPDX-License-Identifier: Apache-2.0
"""Series of a long time in a file for promtool: what memory holds does not grow with the time, nor do silences."""

from __future__ import annotations

import itertools
import math
import subprocess
import tempfile

import pytest

from tests.reading.test_years import DAY, utc, written
from tests.support.recordings import RECORDINGS, log_file, snapshots
from tests.support.waiting import SECONDS

from vllm_watch.analysis.replay.finished_log import FinishedLog
from vllm_watch.analysis.replay.replay import SETTLED_SECONDS, SPARSE_SECONDS, read_to_end, run_logs
from vllm_watch.daemon.exposition import time_series_file
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.exposition.time_series_file import TimeSeriesFile
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import HistogramReading
from vllm_watch_parsers.scrape import Histogram


pytestmark = pytest.mark.slow


STEP = 5.0
FEW = 8
LOOK_BACK = 300.0
"""So long Prometheus shows a value after its sample."""


@pytest.fixture
def few_in_memory(monkeypatch):
    """Of each series few runs are kept in memory, and few moments are written at once."""
    monkeypatch.setattr(time_series_file, "RUNS_IN_MEMORY", FEW)
    monkeypatch.setattr(time_series_file, "MOMENTS_AT_ONCE", FEW)


def lines_of(file):
    """Return the lines of a file."""
    return "".join(file.texts()).splitlines()


@pytest.mark.usefixtures("few_in_memory")
def test_memory_holds_the_newest_only():
    """However many snapshots there are, so many runs of each series are in memory, and the others in the spool."""
    taken = [each for second, each in snapshots("dp1", step=5) if second in {90, 95}]
    with tempfile.TemporaryFile() as spool:
        file = TimeSeriesFile(spool)
        sizes = []
        for number in range(20 * FEW):
            file.add(taken[number % 2]._replace(at=taken[0].at + number))
            sizes.append(spool.seek(0, 2))
        held = {name: len(runs._pending) for name, runs in file._runs.items()}
        lines = [line for line in lines_of(file) if not line.startswith("#")]

    assert sizes[-1] > sizes[len(sizes) // 2] > 0
    assert max(held.values()) < FEW * (2 + 40)
    assert 0 < sum(size > 0 for size in held.values()) < len(held)
    assert file.samples == len(lines)


@pytest.mark.usefixtures("few_in_memory")
def test_what_was_spooled_is_written_in_order():
    """Every sample stands in the file once, each series' times ascend, and a moment's buckets stand together."""
    taken = [each._replace(at=each.at + 1000 * turn) for turn in range(3) for _, each in snapshots("vl", step=5.0)]
    with tempfile.TemporaryFile() as spool:
        spooled, in_memory = TimeSeriesFile(spool), TimeSeriesFile()
        for each in taken:
            spooled.add(each)
            in_memory.add(each)
        lines = lines_of(spooled)

        assert spool.tell() > 0
    times = {}
    for text in lines:
        if not text.startswith("#"):
            name, _, at = text.rsplit(" ", 2)
            assert float(at) > times.get(name, 0.0)
            times[name] = float(at)
    assert spooled.samples == sum(not text.startswith("#") for text in lines)
    assert lines == lines_of(in_memory)


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_sample_of_every_moment_is_written(name):
    """The file has what each snapshot shows at its time, and nothing else: also where series come and go."""
    file, expected = TimeSeriesFile(), []
    for _, snapshot in snapshots(name, step=5.0):
        file.add(snapshot)
        alone = TimeSeriesFile()
        alone.add(snapshot)
        expected += lines_of(alone)

    assert sorted({*expected}) == sorted({*lines_of(file)})
    assert len([line for line in expected if not line.startswith("#")]) == file.samples


def test_buckets_may_change():
    """A histogram with other bounds, for a while, has each moment's own buckets."""
    (snapshot,) = [each for second, each in snapshots("dp1", step=90) if second == 90]
    engine, *_ = snapshot.engines
    name, reading = next(iter(engine.histograms.items()))
    few = HistogramReading(Histogram((1.0, math.inf), (3.0, 4.0), 5.0), reading.at)
    other = engine._replace(totals=engine.totals._replace(histograms={name: few}))
    file = TimeSeriesFile()
    for at, each in enumerate((engine, engine, other, other, engine)):
        file.add(snapshot._replace(at=float(at), engines=(each,)))
    found = [line.rsplit(" ", 2) for line in lines_of(file) if line.startswith(f"vllm_watch_{name}_")]
    times = [at for _, _, at in found]

    assert ["3.0", "4.0", "4.0", "5.0"] == [value for _, value, at in found if at == "2.000"]
    assert times == sorted(times)
    assert len(reading.histogram.bounds) + 2 == times.count("0.000") == times.count("1.000") == times.count("4.000")


@pytest.fixture
def silent_log(tmp_path):
    """A log of two busy minutes, four months of silence, and two more minutes."""
    first, last = utc(2025, 10, 1, 12), utc(2026, 2, 1, 12)
    busy = [start + 10.0 * number for start in (first, last) for number in range(13)]
    return written(tmp_path / "vllm.log", busy)


def moments(log):
    """Return the moments of a log's snapshots."""
    state = ServerState(ServerSettings("x", has_log=True, metrics_interval=None))
    return [snapshot.at for snapshot in run_logs([str(log)], state, STEP)]


def test_silence_takes_few_snapshots(silent_log):
    """Four months of silence are a day of samples, as far apart as Prometheus bears, and then nothing."""
    found = moments(silent_log)
    gaps = [later - earlier for earlier, later in itertools.pairwise(found)]

    assert len(found) < 2 * 120 / STEP + SETTLED_SECONDS / STEP + DAY / SPARSE_SECONDS + 10
    assert 1 == sum(gap > LOOK_BACK for gap in gaps)
    assert {STEP} == {gap for gap in gaps if gap < SPARSE_SECONDS}
    assert [utc(2025, 10, 1, 12), utc(2026, 2, 1, 12) + 120] == [found[0], found[-1]]


def test_the_end_of_a_replayed_log_is_that_of_the_log_read_at_once():
    """Counters of a log's lines end the same, read line by line with snapshots in between or in one go."""
    of_the_file = {"log_lines_total", "log_bytes_total"}
    log = str(log_file("day"))
    replayed, read = (ServerState(ServerSettings("x", has_log=True, metrics_interval=None)) for _ in range(2))
    *_, last = run_logs([log], replayed, STEP)
    now = read_to_end(FinishedLog(log), read).end

    totals, expected = (
        {
            sample[:2]: sample.value
            for sample in server_samples(each)
            if sample.name.endswith("_total") and sample.name not in of_the_file
        }
        for each in (last, read.snapshot(now))
    )
    assert expected == totals
    assert 0 < totals["continuation_lines_total", ("x",)]


@pytest.mark.needs_tool("promtool")
def test_promtool_loads_a_log_with_silence(silent_log, tmp_path):
    """Blocks are made of the file, the first and the last minutes among them."""
    out = tmp_path / "out.om"
    with tempfile.TemporaryFile() as spool:
        file = TimeSeriesFile(spool)
        state = ServerState(ServerSettings("x", has_log=True, metrics_interval=None))
        for snapshot in run_logs([str(silent_log)], state, STEP):
            file.add(snapshot)
        out.write_text("".join(file.texts()))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", out, tmp_path / "data"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)

    assert 0 == result.returncode, result.stderr
    assert 2 <= len(list((tmp_path / "data").iterdir())) <= 40
