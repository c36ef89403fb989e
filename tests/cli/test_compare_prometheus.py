# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch compare`` with time ranges of a Prometheus as sides: a stand-in, and a real one with recorded tests."""

from __future__ import annotations

import json

from datetime import datetime, timezone
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.loadtest.load_tests import FOLDER
from tests.support.command_line import vllm_watch
from tests.support.http_servers import StandIn, answer
from tests.support.monitoring import filled_prometheus, series_of

from vllm_watch.analysis.loadtest.replayed_history import read_recording
from vllm_watch.analysis.replay.recording import Recording


START = 1_795_183_200.0  # 2026-11-20T14:00:00Z
STEP = 5
LOAD_SECONDS, EVERY = 200, 600
SPEEDS = {"slow": (100.0, 102.0, 99.0), "fast": (200.0, 203.0, 199.0)}
"""Tokens per second of each server in its loads, one every ten minutes; each request has ten tokens."""

LABELS = {"model_name": "m", "engine": "0", "job": "vllm-watch"}


def compare(*arguments):
    """Run the command to its end."""
    return vllm_watch("compare", *arguments)


def answered(*arguments):
    """Return the JSON that the command prints."""
    found = compare(*arguments, "--format", "json")
    assert (found.returncode, found.stderr) == (0, "")
    return json.loads(found.stdout)


def words(text):
    """Return a text with its lines joined."""
    return " ".join(text.split())


# A stand-in.


def tokens(server, at):
    """Return how many tokens a server has generated until a moment, and whether it is at work then."""
    total = 0.0
    for number, speed in enumerate(SPEEDS[server]):
        began = START + number * EVERY
        total += speed * min(max(at - began, 0), LOAD_SECONDS)
        if began < at < began + LOAD_SECONDS:
            return total, True
    return total, False


def series(server, at):
    """Yield the values of a server at a moment: its series' name, their own labels, and the value."""
    total, is_busy = tokens(server, at)
    yield "engine_state", {"state": "serving"}, float(is_busy)
    yield "engine_state", {"state": "idle"}, float(not is_busy)
    yield "source_last_reading_timestamp_seconds", {"source": "metrics"}, at
    yield "requests_running", {}, 8.0 * is_busy
    yield "requests_waiting", {}, 0.0
    yield "max_running_requests", {}, 64.0 if server == "slow" else 128.0
    yield "generation_tokens_total", {}, total
    yield "prompt_tokens_total", {}, 2 * total
    yield "requests_finished_total", {"reason": "stop"}, total // 10


def pieces(head):
    """Answer a range query as a Prometheus that scrapes both servers all the time."""
    parameters = {name: values[0] for name, values in parse_qs(urlsplit(head.split()[1]).query).items()}
    server = next(name for name in SPEEDS if f'"{name}"' in parameters["query"])
    start, end, step = (float(parameters[name]) for name in ("start", "end", "step"))
    moments = [start + step * index for index in range(int((end - start) / step) + 1)]
    found = {}
    for at in moments:
        scraped = at // STEP * STEP
        if parameters["query"].startswith("max without"):
            found.setdefault(json.dumps(LABELS), []).append((at, str(scraped)))
            continue
        for name, own, value in series(server, scraped):
            if name in parameters["query"]:
                labels = {"__name__": f"vllm_watch_{name}", "server": server, **LABELS, **own}
                found.setdefault(json.dumps(labels), []).append((at, str(value)))
    result = [{"metric": json.loads(labels), "values": values} for labels, values in found.items()]
    body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    return [answer(json.dumps(body).encode(), Content_Type="application/json")]


@pytest.fixture(name="url", scope="module")
def fixture_url():
    """Give the address of the stand-in."""
    with StandIn(pieces) as server:
        yield server.url.removesuffix("/metrics")


def at_load(number, before=60, after=60):
    """Return the time range of a load with so many seconds around it, in UTC."""
    began = START + number * EVERY
    ends = (began - before, began + LOAD_SECONDS + after)
    return "/".join(datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") for at in ends)


def loads(url, server):
    """Return the three loads of a server as sources."""
    return ",".join(f"prom:{url}/{server}@{at_load(number)}" for number in range(3))


def test_ranges_are_runs(url):
    """Each time range is a run of its server; twice the speed is shown as for recordings, in the server's view."""
    found = answered(f"A={loads(url, 'slow')}", f"B={loads(url, 'fast')}")
    rows = {row["metric"]: row for row in found["metrics"]}

    assert (found["baseline"], found["candidate"], found["comparable"]) == ("A", "B", True)
    assert rows["output_throughput"]["runs"] == [3, 3]
    assert (rows["output_throughput"]["grade"], rows["output_throughput"]["difference"] > 0) == ("shown", True)
    assert rows["output_throughput"]["a"] == pytest.approx(100.3, rel=0.02)
    assert rows["output_throughput"]["b"] == pytest.approx(200.7, rel=0.02)
    assert {"flag": "max-num-seqs", "a": "64", "b": "128"} in found["config"]


def test_what_a_prometheus_does_not_know_is_said(url):
    """The load, the temperature and most flags are not in it; what arrived is."""
    warnings = answered(f"A={loads(url, 'slow')}", f"B={loads(url, 'fast')}")["warnings"]

    assert any(
        each.startswith("The configuration of A") and "a Prometheus, which has few flags" in each for each in warnings
    )
    assert "The temperature of A and B is not known: the server does not report it." in warnings
    (load,) = [each for each in warnings if each.startswith("Whether both sides got the same load is not known")]
    assert load.endswith("; requests that arrived each second: 10.0 in A, 20.1 in B.")


@pytest.mark.parametrize("name", ["c.md", "c.html", "c.txt"])
def test_every_format(url, tmp_path, name):
    """A comparison of time ranges is written in every format, and says in which view."""
    found = compare(
        f"A=prom:{url}/slow@{at_load(0)}", f"B=prom:{url}/fast@{at_load(1)}", "--all", "-o", tmp_path / name
    )

    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")
    assert "B compared with A" in (tmp_path / name).read_text(encoding="utf-8")


def test_a_rule_fails(url):
    """--fail-if works on ranges."""
    found = compare(f"A={loads(url, 'fast')}", f"B={loads(url, 'slow')}", "--fail-if", "output_throughput < -10%")

    assert found.returncode == 1
    assert found.stderr.startswith("vllm-watch: failed: output_throughput < -10% (B against A): -")


def test_overlapping_ranges_are_not_comparable(url):
    """A load that is in two ranges is one run, and no two."""
    found = compare(f"A=prom:{url}/slow@{at_load(0)}", f"B=prom:{url}/slow@{at_load(0, after=90)}", "--all")
    cut = compare(f"A=prom:{url}/slow@{at_load(0)}", f"B=prom:{url}/slow@{at_load(0, before=-100)}", "--all")

    assert "One run is there twice: slow of B and slow of A." in words(found.stdout)
    assert "The times of slow of A and slow of B overlap: they share requests." in words(cut.stdout)
    assert "Not comparable" in found.stdout
    assert "Not comparable" in cut.stdout


def test_a_pause_ends_a_run(url, monkeypatch):
    """What a server did before a pause is a run of its own: a range begins after the warm-up."""
    monkeypatch.setattr("tests.cli.test_compare_prometheus.tokens", with_warm_up)
    found = compare(f"A=prom:{url}/slow@{at_load(0)}", f"B=prom:{url}/slow@{at_load(1, before=-60)}", "--all")

    assert "A: 2 runs; B: 1 run" in words(found.stdout)


def with_warm_up(server, at):
    """Return what `tokens` does of a server whose loads have a pause of 25 s."""
    total, is_busy = 0.0, False
    for number, speed in enumerate(SPEEDS[server]):
        began = START + number * EVERY
        for first, last in ((began, began + 40), (began + 65, began + LOAD_SECONDS)):
            total += speed * min(max(at - first, 0), last - first)
            is_busy |= first < at < last
    return total, is_busy


def test_a_range_without_a_load_is_an_error(url, tmp_path):
    """No range counts silently as no run: one sentence says which has no load in it, and no file is written."""
    ranges = (
        f"A=prom:{url}/slow@{at_load(0)},prom:{url}/slow@2026-11-20T14:05Z/14:08",
        f"B=prom:{url}/fast@{at_load(1)}",
    )
    found = compare(*ranges, "-o", tmp_path / "out.html")

    assert (found.returncode, found.stdout) == (1, "")
    assert "/slow@2026-11-20T14:05:00Z/2026-11-20T14:08:00Z: no load is in it" in found.stderr
    assert not (tmp_path / "out.html").exists()


# A real one.


def measured_range(recording):
    """Return the time range of the benchmark in a recording, with some seconds around it."""
    opened = Recording(recording)
    (server,) = opened.servers
    points = [point for point in read_recording(opened, "x", server).points if point.counters]
    # A warm-up of 16 requests comes before the benchmark: the range begins after it.
    warm = next(point for point in points if point.counters.get("generation_tokens_total") == 1600)
    return f"{warm.at + 2:.3f}/{points[-1].at + 5:.3f}"


@pytest.fixture(name="real", scope="module")
def fixture_real(tmp_path_factory):
    """Give a Prometheus that has four recorded tests, and the time ranges of these, each by its name."""
    folder = tmp_path_factory.mktemp("filled")
    recordings = {
        name: FOLDER / f"{name}.jsonl.xz" for name in ("draft2-run1", "draft2-run2", "draft4-run1", "draft4-run2")
    }
    with filled_prometheus(folder, *(series_of(path, folder) for path in recordings.values())) as url:
        yield {name: f"prom:{url}/qwen@{measured_range(path)}" for name, path in recordings.items()}


@pytest.mark.slow
@pytest.mark.needs_tool("prometheus", "promtool")
def test_ranges_show_what_the_recordings_show(real):
    """The rows of ranges are those of the recordings' servers: requests and means within 2 %, flags as far as known."""
    ranges = real
    sides = [
        f"{drafts}={','.join(ranges[f'{drafts}-run{number}'] for number in (1, 2))}" for drafts in ("draft2", "draft4")
    ]
    found = answered(*sides)
    rows = {row["metric"]: row for row in found["metrics"]}

    for side, drafts in (("a", "draft2"), ("b", "draft4")):
        servers = [server_of(FOLDER / f"{drafts}-run{number}.jsonl.xz") for number in (1, 2)]
        for metric in ("ttft_ms", "tpot_ms", "e2el_ms"):
            expected = (servers[0][metric]["mean"] * servers[1][metric]["mean"]) ** 0.5
            assert rows[f"{metric}.mean"][side] == pytest.approx(expected, rel=0.02)
    assert found["config"] == [{"flag": "speculative-config.num_speculative_tokens", "a": "2", "b": "4"}]
    assert found["comparable"]


@pytest.mark.slow
@pytest.mark.needs_tool("prometheus", "promtool")
def test_a_range_against_a_recording(real):
    """One test read from a Prometheus and from its recording: the same means, and no grade."""
    ranges = real
    found = answered(f"A={ranges['draft4-run1']}", f"B={FOLDER / 'draft4-run1.jsonl.xz'}")
    rows = {row["metric"]: row for row in found["metrics"]}

    assert found["comparable"]
    assert {"shown", "likely"}.isdisjoint(row["grade"] for row in rows.values())
    for metric in ("ttft_ms.mean", "tpot_ms.mean", "e2el_ms.mean"):
        assert rows[metric]["a"] == pytest.approx(rows[metric]["b"], rel=0.01)
    assert {"flag": "disable-custom-all-reduce", "b": "True"} in found["config"]
    assert "differ in speculative decoding" not in str(rows["itl_ms.mean"].get("note"))


@pytest.mark.slow
@pytest.mark.needs_tool("prometheus", "promtool")
def test_no_range_is_left_out_beside_a_result(real, tmp_path):
    """Ranges of tests without a result are runs, too, with a load of their own; what cannot be compared is said."""
    ranges = real
    (benchmark,) = Recording(FOLDER / "draft2-run1.jsonl.xz").benchmarks
    result = tmp_path / "run1.json"
    result.write_text(benchmark.content, encoding="utf-8")
    other = f"B={ranges['draft4-run1']},{ranges['draft4-run2']}"
    both = answered(f"A={result},{ranges['draft2-run1']},{ranges['draft2-run2']}", other)
    mistaken = answered(f"A={result},{ranges['draft2-run2']}", f"B={result}")

    assert (both["baseline"], both["metrics"][0]["runs"]) == ("A, an unknown load", [1, 2])
    assert "Not all sides have these loads, so they are left out: 8 at once." in both["warnings"]
    assert "Not all sides have these loads, so they are left out: an unknown load." in mistaken["warnings"]


@pytest.mark.slow
@pytest.mark.needs_tool("prometheus", "promtool")
def test_a_result_with_the_range_of_its_test(real, tmp_path):
    """A benchmark's result and a time range are one run, as in a report: the client's view, and the server's flags."""
    ranges = real
    sides = []
    for name in ("draft2-run1", "draft4-run1"):
        (benchmark,) = Recording(FOLDER / f"{name}.jsonl.xz").benchmarks
        file = tmp_path / f"{name}.json"
        file.write_text(benchmark.content, encoding="utf-8")
        sides.append(f"{name}={file},{ranges[name]}")
    found = answered(*sides)

    assert {row["metric"]: row["runs"] for row in found["metrics"]}["output_throughput"] == [1, 1]
    assert {"flag": "speculative-config.num_speculative_tokens", "a": "2", "b": "4"} in found["config"]
    assert "The load" not in "".join(found["warnings"])


def server_of(recording):
    """Return the server's view of a recording's benchmark, as the report has it."""
    (run,) = json.loads(vllm_watch("report", recording, "--format", "json").stdout)["runs"]
    (view,) = [each for each in run["views"] if each["view"] == "server"]
    return view
