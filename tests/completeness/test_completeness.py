# SPDX-License-Identifier: Apache-2.0
"""Everything that the parsers yield, and every family of every recorded page, is shown or left out for a reason."""

from __future__ import annotations

import math

from collections import defaultdict
from fnmatch import fnmatchcase
from functools import cache
from typing import get_args

import pytest

from tests.completeness.left_out import FAMILIES, FIELDS, QUANTITIES
from tests.support.corpus import all_bodies
from tests.support.pages import FURTHER
from tests.support.recordings import recording

from vllm_watch.analysis.replay.recording import MetricsRead
from vllm_watch.daemon.exposition.samples import HistogramSample, server_samples
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus, TailCounts, TimedEvent
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.events import (
    AccessRequest,
    AchievedWork,
    AdapterChange,
    DiffusionDecoding,
    EngineStats,
    Event,
    Failure,
    KvTransfers,
    Lifecycle,
    Notice,
    SleepOrPause,
    SpecDecoding,
    StartupDetail,
    StartupFact,
)
from vllm_watch_parsers.front_ends import VLLM_NAMES
from vllm_watch_parsers.kv_transfer import KvKey, KvReading
from vllm_watch_parsers.metric_names import (
    CACHE_SOURCES,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    LORA_ACTIVE,
    PROMPT_SOURCES,
    READ_ELSEWHERE,
    WATERMARKED,
    ServerSeries,
)
from vllm_watch_parsers.scrape import EngineKey, EngineReading, Histogram, HttpRequests, MetricsReading


START = 1000.0
STATS = EngineStats("0", 1.0, 1.0, 1, 0, kv_cache_usage_ratio=0.5, prefix_cache_hit_ratio=0.5)
SPEC = SpecDecoding("0", 2.0, 1.0, 2.0, 10, 20, 0.5)
DIFFUSION = DiffusionDecoding("0", 8.0, 4.0, 80, 20, 640)

VALUES = {
    "engine": ("0", "1"),
    "version": ("0.10.0", "0.11.0"),
    "engine_generation": ("V0", "V1"),
    "model": ("a", "b"),
    "served_model_name": ("a", "b"),
    "log_stats_disabled": (None, True),
    "is_rust": (None, True),
    "unknown_fields": ((), ("Later",)),
    "counts": (
        ((KvKey("kv_transfers_total", ("nixl", "in")), 3.0),),
        ((KvKey("kv_transfers_total", ("nixl", "in")), 5.0),),
    ),
    "gauges": ((), ((KvKey("kv_offload_usage_ratio", ("hisparse", "cpu")), 0.5),)),
    "kv_fetch": (None, (1, 2, 3)),
    "position_acceptance_ratio": ((0.5,), (0.25,)),
    "phase": ("starting", "stopped"),
    "rank": ("0", "1"),
    "method": ("GET", "POST"),
    "path": ("/health", "/ping"),
    "status": (200, 500),
    "target": ("/health", "/health?x"),
    "memory": ((), ("weights",)),
    "flags": ((("dtype", "half"),), (("dtype", "bfloat16"),)),
    "flags_of": ("arguments", "engine"),
    "quantity": ("engine", "requests_running"),
}
"""Two values of each field that is no number."""

KINDS = {
    "Failure.kind": ("nccl_error", "worker_died"),
    "Notice.kind": ("stats_unparsed", "api_servers_more_than_one"),
    "SleepOrPause.kind": ("asleep", "awake"),
    "AdapterChange.kind": ("loaded", "removed"),
}
CONTEXTS = {
    "EngineStats": ([], STATS, []),
    "SpecDecoding": ([STATS], SPEC, []),
    "KvTransfers": ([STATS], KvTransfers("0", ((KvKey("kv_transfers_total", ("nixl", "in")), 1.0),)), []),
    "StartupFact": ([Lifecycle("starting")], StartupFact(), [Lifecycle("ready")]),
    "StartupDetail": ([STATS, StartupFact(flags_of="engine")], StartupDetail(), []),
    "Lifecycle": ([], Lifecycle("ready"), []),
    "Failure": ([], Failure("nccl_error"), []),
    "AdapterChange": ([], AdapterChange("loaded"), []),
    "AchievedWork": ([STATS, AchievedWork("0", 1.0, 1.0), STATS], AchievedWork("0", 1.0, 1.0), []),
    "DiffusionDecoding": ([STATS, DIFFUSION, STATS], DIFFUSION, []),
    "AccessRequest": ([], AccessRequest("GET", "/health", 200, "/health"), []),
    "SleepOrPause": ([STATS, SleepOrPause("asleep")], SleepOrPause("awake"), []),
    "Notice": ([], Notice("value_out_of_range", "engine"), []),
}
"""What stands before an event, the event, and what stands after it."""

RELATED = {
    "StartupFact.engine": {"kv_cache_tokens": 5},
    "StartupFact.block_size": {"num_gpu_blocks": 5},
    "StartupFact.num_gpu_blocks": {"block_size": 5},
    "StartupFact.engine_generation": {"version": "0.10.0"},
    "StartupFact.flags": {"flags_of": "arguments"},
    "StartupDetail.engine": {"compile_seconds": 5.0},
    "EngineStats.preemptions": {"is_rust": True},
    "SpecDecoding.emitted_tokens_cumulative": {"accepted_tokens_cumulative": 5, "drafted_tokens_cumulative": 9},
    "SpecDecoding.accepted_tokens_cumulative": {"drafted_tokens_cumulative": 9},
    "SpecDecoding.drafted_tokens_cumulative": {"accepted_tokens_cumulative": 9},
    "EngineStats.requests_running": {"prompt_tokens_per_second": 5.0},
}
"""What a field needs beside it to mean something."""

EVERY_FIELD = [f"{kind}.{field}" for kind, (_, event, _) in CONTEXTS.items() for field in event._fields]


def flat(snapshot):
    """Return all that a snapshot shows, comparable."""
    return {
        (sample.name, sample.labels): sample.histogram if isinstance(sample, HistogramSample) else sample.value
        for sample in server_samples(snapshot)
        if sample.name not in {"source_last_reading_timestamp_seconds", "last_token_timestamp_seconds"}
    }


def shown_of_events(*events):
    """Return what is shown after some events of a log."""
    state = ServerState(ServerSettings("s", has_log=True, metrics_interval=None))
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
    timed = tuple(TimedEvent(START, event) for event in events if not isinstance(event, AccessRequest))
    requests = {event: 1 for event in events if isinstance(event, AccessRequest)}
    state.apply_log(LogBatch(timed, requests, len(events), 0, START, 0))
    return flat(state.snapshot(START))


@pytest.mark.parametrize("name", EVERY_FIELD)
def test_every_field_of_the_log_is_shown_or_left_out(name):
    """Two values of a field make two different pages, unless the field is on the list; then they make the same."""
    kind, _, field = name.partition(".")
    before, event, after = CONTEXTS[kind]
    base = event._replace(**RELATED.get(name, {}))
    one, other = KINDS.get(name) or VALUES.get(field, (0.25, 0.5) if field.endswith("_ratio") else (3, 5))
    pages = [shown_of_events(*before, base._replace(**{field: value}), *after) for value in (one, other)]

    assert (pages[0] == pages[1]) == (name in FIELDS)


def test_the_list_of_fields_is_closed():
    """Every event there is is tried, and every entry is a field of one, with its reason."""
    assert set(CONTEXTS) == {kind.__name__ for kind in get_args(Event)}
    assert set(EVERY_FIELD) >= set(FIELDS)
    assert all({**FIELDS, **QUANTITIES, **FAMILIES}.values())


HISTOGRAM = Histogram((0.5, math.inf), (10.0, 20.0), 9.0)
MORE = Histogram((0.5, math.inf), (20.0, 50.0), 29.0)
ENGINE = EngineReading(
    {**dict.fromkeys([*GAUGES, "requests_deferred"], 0.25), "awake": 1.0},
    dict.fromkeys([*COUNTERS, *PROMPT_SOURCES.values(), *CACHE_SOURCES.values(), *WATERMARKED.values()], 100.0),
    dict.fromkeys(HISTOGRAMS, HISTOGRAM),
    {"stop": 1.0},
    (50.0,),
)
PAGE = MetricsReading(
    {}, {("m", "r"): 1.0}, {HttpRequests("GET", "/ping", "2xx"): 1.0}, 5.0, {"0": 5}, {"0": 5.0}, {}, 0
)
LATER = ENGINE._replace(
    counters={
        **{name: 200.0 + 10 * number for number, name in enumerate(sorted(ENGINE.counters))},
        "prompt_tokens": 1000.0,
    },
    histograms=dict.fromkeys(HISTOGRAMS, MORE),
    position_accepted=(60.0,),
)
OTHER_PAGES = {
    "admission_rejections": {("m", "r"): 2.0},
    "http_requests": {HttpRequests("GET", "/ping", "2xx"): 2.0},
    "process_start_seconds": 500.0,
    "kv_cache_tokens": {"0": 6},
    "max_concurrency": {"0": 6.0},
    "out_of_range": {"engine": 1},
    "dropped": 1,
    "long_lines": 1,
    "server_values": {LORA_ACTIVE: 1.0},
    "server_histograms": {ServerSeries("websocket_connection_duration_seconds"): HISTOGRAM},
    "is_undecided": True,
    "kind": "ray_vllm",
}


def shown_of_pages(*pages):
    """Return what is shown after some pages, read 10 s after each other."""
    state = ServerState(ServerSettings("s", has_log=False, metrics_interval=5.0))
    for number, page in enumerate(pages):
        state.apply_scrape(ScrapeResult(START + 10 * number, 0.0, page, page.reason))
    return flat(state.snapshot(START + 10 * len(pages) - 10))


def page_of(engine, **values):
    """Return a page with one engine."""
    return PAGE._replace(engines={EngineKey("m", "0"): engine}, **values)


def having(engine, *names):
    """Return an engine of a release that exports these counters only."""
    return engine._replace(counters={name: engine.counters[name] for name in names})


def changed(engine, kind, name):
    """Return an engine with another value of one quantity."""
    if kind in {"requests_finished", "position_accepted"}:
        return engine._replace(**{kind: {"stop": 2.0} if kind == "requests_finished" else (70.0,)})
    value = HISTOGRAM if kind == "histograms" else 0.0 if name == "awake" else getattr(engine, kind)[name] + 0.5
    return engine._replace(**{kind: {**getattr(engine, kind), name: value}})


@pytest.mark.parametrize("kind", KvReading._fields)
def test_what_kv_connectors_show_of_a_page_is_shown(kind):
    """Two values of a connector's counter or gauge make two different pages."""
    key = KvKey("kv_transfers_total" if kind == "counters" else "kv_transfers_pending", ("kv_offload", "in"))
    pages = [page_of(ENGINE._replace(kv=KvReading()._replace(**{kind: {key: value}}))) for value in (1.0, 2.0)]

    assert shown_of_pages(pages[0]) != shown_of_pages(pages[1])


EVERY_QUANTITY = [
    *(f"{kind}.{name}" for kind in ("gauges", "counters", "histograms") for name in getattr(ENGINE, kind)),
    "requests_finished.",
    "position_accepted.",
]


@pytest.mark.parametrize("quantity", EVERY_QUANTITY)
def test_every_quantity_of_a_page_is_shown_or_left_out(quantity):
    """Two values of a quantity make two different pages, with all counters or an older release's."""
    kind, _, name = quantity.partition(".")
    exported = (ENGINE.counters, ("prompt_tokens", "prompt_tokens_cached"), ())
    pairs = [(having(ENGINE, *names), having(LATER, *names)) for names in exported]
    is_shown = any(
        shown_of_pages(page_of(first), page_of(second))
        != shown_of_pages(page_of(first), page_of(changed(second, kind, name)))
        for first, second in pairs
        if kind != "counters" or name in second.counters
    )

    assert is_shown == (quantity not in QUANTITIES)


def test_a_page_before_the_first_request_is_told():
    """A page without engines is one of a server that nobody has asked for anything, or it is not."""
    assert shown_of_pages(PAGE) != shown_of_pages(PAGE._replace(is_before_first_request=True))


def test_another_process_is_a_start():
    """Without start times a page whose labels name another process than the one before is a start of the server."""
    pages = [page_of(engine, process_start_seconds=None, process=(("pod", "a"),)) for engine in (ENGINE, LATER)]

    assert shown_of_pages(*pages) != shown_of_pages(pages[0], pages[1]._replace(process=(("pod", "b"),)))


@pytest.mark.parametrize(
    "field",
    # The flags are in `vllm-watch report`, and are no series; of the process only that it is another one is shown.
    [
        field
        for field in MetricsReading._fields
        if field not in {"engines", "is_before_first_request", "flags", "process"}
    ],
)
def test_every_field_of_a_page_is_shown(field):
    """What is said of a whole server is shown, too."""
    assert shown_of_pages(page_of(ENGINE)) != shown_of_pages(page_of(ENGINE, **{field: OTHER_PAGES[field]}))


@cache
def families():
    """Return every family of every recorded page, and the releases that have it."""
    found = defaultdict(set)
    bodies = all_bodies()
    scraped = [event.body for event in recording("adapters").events() if isinstance(event, MetricsRead)]
    for release, body in (*bodies, ("0.32.0", scraped[-3]), ("0.32.0", FURTHER.read_bytes())):
        for line in body.decode().splitlines():
            if line.startswith("# TYPE "):
                found[line.split()[2]].add(release)
    return found


def is_read(family):
    """Tell whether the samples of a family are read."""
    parts = ("", "_total", "_bucket", "_sum", "_count")
    return family in READ_ELSEWHERE or not VLLM_NAMES.isdisjoint(family + part for part in parts)


def test_every_family_of_every_page_is_read_or_left_out():
    """No family of any recorded release is forgotten."""
    unread = {family: releases for family, releases in families().items() if not is_read(family)}

    assert len(families()) > 100
    assert {} == {
        family: releases
        for family, releases in unread.items()
        if not any(fnmatchcase(family, pattern) for pattern in FAMILIES)
    }


@pytest.mark.parametrize("pattern", FAMILIES)
def test_the_list_of_families_is_closed(pattern):
    """Every entry is of a recorded page, and of nothing that is read."""
    matched = [family for family in families() if fnmatchcase(family, pattern)]

    assert matched
    assert not [family for family in matched if is_read(family)]
