# SPDX-License-Identifier: Apache-2.0
"""Loads are found in a history, and cut where a client measured."""

from __future__ import annotations

import pytest

from tests.loadtest.histories import START, MadeUpServer, log_of, recorded
from tests.loadtest.load_tests import FOLDER

from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import Side
from vllm_watch.analysis.loadtest.loads import find_loads, load_between
from vllm_watch.analysis.loadtest.report_sources import read_report
from vllm_watch.analysis.loadtest.runs import server_runs
from vllm_watch.analysis.loadtest.server_history import Growth
from vllm_watch.analysis.replay.recording import Recording


def generated(load):
    """Return the tokens of a load."""
    return Growth(load.points).counter("generation_tokens_total")


def test_an_idle_time_divides_loads():
    """Ten idle seconds are between two loads of many requests, as a line of zeros in a log is."""
    server = MadeUpServer().idle(10).work(60, 8).idle(10).work(60, 8).idle(40).work(30, 8).idle(10)
    loads = find_loads(server.points)

    assert [round(load.end - load.start) for load in loads] == [60, 60, 30]
    assert [generated(load) for load in loads] == [6000, 6000, 3000]


def test_nine_tests_with_short_pauses_are_nine():
    """The tests of an afternoon in one history are told apart, each with its own tokens."""
    server = MadeUpServer().idle(10)
    for number in range(9):
        server.work(30 + 2 * number, 4 + number).idle(20)

    assert [round(load.end - load.start) for load in find_loads(server.points)] == [30 + 2 * each for each in range(9)]


def test_a_warm_up_is_no_test():
    """A load that ends shortly before one of four times its length and tokens is no run; a step of a sweep is one."""
    warmed_up = MadeUpServer().idle(10).work(20, 8).idle(26).work(100, 8).idle(20).work(30, 8).idle(10)
    sweep = MadeUpServer().idle(10).work(60, 1, tokens_per_second=20).idle(20).work(60, 8).idle(10)

    assert [round(run.end - run.start) for run in server_runs(warmed_up.history())] == [100, 30]
    assert [round(run.end - run.start) for run in server_runs(sweep.history())] == [60, 60]


def test_a_burst_of_seconds_is_a_test(tmp_path):
    """Sixteen tests of 20 to 212 requests, of one to four seconds each, are told apart, twelve of them by the log."""
    bursts = Recording(FOLDER / "bursts.jsonl.xz")
    (tmp_path / "vllm.log").write_bytes(log_of(bursts))
    requests = [100, 100, 100, 26, 32, 44, 68, 92, 116, 140, 164, 212]

    scraped = read_report([str(bursts.path)])
    logged = read_report([str(tmp_path / "vllm.log")])

    assert [run.result.successful for run in logged.runs] == requests
    assert [run.result.successful for run in scraped.runs] == [*requests, 20, 100, 100, 100]
    assert all(run.may_be_shorter for run in (*logged.runs, *scraped.runs) if run.name != "bursts (10)")


def test_what_no_point_shows_is_not_zero(tmp_path):
    """A hundred requests between two lines ran at once in a number that nobody saw, and no comparison is made of it."""
    bursts = Recording(FOLDER / "bursts.jsonl.xz")
    (tmp_path / "vllm.log").write_bytes(log_of(bursts))
    burst = read_report([str(tmp_path / "vllm.log")]).runs[1]

    pair = compare_pair(Side(name="a", runs=(burst,)), Side(name="b", runs=(burst,)))

    assert (burst.result.successful, burst.use.running, burst.use.max_running, burst.use.max_waiting) == (
        100,
        *[None] * 3,
    )
    assert "Runs of b are too short for how often the server was seen: give the benchmark's results." in pair.reasons


def test_a_light_load_is_one():
    """Requests one after another, with pauses longer than they are, are one load; half a minute is between two."""
    server = MadeUpServer().idle(10)
    for _ in range(6):
        server.work(6, 1, tokens_per_second=4).idle(20)
    server.idle(20).work(60, 1).idle(10)

    assert [round(load.end - load.start) for load in find_loads(server.points)] == [136, 60]


def test_a_time_without_points_divides_loads():
    """Two tests with nothing between them, as in a Prometheus, are two loads; where work goes on it is one."""
    server, busy = MadeUpServer().idle(10).work(60, 8).idle(4), MadeUpServer().idle(10).work(120, 8).idle(10)
    server.at += 3600
    server.work(60, 8).idle(10)
    without_middle = [point if point.at < START + 60 else point._replace(at=point.at + 3600) for point in busy.points]

    assert [round(load.end - load.start) for load in find_loads(server.points)] == [60, 60]
    assert [generated(load) for load in find_loads(server.points)] == [6000, 6000]
    assert [round(load.end - load.start) for load in find_loads(without_middle)] == [3720]


def test_a_load_begins_and_ends_where_its_tokens_do():
    """Between scrapes the begin is where the first tokens came from, at the rate of the next ones."""
    server = MadeUpServer(step=10.0).idle(20).work(60, 8).idle(20)
    first = server.points[3]
    server.points[3] = first._replace(
        counters={
            **first.counters,
            "generation_tokens_total": 500.0,
            "prompt_tokens_total": 1000.0,
            "prompt_tokens_computed": 1000.0,
        }
    )
    load = find_loads(server.points)[0]

    assert load.start == pytest.approx(server.points[3].at - 10 * 500 / 1500, abs=0.1)


def test_a_client_s_window_is_cut_at_idle_points():
    """The requests of a warm-up before it and of a test after it are not in it."""
    server = MadeUpServer().idle(10).work(10, 4).idle(6).work(40, 8).idle(6).work(20, 8).idle(6)
    load = load_between(server.points, START + 26.4, START + 65.9)

    assert load is not None
    assert generated(load) == 4000
    assert (load.start, load.end) == (START + 26.4, START + 65.9)


def test_a_silence_before_a_window_is_its_edge():
    """A log prints nothing while the server is idle: its last line before the test is the edge, however old it is."""
    server = MadeUpServer(step=10.0).idle(20).work(20, 8)
    server.at += 600
    server.work(60, 8).idle(20)
    load = load_between(server.points, START + 631, START + 699)

    assert load is not None
    assert generated(load) == 6000


@pytest.mark.parametrize(("name", "begin", "end"), [("queue", 45, 315), ("stall", 35, 180), ("deadkill", 184, 250)])
def test_the_loads_of_recordings(name, begin, end):
    """The load of each recording is where its description has it, to a scrape."""
    history = recorded(name)
    load = max(find_loads(history.points), key=generated)
    start = history.points[0].at

    assert load.start - start == pytest.approx(begin, abs=6)
    assert load.end - start == pytest.approx(end, abs=6)


def test_a_request_that_fails_as_the_server_dies_is_in_the_load():
    """The engine died with one request, which no scrape saw under way: it is a failed one of this load."""
    (run,) = server_runs(recorded("dead"))

    assert (run.result.successful, run.result.failed) == (30, 1)
    assert not any("went down under load" in warning for warning in run.warnings)


def test_of_a_server_that_was_killed_failures_are_not_known():
    """A server that is killed counts no failures: their number is absent, and a warning says how many at least."""
    (run,) = server_runs(recorded("deadkill"))

    assert (run.result.successful, run.result.failed) == (35, None)
    assert "The server went down under load: at least 40 requests have no answer." in run.warnings
