# SPDX-License-Identifier: Apache-2.0
"""Series of a long time in a file for promtool: silences take no room."""

from __future__ import annotations

import itertools
import math
import subprocess

import pytest

from tests.reading.test_years import DAY, utc, written
from tests.support.recordings import RECORDINGS, log_file, snapshots
from tests.support.waiting import SECONDS

from vllm_watch.analysis.replay.finished_log import FinishedLog
from vllm_watch.analysis.replay.replay import SETTLED_SECONDS, SPARSE_SECONDS, read_to_end, run_logs
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.exposition.time_series_file import TimeSeriesFile
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import HistogramReading
from vllm_watch_parsers.scrape import Histogram


pytestmark = pytest.mark.slow


STEP = 5.0
LOOK_BACK = 300.0
"""So long Prometheus shows a value after its sample."""


def lines_of(file):
    """Return the lines of a file."""
    return "".join(file.texts()).splitlines()


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
    file = TimeSeriesFile()
    state = ServerState(ServerSettings("x", has_log=True, metrics_interval=None))
    for snapshot in run_logs([str(silent_log)], state, STEP):
        file.add(snapshot)
    out.write_text("".join(file.texts()))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", out, tmp_path / "data"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)

    assert 0 == result.returncode, result.stderr
    assert 2 <= len(list((tmp_path / "data").iterdir())) <= 40
