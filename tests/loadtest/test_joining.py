# SPDX-License-Identifier: Apache-2.0
"""The client's view and the server's are joined to one run, if they are of one test."""

from __future__ import annotations

import msgspec
import pytest

from tests.loadtest.histories import START, MadeUpServer
from tests.loadtest.load_tests import FOLDER

from vllm_watch.analysis.loadtest.joining import join
from vllm_watch.analysis.loadtest.load_test import Latency, Load, Result, Run, ServerUse
from vllm_watch.analysis.loadtest.report_sources import read_report
from vllm_watch.analysis.loadtest.run_capacity import latency_turn, requests_in_flight
from vllm_watch.analysis.loadtest.runs import MAX_RUNS


def client(start, seconds, tokens, name="result.json", ttft=500.0):
    """Return a client's run; without a start its time is not known."""
    result = Result(
        view="client",
        successful=tokens // 10,
        failed=0,
        duration_s=seconds,
        total_input_tokens=2 * tokens,
        total_output_tokens=tokens,
        output_throughput=tokens / seconds,
        request_throughput=tokens / 10 / seconds,
        ttft_ms=Latency(mean=ttft),
        e2el_ms=Latency(mean=600.0),
    )
    times = {} if start is None else {"start": START + start, "end": START + start + seconds}
    load = Load(max_concurrency=8, mean_input_tokens=20.0, mean_output_tokens=10.0)
    return Run(source=(name,), name=name, load=load, result=result, views=(result,), **times)


def server():
    """Return a server with a warm-up and a test: 100 tokens at 10 s, 4000 at 26 s for 40 s."""
    return MadeUpServer().idle(10).work(2, 4, tokens_per_second=50).idle(14).work(40, 8).idle(20)


def test_both_views_are_one_run():
    """The result is the client's, the server's is beside it, and what only the server knows is there."""
    (run,) = join([client(26.2, 39.6, 4000)], [server().history()]).runs

    assert run.source == ("result.json", "made up")
    assert [view.view for view in run.views] == ["client", "server"]
    assert run.result is run.views[0]
    assert (run.views[1].successful, run.views[1].total_output_tokens) == (400, 4000)
    assert (run.version, run.config, run.use.max_running) == ("0.32.0", {"max-num-seqs": "24"}, 8)
    assert run.load.max_concurrency == 8
    assert {phase.phase for phase in run.phases} >= {"idle", "ramp"}


@pytest.mark.parametrize("hours", [8, -5, 5.75])
def test_clocks_that_differ_by_a_zone_are_matched(hours):
    """A client in another zone is matched by what it counted, and that is said."""
    (run,) = join([client(26.2 + 3600 * hours, 39.6, 4000)], [server().history()]).runs

    assert run.start == pytest.approx(START + 26.2)
    assert f"differ by {-hours:+g} h" in run.warnings[0]


def test_a_result_without_a_date_is_matched_by_its_shape():
    """What was printed has no date: the load with its tokens is its own."""
    (run,) = join([client(None, 39.6, 4000)], [server().history()]).runs

    assert run.start == pytest.approx(START + 26.4, abs=2)
    assert run.views[1].total_output_tokens == 4000
    assert "has no date" in run.warnings[0]


def test_two_loads_of_one_shape_match_nothing():
    """Which of two equal loads a result without a date is of cannot be known."""
    twice = MadeUpServer().idle(10).work(40, 8).idle(60).work(40, 8).idle(20)
    runs = join([client(None, 39.6, 4000)], [twice.history()]).runs

    assert len(runs) == 3
    assert "Nothing in made up is at this run's time" in runs[-1].warnings[0]


@pytest.mark.parametrize(("names", "expected"), [(("a", "a"), 1), (("a", "b"), 2), (("a", None), 1)])
def test_two_servers_with_one_load_are_two_runs(names, expected):
    """Behind a load balancer two servers count equal tokens at one time; by their names they are not one server."""
    histories = [
        server().history()._replace(server=name, source=f"range {number}") for number, name in enumerate(names)
    ]

    assert len(join([], histories).runs) == expected


def test_others_on_the_server_are_told():
    """If the server counted more than the client, somebody else used it, or a clock is wrong."""
    (run,) = join([client(26.2, 39.6, 2000)], [server().history()]).runs

    assert len(run.views) == 2
    assert "others used the server" in run.warnings[0]


def test_json_and_printed_block_of_one_test_are_one_run():
    """The printed block adds what only it has, and is no run of its own."""
    printed = client(None, 39.601, 4000, "printed.txt")
    printed = msgspec.structs.replace(printed, load=Load(temperature=0.0))
    (run,) = join([printed, client(26.2, 39.6, 4000)], []).runs

    assert run.source == ("result.json", "printed.txt")
    assert (run.load.temperature, run.load.max_concurrency) == (0.0, 8)


def test_a_result_and_the_recording_that_holds_it_are_one_run():
    """The same numbers at the same time are counted once; another test of the same load is a run of its own."""
    once = client(26.2, 39.6, 4000)
    again = msgspec.structs.replace(once, source=("test.jsonl.xz: result.json",))

    assert [run.source for run in join([once, again], []).runs] == [("result.json", "test.jsonl.xz: result.json")]
    assert len(join([once, client(26.2, 39.7, 4000, "other.json")], []).runs) == 2
    assert len(join([once, client(126.2, 39.6, 4000, "later.json")], []).runs) == 2


def test_a_recording_and_its_log_are_one_server():
    """A second history of the same server at the same time adds a source and no run."""
    history = server().history()
    log = server().history("vllm.log")._replace(has_metrics=False)
    (run,) = join([], [log, history]).runs
    (both,) = join([client(26.2, 39.6, 4000)], [log, history]).runs

    assert set(run.source) == {"made up", "vllm.log"}
    assert set(both.source) == {"result.json", "made up", "vllm.log"}


def test_a_slow_client_is_told():
    """If the client saw first tokens much later than the server had them, the numbers are the client's."""
    (run,) = join([client(26.2, 39.6, 4000, ttft=1500.0)], [server().history()]).runs

    assert any(
        "The client saw the first token after 1.5 s on average, its server had it after 500 ms" in each
        for each in run.warnings
    )


def of_loads(*loads):
    """Return a server with several loads of (requests at once, tokens per second), and their clients."""
    made_up, clients = MadeUpServer().idle(40), []
    for running, tokens in loads:
        began = made_up.at - START
        made_up.work(60, running, tokens_per_second=tokens).idle(40)
        run = client(began + 0.2, 59.6, round(60 * tokens), f"{running}.json")
        e2el = Latency(mean=1000 * running / (tokens / 10))
        clients.append(msgspec.structs.replace(run, result=msgspec.structs.replace(run.result, e2el_ms=e2el)))
    return join(clients, [made_up.history()])


def test_a_plateau_of_several_runs_is_the_capacity():
    """Where more requests at once give no more throughput, that is what the server sustains."""
    report = of_loads((1, 100), (4, 330), (8, 500), (16, 600), (24, 605))

    assert len(report.runs) == 5
    for run in report.runs:
        assert run.capacity.basis == "bench"
        assert run.capacity.tokens_per_second == pytest.approx(600, rel=0.02)
        assert run.capacity.low < 600 < run.capacity.high


def test_a_rate_that_is_kept_is_no_plateau():
    """Five runs at one rate that the server keeps up with show what was sent, and not what it sustains."""
    paths = [str(FOLDER / f"prefix-off-run{number}.jsonl.xz") for number in range(1, 6)]

    assert [run.capacity for run in read_report(paths).runs] == [None] * 5


def test_latency_turns_where_power_is_highest():
    """Up to there more requests at once gain more throughput than they cost latency."""
    turn = of_loads((1, 100), (4, 390), (8, 500), (16, 600), (24, 605)).latency_turn

    assert turn.run == "4.json"
    assert turn.output_throughput == pytest.approx(390, rel=0.02)


def test_what_others_send_does_not_move_the_turn():
    """Requests at once are those of the client, as its latency is; the server's gauges count those of others, too."""
    (run,) = of_loads((4, 390)).runs
    busy = msgspec.structs.replace(run, use=ServerUse(running=100.0))

    assert requests_in_flight(busy) == pytest.approx(4, rel=0.02)
    assert requests_in_flight(msgspec.structs.replace(busy, result=None)) == 100.0


def test_what_is_left_out_has_few_tokens():
    """A load of 2 % of the largest one's tokens is no run, and that is the reason that is told."""
    made = MadeUpServer().idle(10).work(200, 8).idle(60).work(40, 8, tokens_per_second=10.0).idle(10)
    report = join([], [made.history()])

    assert len(report.runs) == 1
    assert "2 loads found, 1 left out for few tokens beside the next or the largest: " in report.left_out


def test_more_loads_than_are_shown_are_not_called_small():
    """Of more loads than a report has room for the largest are shown, and that is the reason that is told."""
    made = MadeUpServer().idle(10)
    for _ in range(52):
        made.work(20, 8).idle(70)
    report = join([], [made.history()])

    assert len(report.runs) == MAX_RUNS
    assert f"because no more than the {MAX_RUNS} largest are shown: " in report.left_out


def test_printed_results_with_other_latencies_are_of_other_runs():
    """Two results without a date that agree in counts and duration, and not in latency, are of two tests."""
    runs = [client(None, 39.6, 4000, name=f"{ttft}.txt", ttft=ttft) for ttft in (500.0, 500.005, 510.0)]

    assert [run.source for run in join(runs, []).runs] == [("500.0.txt", "500.005.txt"), ("510.0.txt",)]


def test_lower_bounds_turn_no_latency():
    """A run of the server's view whose rate is only a lower bound is not among those of which latency turns."""
    runs = of_loads((1, 100), (4, 390), (8, 500), (16, 600)).runs
    short = [
        msgspec.structs.replace(run, may_be_shorter=True, result=msgspec.structs.replace(run.result, view="server"))
        for run in runs
    ]

    assert latency_turn(runs).run == "4.json"
    assert latency_turn([runs[0], short[1], *runs[2:]]).run == "8.json"


def test_a_run_has_the_configuration_of_its_life():
    """A run before a start with other flags has those of before; runs of both are not of one configuration."""
    before = MadeUpServer(max_num_seqs=4).idle(10).work(40, 4).idle(90)
    after = MadeUpServer(max_num_seqs=16)
    after.at = before.at
    after.idle(10).work(40, 16).idle(20)
    points = (*before.points, *(point._replace(process=1) for point in after.points[1:]))
    lives = {number: made.history().life(0) for number, made in enumerate((before, after))}
    history = after.history()._replace(points=points, lives=lives)
    report = join([], [history])

    assert [run.config["max-num-seqs"] for run in report.runs] == ["4", "16"]
    assert [run.max_running_requests for run in report.runs] == [4, 16]


def test_a_load_of_two_configurations_has_none():
    """What a server had that was started with other flags during the load is not told."""
    made = MadeUpServer().idle(10).work(80, 8).idle(20)
    points = tuple(point._replace(process=int(point.at > START + 50)) for point in made.points)
    lives = {0: made.history().life(0), 1: made.history().life(0)._replace(config={"max-num-seqs": "16"})}
    (run,) = join([], [made.history()._replace(points=points, lives=lives)]).runs

    assert (run.config, run.max_running_requests, run.capacity) == ({}, None, None)
    assert any("started with another configuration" in note for note in run.notes)


def test_a_short_run_has_all_that_the_line_after_it_counts():
    """Between a log's lines the server's part is as long as their interval: no clocks differ."""
    made = MadeUpServer(step=10.0).idle(50)
    for tokens_per_second in (4.0, 392.0, 4.0):
        made.work(10, 8, tokens_per_second=tokens_per_second)
    points = tuple(made.idle(60).points)
    (run,) = join([client(69.2, 2.0, 4000)], [made.history()._replace(points=points, has_metrics=False)]).runs

    assert run.views[1].total_output_tokens == pytest.approx(4000, rel=0.01)
    assert not any("clock" in warning for warning in run.warnings)
