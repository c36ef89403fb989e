# SPDX-License-Identifier: Apache-2.0
"""Series of a long time in a file for promtool: what memory holds does not grow with the time, nor do silences."""

from __future__ import annotations

import itertools
import subprocess
import tempfile

import pytest

from tests.reading.test_years import DAY, utc, written
from tests.support.recordings import RECORDINGS, snapshots

from vllm_watch.exposition import openmetrics
from vllm_watch.exposition.openmetrics import TimeSeriesFile
from vllm_watch.exposition.samples import server_samples
from vllm_watch.replay.replay import SETTLED_SECONDS, SPARSE_SECONDS, read_to_end, run_log
from vllm_watch.state.server import ServerSettings, ServerState


pytestmark = pytest.mark.slow


STEP = 5.0
FEW = 8
PROMTOOL_SECONDS = 120
LOOK_BACK = 300.0
"""So long Prometheus shows a value after its sample."""


@pytest.fixture
def few_points(monkeypatch):
    """Of each series few points are kept in memory."""
    monkeypatch.setattr(openmetrics, "POINTS_IN_MEMORY", FEW)


@pytest.mark.usefixtures("few_points")
def test_memory_holds_the_newest_points_only():
    """However many snapshots there are, so many points of each series are in memory, and the rest in the spool."""
    (snapshot,) = [each for second, each in snapshots("dp1", step=90) if second == 90]
    with tempfile.TemporaryFile() as spool:
        file = TimeSeriesFile(spool)
        for number in range(5 * FEW + 3):
            file.add(snapshot._replace(at=snapshot.at + number))
        series = len({text.rsplit(" ", 2)[0] for text in file.lines() if not text.startswith("#")})
        spooled = spool.seek(0, 2) // 16

    assert series > 100
    assert file.samples - spooled <= FEW * series


@pytest.mark.usefixtures("few_points")
def test_what_was_spooled_is_written_in_order():
    """Every sample stands in the file once, each series' times ascend, and a moment's buckets stand together."""
    taken = [each._replace(at=each.at + 1000 * turn) for turn in range(3) for _, each in snapshots("vl", step=5.0)]
    with tempfile.TemporaryFile() as spool:
        spooled, in_memory = TimeSeriesFile(spool), TimeSeriesFile()
        for each in taken:
            spooled.add(each)
            in_memory.add(each)
        lines = list(spooled.lines())

        assert spool.tell() > 0
    times = {}
    for text in lines:
        if not text.startswith("#"):
            name, _, at = text.rsplit(" ", 2)
            assert float(at) > times.get(name, 0.0)
            times[name] = float(at)
    assert spooled.samples == sum(not text.startswith("#") for text in lines)
    assert lines == list(in_memory.lines())


@pytest.fixture
def silent_log(tmp_path):
    """A log of two busy minutes, four months of silence, and two more minutes."""
    first, last = utc(2025, 10, 1, 12), utc(2026, 2, 1, 12)
    busy = [start + 10.0 * number for start in (first, last) for number in range(13)]
    return written(tmp_path / "vllm.log", busy)


def moments(log):
    """Return the moments of a log's snapshots."""
    state = ServerState(ServerSettings("x", has_log=True, metrics_interval=None))
    return [snapshot.at for snapshot in run_log(str(log), state, STEP)]


def test_silence_takes_few_snapshots(silent_log):
    """Four months of silence are a day of samples, as far apart as Prometheus bears, and then nothing."""
    found = moments(silent_log)
    gaps = [later - earlier for earlier, later in itertools.pairwise(found)]

    assert len(found) < 2 * 120 / STEP + SETTLED_SECONDS / STEP + DAY / SPARSE_SECONDS + 10
    assert 1 == sum(gap > LOOK_BACK for gap in gaps)
    assert {STEP} == {gap for gap in gaps if gap < SPARSE_SECONDS}
    assert [utc(2025, 10, 1, 12), utc(2026, 2, 1, 12) + 120] == [found[0], found[-1]]


def test_values_settle_before_snapshots_get_fewer(silent_log):
    """Where snapshots are far apart nothing changes between them: a longer look at each moment says the same."""
    state = ServerState(ServerSettings("x", has_log=True, metrics_interval=None))
    said = {}
    for snapshot in run_log(str(silent_log), state, STEP):
        engine = snapshot.engines[0]
        since = snapshot.at - utc(2025, 10, 1, 12) - 120
        if SETTLED_SECONDS <= since < 2 * DAY:
            said[engine.state, tuple(sorted(engine.gauges)), snapshot.sources[0].reason] = since

    assert 1 == len(said)


def test_the_end_of_a_replayed_log_is_that_of_the_log_read_at_once():
    """Counters of a log's lines end the same, read line by line with snapshots in between or in one go."""
    of_the_file = {"log_lines_total", "log_bytes_total"}
    log = str(RECORDINGS["day"] / "vllm.log")
    replayed, read = (ServerState(ServerSettings("x", has_log=True, metrics_interval=None)) for _ in range(2))
    *_, last = run_log(log, replayed, STEP)
    now = read_to_end(log, read)

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
        for snapshot in run_log(str(silent_log), state, STEP):
            file.add(snapshot)
        out.write_text("".join(file.lines()))
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", out, tmp_path / "data"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROMTOOL_SECONDS)

    assert 0 == result.returncode, result.stderr
    assert 2 <= len(list((tmp_path / "data").iterdir())) <= 40
