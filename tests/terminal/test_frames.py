# SPDX-License-Identifier: Apache-2.0
"""What a vllm-watch answers becomes a frame: each number with its source, each state in its place."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.support.recordings import recording
from tests.terminal.documents import MOMENTS, RECEIVED, body, fleet, frame

from vllm_watch.cli.terminal.frames import Latency, Quantile, frame_of, gauge, latencies_of, standing_of, value
from vllm_watch.cli.terminal.heading import counts_line
from vllm_watch.cli.terminal.lines import Pane
from vllm_watch.cli.terminal.numbers import (
    hour_lines,
    latency_lines,
    latency_piece,
    number_lines,
    state_word,
)
from vllm_watch.cli.terminal.server_detail import lasts, meaning_lines, server_detail, step_lines
from vllm_watch.daemon.catalog.reasons import explain
from vllm_watch.daemon.catalog.states import CAUSES, ENGINE_STATES, STATES, first_steps
from vllm_watch.daemon.exposition.document import decode
from vllm_watch.daemon.exposition.findings import Finding
from vllm_watch.daemon.state.latencies import is_wide
from vllm_watch.daemon.support.errors import DaemonError


def only_server(state):
    """Return the only server of a recorded moment, as a frame has it and as the document does."""
    return frame_of(decode(body(state)), RECEIVED).servers[0], json.loads(body(state))["servers"][0]


def pane(at, width=80):
    """Return what lines are made for."""
    return Pane(width, at)


def _texts(lines):
    return ["".join(span.text for span in each.spans) for each in lines]


def changed(state, **changes):
    """Return a server of a recorded moment whose document differs."""
    document = json.loads(body(state))
    document["servers"][0].update(changes)
    return frame_of(decode(json.dumps(document).encode()), RECEIVED).servers[0]


@pytest.mark.parametrize("state", MOMENTS)
def test_each_state_of_a_recorded_server(state):
    """A server has the state of its engine since the same time, what it means, and what to do first of the catalog."""
    server, document = only_server(state)

    assert server.state == state == server.engines[0].state
    cause = document["engines"][0].get("cause", {})
    assert (server.meaning, server.cause) == (cause.get("meaning", STATES[state].text), cause.get("reason"))
    assert server.first_steps == first_steps().get(state)
    assert server.since is None or msgspec.structs.asdict(server.since) == document["engines"][0]["state_since"]
    assert (server.since is None) is ("state_since" not in document["engines"][0])
    assert server.now.at == json.loads(body(state))["at"]


def test_the_state_lasts_since_its_first_engine():
    """The time is that of the engine that was the first in the server's state; it may be known as the least only."""
    engine = json.loads(body("stalled"))["servers"][0]["engines"][0]
    others = [
        {**engine, "engine": str(number), "state_since": {"at": at, "is_exact": at == 60.0}, "state": state}
        for number, (at, state) in enumerate([(90.0, "stalled"), (60.0, "stalled"), (10.0, "serving")])
    ]
    server = changed("stalled", engines=others)

    assert (server.since.at, server.since.is_exact) == (60.0, True)
    assert lasts(server, 300.0) == " for 4 min"
    assert lasts(changed("stalled", engines=others[:1]), 90.0) == " for at least 1 s"
    assert lasts(changed("stalled", engines=[{**engine, "state_since": None}]), 300.0) == ""


def of_cause(state, *causes):
    """Return a server whose engines are in a state for these causes."""
    engine = json.loads(body(state))["servers"][0]["engines"][0]
    reasons = [{} if cause is None else {"cause": {"reason": cause}} for cause in causes]
    engines = [{**{k: v for k, v in engine.items() if k != "cause"}, **reason} for reason in reasons]
    return changed(state, engines=[{**each, "engine": str(number)} for number, each in enumerate(engines)])


EACH_CAUSE = [(state, cause) for state in first_steps() for cause in (None, *CAUSES.get(state, ()))]


@pytest.mark.parametrize(("state", "cause"), EACH_CAUSE)
@pytest.mark.parametrize("width", [40, 80])
def test_a_bad_state_has_all_first_steps_of_its_cause(state, cause, width):
    """The first sentence is beside the meaning; below are all steps and the whole address, in the columns there are."""
    server = of_cause(state, cause)
    known = first_steps()[state]
    rows = [each.text for each in step_lines(server, width)]
    texts = "".join("".join(rows).split())

    assert " First step: " in " ".join(each.text for each in meaning_lines(server, width))
    assert server.meaning == CAUSES.get(state, {}).get(cause, STATES[state].text)
    for number, step in enumerate(known.about(cause), 1):
        assert f"{number}.{''.join(step.replace('`', '').split())}" in texts
    assert texts.endswith(f"runbook{known.runbook}:{known.url}")
    assert max(map(len, rows)) <= width
    assert step_lines(only_server("idle")[0], width) == []


@pytest.mark.parametrize("causes", [("batch_full", "kv_cache_full"), ("batch_full", None)])
def test_engines_with_different_causes_have_none_in_common(causes):
    """The steps for one engine's cause may be wrong for another's, so those that find the cause are shown."""
    assert of_cause("saturated", *causes).cause is None
    assert "batch_full" == of_cause("saturated", "batch_full", "batch_full").cause


def test_a_server_that_was_stopped_is_no_alarm():
    """An orderly stop has a quiet word, and stands below the servers that need somebody."""
    document = fleet("down", "stalled", "saturated", "down")
    stopped, died = document["servers"][3], document["servers"][0]
    stopped["name"], died["name"] = "ended", "crashed"
    stopped["engines"][0]["cause"], died["engines"][0]["cause"] = {"reason": "stopped"}, {"reason": "killed"}
    stopped["sources"] = died["sources"] = [{"source": "metrics", "up": False, "reason": "refused"}]
    servers = frame_of(decode(json.dumps(document).encode()), RECEIVED).servers

    assert ["crashed", "stalled", "saturated", "ended"] == [each.name for each in servers]
    assert "1 down  1 stalled  1 saturated  1 stopped" in counts_line(servers, 80).text
    assert ("stopped", "sleeping") == state_word("down", "stopped")
    documents = [servers[0].document, servers[3].document]
    assert ["FAILED", "not read"] == [standing_of(each.sources[0], each) for each in documents]
    wrong = [any(found.text.startswith("/metrics") for found in each.findings) for each in (servers[0], servers[3])]
    assert [True, False] == wrong


@pytest.mark.parametrize("state", MOMENTS)
def test_every_number_is_that_of_the_document(state):
    """A gauge has the value, the time and the source of the document, and is not known where that has none."""
    server, document = only_server(state)
    (engine,), (known,) = server.engines, document["engines"]

    for name, reading in known["gauges"].items():
        assert msgspec.structs.asdict(gauge(engine, name)) == reading
    assert engine.facts == known["facts"]
    assert value(engine, "of_no_document") is None
    for stage, latency in latencies_of(engine, {}).items():
        bounds = known["quantile_bounds"].get(stage, {})
        wide = {level: each[0] for level, each in bounds.items() if is_wide(each)}
        quantiles = known["quantiles"].get(stage, {}) | wide
        assert [latency.seconds(level) for level in ("p50", "p95", "p99")] == list(
            map(quantiles.get, ("0.5", "0.95", "0.99"))
        )
        assert [each.sign in {">", "~"} for each in latency.quantiles.values()].count(True) == len(
            bounds.keys() - {"0.9"}
        )


@pytest.mark.parametrize(
    ("p50", "bounds", "objective", "text", "is_over"),
    [
        (400.0, [160, 640], 160, ">160s", True),  # Nobody need have waited as long as an estimate within it.
        (400.0, [160, None], 300, ">160s", False),
        (127.3, [80, 160], 300, "~130s", False),  # An estimate is off by up to a third: it has two digits.
    ],
)
def test_a_quantile_of_a_wide_or_a_coarse_bucket_is_marked(p50, bounds, objective, text, is_over):
    """Of a wide bucket the lower bound is shown as that; an estimate within one that doubles has a sign of its own."""
    _, document = only_server("saturated")
    (engine,) = document["engines"]
    stage = "time_to_first_token"
    engine["quantiles"][stage], engine["quantile_bounds"] = {"0.5": p50, "0.95": 80.0}, {stage: {"0.5": bounds}}
    server = changed("saturated", engines=[engine])
    latency = server.latencies[stage]._replace(objective=objective)
    marked, exact = (latency_piece(latency, level) for level in ("p50", "p95"))

    assert (text, is_over) == (marked.text[:5], marked.role == "over")
    assert "80.0s" == exact.text.strip()
    assert server.now.ttft_p95 == 80.0
    row = _texts(latency_lines({stage: latency}, every=False))[1].split("TTFT")[1]
    assert [text, "80.0s"] == [word.rstrip("!") for word in row.split()[:2]]


def test_the_latencies_of_a_stage_have_one_unit():
    """A row with one latency of ten seconds is in seconds, its objective too; a row without one is in milliseconds."""
    first = Latency({"p50": Quantile(0.001, "<"), "p95": Quantile(4.09), "p99": Quantile(18.7)}, 0.5)
    step = Latency({"p50": Quantile(0.0175), "p95": Quantile(0.0242), "p99": Quantile(9.9)}, 0.05)
    latencies = {"time_to_first_token": first, "time_per_output_token": step}

    head, *rows = (row.split() for row in _texts(latency_lines(latencies, every=False)))

    assert head[:1] == ["ms,"]
    assert rows == [["TTFT", "<0.001s", "4.09s!", "18.7s!", "0.500s"], ["TPOT", "17.5", "24.2", "9,900!", "50.0"]]


def test_a_driver_that_is_not_there_is_no_failure():
    """A machine without GPUs is told in one word why nothing is read; a source that fails has its age."""
    sources = [
        {"source": "gpu", "reason": "no_library"},
        {"source": "log", "up": True, "reason": "no_statistics_yet"},
        {"source": "metrics", "reason": "refused"},
    ]
    rows = [" ".join(row.split()) for row in _texts(server_detail(changed("idle", sources=sources), pane(0.0)))]

    assert "log ok: no statistics line yet" in rows
    assert "GPUs not read: the driver's library is not found" in rows
    assert "/metrics FAILED, nothing read yet: nothing listens at this address" in rows


def test_the_worst_is_first():
    """Servers are in the order of their states' severity, whatever their order in the document: one of each state."""
    found = frame(*sorted(MOMENTS))

    assert set(MOMENTS) == set(ENGINE_STATES)
    assert [server.name for server in found.servers] == sorted(MOMENTS, key=lambda state: -STATES[state].severity)
    assert found.received == RECEIVED


def test_a_server_has_the_sums_of_its_engines():
    """Requests and rates are sums, what cannot be summed is the highest, and a sum with an unknown part is unknown."""
    engine = json.loads(body("serving"))["servers"][0]["engines"][0]
    silent = {"engine": "1", "model_name": engine["model_name"], "state": "stalled"}
    server = changed("serving", engines=[engine, {**engine, "engine": "1"}])
    partly = changed("serving", engines=[engine, silent])

    running = engine["gauges"]["requests_running"]["value"]
    assert server.now.requests_running == 2 * running > 0
    assert server.now.kv_cache_usage_ratio == engine["gauges"]["kv_cache_usage_ratio"]["value"]
    assert server.sum_of_facts("max_running_requests") == 48
    assert partly.state == "stalled"
    assert partly.now.requests_running is partly.now.generation_tokens_per_second is None
    assert partly.now.kv_cache_usage_ratio == server.now.kv_cache_usage_ratio
    assert partly.sum_of_facts("max_running_requests") is None


def test_events_are_the_last_hours():
    """The events of the recorded crash are there with their ages, the latest first."""
    server, document = only_server("down")
    rows = [row.text.rstrip() for row in server_detail(server, pane(recording("day").started + 515, 200))]
    halves = [row.rpartition("   ")[2] if " ago " not in row else row[row.index(" ago ") - 6 :] for row in rows]
    events = [half.split(" ago", 1) for half in halves if " ago  " in half]

    assert [text.strip() for _, text in events][:2] == ["down (was serving)", "the engine died"]
    assert events[-1][1].endswith("the server starts")
    assert len(events) == len(document["events"])


def test_what_is_wrong_and_what_should_be_known():
    """A source that is down is wrong, with what to do; a source that is not configured is a note."""
    server, document = only_server("down")
    reason = next(source["reason"] for source in document["sources"] if source["source"] == "metrics")
    alone = changed("serving", sources=[{"source": "log", "up": True, "reason": "ok"}], version=None)

    assert Finding("wrong", f"/metrics: {explain('metrics', reason)}") == server.findings[0]
    assert [finding.weight for finding in alone.findings] == ["note", "note"]
    assert alone.findings[1].text.startswith("/metrics: not configured.")
    assert not changed("serving", configuration={}).findings


def test_more_findings():
    """Missing metrics, disagreements and other flags are told, first what is wrong."""
    engine = json.loads(body("serving"))["servers"][0]["engines"][0]
    found = changed(
        "serving",
        engines=[{**engine, "disagreements": ["requests_running"]}],
        missing_metrics=["vllm:x"],
        configuration={"change": {"text": "a 1 → 2", "at": 3.0}},
    ).findings

    assert [finding.weight for finding in found] == ["wrong", "note", "note"]
    assert "disagreed for minutes: requests running." in found[0].text
    assert found[1].text.startswith("missing in /metrics: vllm:x.")
    assert found[2].text == "changed by the last start with other flags: a 1 → 2"


def test_alerts_of_a_prometheus():
    """A server's own alerts are among its findings, a critical one that fires as wrong; the frame has all others."""
    alerts = [
        {"alertname": "VllmEngineStalled", "severity": "critical", "state": "firing", "server": "a", "engine": "0"},
        {
            "alertname": "VllmQueueStanding",
            "severity": "warning",
            "state": "pending",
            "server": "a",
            "summary": "More.",
        },
        {"alertname": "VllmEngineDown", "severity": "critical", "state": "firing", "server": "b"},
        {"alertname": "VllmWatchReloadFailed", "severity": "warning", "state": "firing", "instance": "w:9468"},
        {"alertname": "VllmWatchDown", "severity": "critical", "state": "firing", "summary": "It is gone."},
    ]
    sources = [{"source": name, "up": True} for name in ("log", "metrics")]
    document = {"at": 1.0, "servers": [{"name": "a", "version": "1", "sources": sources}]}

    def found(**more):
        frame = frame_of(decode(json.dumps({**document, **more}).encode()), RECEIVED)
        return [tuple((finding.weight, finding.text) for finding in each.findings) for each in (*frame.servers, frame)]

    assert found(alerts=alerts, prometheus={"up": True}) == [
        (
            ("wrong", "critical, firing: VllmEngineStalled, engine 0."),
            ("note", "warning, pending: VllmQueueStanding. More."),
        ),
        (
            ("wrong", "critical, firing: VllmWatchDown. It is gone."),
            ("note", "warning, firing: VllmWatchReloadFailed of vllm-watch w:9468."),
        ),
    ]
    assert found(prometheus={"up": False, "explanation": "http://p: gone"}) == [
        (),
        (("note", "alerts are not known: http://p: gone"),),
    ]
    assert found() == [(), ()]


def test_an_older_daemon():
    """A daemon without events, capacity or hour still has its servers; what it does not say is not known."""
    document = {"at": 1.0, "servers": [{"name": "a", "engines": [{"engine": "0", "state": "serving"}]}]}
    (server,) = frame_of(decode(json.dumps(document).encode()), RECEIVED).servers

    assert (server.state, server.document.events, server.hour) == ("serving", None, ())
    assert gauge(server.engines[0], "generation_tokens_per_second") is None


def test_a_newer_daemon():
    """States, reasons, sources and keys that are not known here do not hide the server, nor its other numbers."""
    source = {"source": "log", "up": False, "reason": "new_reason", "explanation": "New."}
    gauges = {
        "requests_running": {"value": 3.0, "at": 1.0, "source": "dream"},
        "requests_waiting": {"value": 4.0, "at": 1.0, "source": "log"},
    }
    engines = [{"state": "dreaming", "gauges": gauges}]
    server = changed("serving", news=1, engines=engines, sources=[source, {"source": "dream"}])
    waiting = number_lines(server, pane(2.0))[3].text
    rows = [row.text.split() for row in server_detail(server, pane(2.0))]

    assert server.state == "unknown"
    assert gauge(server.engines[0], "requests_running") is None
    assert waiting.split()[:2] == ["waiting", "4"]
    assert ["log", "FAILED,", "nothing", "read", "yet:", "New."] in rows
    assert not any("dream" in row for row in rows)


@pytest.mark.parametrize(
    "answer", [b"", b"ok", b"{}", b'{"at":1}', b"\xff", b"[" * 100_000, b'{"at":1,"servers":[{"name":7}]}']
)
def test_what_is_no_document(answer):
    """Whatever else answers is an error in a sentence."""
    with pytest.raises(DaemonError, match="not what a vllm-watch answers"):
        decode(answer)


def test_the_kv_caches_of_several_engines():
    """The per cent are of the fullest KV cache, and the tokens of all of them together."""
    engines = [
        {
            "engine": name,
            "gauges": {"kv_cache_usage_ratio": {"value": usage, "source": "metrics"}},
            "facts": {"kv_cache_capacity_tokens": 1000},
        }
        for name, usage in (("0", 0.9), ("1", 0.1))
    ]
    partly = [engines[0], {**engines[1], "gauges": {}}]
    whole, unknown = (number_lines(changed("serving", engines=each), pane(2.0))[-1].text for each in (engines, partly))

    assert whole.startswith("KV cache     90.0 % fullest")
    assert whole.endswith(" 1.00k of 2.00k tokens")
    assert unknown.endswith(" of 2.00k tokens")
    assert "k of" not in unknown


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_highest_of_the_hour(width):
    """The highest number of the last hour is that of a moment, however many moments a column of the course has."""
    moments = {"t": [float(10 * each) for each in range(100)], "requests_waiting": [*[0.0] * 50, 209.0, *[1.0] * 49]}
    (row,) = (line.text for line in hour_lines(changed("serving", history=moments), pane(1000.0, width))[2:3])

    assert row.split()[:2] == ["waiting", "209"]


def test_a_broken_hour_is_no_hour():
    """Columns of different lengths are not shown: nobody knows which value is of which time."""
    assert fleet("serving")["servers"][0]["history"]["t"]
    assert changed("serving", history={"t": [1.0, 2.0], "requests_running": [1.0]}).hour == ()
    assert [point.at for point in changed("serving", history={"t": [1.0, None, 3.0]}).hour] == [1.0, 3.0]
