# SPDX-License-Identifier: Apache-2.0
"""
Pages of /metrics, read whole or not at all; and what is shown of them, which other parsers must read as it was meant.

A comment `# NEXT` divides the input into pages that are read 20 s apart.
"""

from __future__ import annotations

import math

from collections import Counter
from itertools import pairwise

import msgspec

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.fuzz import seeds as sources
from tests.support.exposition import exported

from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.exposition.samples import HistogramSample, bound_text, server_samples
from vllm_watch.daemon.exposition.time_series_file import TimeSeriesFile
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch_parsers.exposition import MAX_SAMPLES, Exposition, ExpositionParser, Labels, parse_exposition
from vllm_watch_parsers.fields import MAX_COUNT
from vllm_watch_parsers.front_ends import FOREIGN_PROGRAMS, WANTED
from vllm_watch_parsers.kv_transfer import KV_GAUGES
from vllm_watch_parsers.metric_names import COUNTED_BY_LABEL, COUNTERS, GAUGES, HISTOGRAMS
from vllm_watch_parsers.scrape import (
    MAX_ENGINES,
    MAX_LABEL_VALUES,
    MAX_POSITIONS,
    EngineReading,
    MetricsReading,
    Unreadable,
    read_metrics,
)


NEXT = b"# NEXT\n"
MAX_PAGES = 3
PIECE = 61
"""Pages are read in pieces of so many bytes, too: no line is as long, and none ends with them."""

START = 1_795_000_000.0
STEP = 20.0

_REASONS = {"not_metrics", "stats_disabled", "too_many_samples", "incomplete", *FOREIGN_PROGRAMS}
_COUNTERS = {*COUNTERS, *(name for _, names in COUNTED_BY_LABEL.values() for name in names.values())}
_MOST = {"requests_running": 1e7, "requests_waiting": 1e7, "requests_swapped": 1e7, "requests_deferred": 1e7}

TOKENS = (
    *sorted({name.encode() for table in (GAUGES, COUNTERS) for names in table.values() for name in names}),
    *sorted({name.encode() for names in HISTOGRAMS.values() for name in names}), b"_bucket{", b"_sum{", b"_count{",
    b"_total{", NEXT, b"# EOF\n", b"# TYPE x histogram\n", b"\r\n", b'{engine="0",', b'model_name="m"} ', b'le="+Inf"',
    b'le="-Inf"', b'le="0.5"', b'le="1e400"', b'pid="7"', b'engine="1"', b'reason="deferred"',
    b'source="local_compute"', b'finished_reason="stop"', b'position="0"', b'position="1"', b" 1.0\n", b" NaN\n",
    b" +Inf\n", b" -1\n", b" 1e308\n", b" 1e400\n", b" 0.5\n", b" 1_0\n", b" 1 1795000000000\n", b'\\"', b"\\\\",
    b"\\n", b' # {trace_id="a"} 1.0', b"vllm:cache_config_info{", b'num_gpu_blocks="5",', b'block_size="16"',
    b'kv_cache_size_tokens="1024"', b"http_requests_total{", b'status="2xx"', b'handler="/health"',
    b"process_start_time_seconds ", b"vllm:request_success_total{", b"vllm:num_requests_waiting_by_reason{",
    b"vllm:prompt_tokens_by_source_total{", b"vllm:spec_decode_num_accepted_tokens_per_pos_total{",
    b"vllm:admission_rejections_total{", b"\xff", b"\0",
)  # fmt: skip


def seeds() -> list[bytes]:
    """Return the wanted part of real pages, one family after the other, and pairs of pages."""
    found = []
    for body in sources.pages():
        lines = [line for line in body.split(b"\n") if line.startswith((b"vllm:", b"http_", b"process_start"))]
        by_family: dict[bytes, list[bytes]] = {}
        for line in lines:
            by_family.setdefault(line.partition(b"{")[0].partition(b" ")[0], []).append(line)
        short = [line for some in by_family.values() for line in (*some[:3], *some[-1:])]
        for at in range(0, len(short), 7):
            part = b"\n".join(short[at : at + 7]) + b"\n"
            found += [part, part + NEXT + part.replace(b" 1", b" 2")]
    return found


def check(data: bytes) -> None:
    """Raise AssertionError where a page is read by half, or shown as something else."""
    state = ServerState(ServerSettings("fuzz", has_log=False, metrics_interval=STEP))
    snapshots = []
    for number, body in enumerate(data.split(NEXT, MAX_PAGES - 1)):
        reading = read_metrics(body)
        _check_whole(body, reading)
        _check_same_from_the_library(body)
        at = START + number * STEP
        if isinstance(reading, MetricsReading):
            _check_reading(reading)
            state.apply_scrape(ScrapeResult(at, 0.001, reading, "ok"))
        else:
            assert reading.reason in _REASONS
            state.apply_scrape(ScrapeResult(at, 0.001, None, reading.reason))
        snapshot = state.snapshot(at + 1)
        if isinstance(reading, MetricsReading):
            _check_shown(snapshot)
            snapshots.append(snapshot)
    _check_files(snapshots)


def _check_whole(body: bytes, reading: MetricsReading | Unreadable) -> None:
    """
    A page is the sum of its wanted lines: one that is none spoils all.

    Line ends and comments change nothing, nor does it matter in which pieces a page comes.
    """
    page = parse_exposition(body, WANTED)
    in_pieces = ExpositionParser(WANTED)
    for start in range(0, len(body), PIECE):
        in_pieces.feed(body[start : start + PIECE])
    assert _comparable(in_pieces.finish()) == _comparable(page)
    assert (page.problem is None) or not page.series
    if body and not body.endswith(b"\n"):
        assert page.problem == "incomplete"
        assert reading == Unreadable("incomplete")
        return
    lines = [line for line in body.split(b"\n")[:-1] if line.rstrip(b"\r") and not line.startswith(b"#")]
    alone = [parse_exposition(line + b"\n", WANTED) for line in lines]
    if page.problem is None:
        together = [sample for one in alone for sample in _values(one).items()]
        assert len(_values(page)) <= min(len(lines), MAX_SAMPLES)
        assert _comparable(sorted(_values(page).items())) == _comparable(sorted(dict(together).items()))
    else:
        assert isinstance(reading, Unreadable)
        assert any(one.problem for one in alone)
    other = b"# a comment\n" + body.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") + b"\n"
    assert _comparable(read_metrics(other)) == _comparable(reading)


def _values(page: Exposition) -> dict[tuple[str, Labels], float]:
    return {(name, labels): value for name, series in page.series.items() for labels, value in series.items()}


def _comparable(read: object) -> str:
    """Return a text that is the same for things that were read the same: NaN is not equal to itself."""
    return repr(read)


def _check_same_from_the_library(body: bytes) -> None:
    """Where Prometheus' own library reads a page too, it reads the same samples."""
    ours = parse_exposition(body, WANTED)
    text = body.decode("utf-8", "replace")
    if ours.problem is not None or "\r" in text:
        return
    try:
        theirs = [sample for family in parse_text(text) for sample in family.samples]
    except (ValueError, KeyError, IndexError):
        return
    # They read "-0" as a whole number, which has no sign.
    wanted = {(each.name, *each.labels.items()): each.value + 0.0 for each in theirs if each.name in WANTED}
    found = {(name, *dict(labels).items()): value + 0.0 for (name, labels), value in _values(ours).items()}
    assert _comparable(sorted(wanted.items())) == _comparable(sorted(found.items()))


def _check_reading(reading: MetricsReading) -> None:
    assert len(reading.engines) <= MAX_ENGINES
    for engine in reading.engines.values():
        _check_engine(engine)
    assert all(0 <= count < math.inf for count in reading.admission_rejections.values())
    assert len(reading.admission_rejections) <= MAX_LABEL_VALUES
    assert all(0 <= count < math.inf for count in reading.http_requests.values())
    assert all(0 < tokens <= 1e15 for tokens in reading.kv_cache_tokens.values())
    assert all(0 < ratio <= 1e7 for ratio in reading.max_concurrency.values())
    started = reading.process_start_seconds
    assert started is None or 0 <= started < math.inf
    assert all(0 < count <= MAX_SAMPLES for count in reading.out_of_range.values())


def _check_engine(engine: EngineReading) -> None:
    for name, value in engine.gauges.items():
        assert 0 <= value <= _MOST.get(name, 1), name
    assert set(engine.counters) <= _COUNTERS
    assert all(0 <= count < math.inf for count in engine.counters.values())
    assert len(engine.requests_finished) <= MAX_LABEL_VALUES
    assert all(0 <= count < math.inf for count in engine.requests_finished.values())
    assert len(engine.position_accepted) <= MAX_POSITIONS
    assert all(0 <= count < math.inf for count in engine.position_accepted)
    assert all(0 <= value <= MAX_COUNT for value in engine.kv.counters.values())
    assert all(0 <= value <= KV_GAUGES[key.series] for key, value in engine.kv.gauges.items())
    for histogram in engine.histograms.values():
        assert len(histogram.bounds) == len(histogram.counts)
        assert all(low < high for low, high in pairwise(histogram.bounds))
        assert histogram.bounds[-1] == math.inf
        assert all(low <= high for low, high in pairwise(histogram.counts))
        assert 0 <= histogram.counts[0] <= histogram.counts[-1] < math.inf
        assert math.isfinite(histogram.sum)


def _check_shown(snapshot: ServerSnapshot) -> None:
    """Both formats of the daemon's page say what the snapshot says, and its numbers are possible ones."""
    expected = {}
    for sample in server_samples(snapshot):
        labels = dict(zip(SERIES[sample.name].labels, sample.labels, strict=True))
        name = PREFIX + sample.name
        if isinstance(sample, HistogramSample):
            histogram = sample.histogram
            for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
                _put(expected, f"{name}_bucket", {**labels, "le": bound_text(bound)}, count)
            _put(expected, f"{name}_count", labels, histogram.observations)
            _put(expected, f"{name}_sum", labels, histogram.sum)
        else:
            assert 0 <= sample.value < math.inf, sample
            assert sample.value <= 1 or not sample.name.endswith("_ratio"), sample
            _put(expected, name, labels, sample.value)
    text = exported(snapshot).decode()
    assert _samples(parse_text(text)) == expected
    openmetrics = exported(snapshot, for_openmetrics=True).decode()
    assert _samples(parse_openmetrics(openmetrics)) == expected
    view = msgspec.json.decode(msgspec.json.encode(server_view(snapshot)))
    assert [engine["engine"] for engine in view["engines"]] == [engine.key.engine for engine in snapshot.engines]


def _put(samples: dict, name: str, labels: dict[str, str], value: float) -> None:
    key = (name, *sorted(labels.items()))
    assert key not in samples, key
    samples[key] = float(value)


def _samples(families) -> dict:
    found: dict = {}
    for family in families:
        for sample in family.samples:
            _put(found, sample.name, sample.labels, sample.value)
    return found


def _check_files(snapshots: list[ServerSnapshot]) -> None:
    """
    The strict parser of OpenMetrics takes the file of each moment, and the file of all moments is their sum.

    The parser itself cannot read several moments: it takes a series' second moment for a repetition of the first.
    """
    expected: Counter[str] = Counter()
    for snapshot in snapshots:
        lines = _file_lines([snapshot])
        _samples(parse_openmetrics("".join(lines)))
        expected.update(line for line in lines if not line.startswith("#"))
    assert Counter(line for line in _file_lines(snapshots) if not line.startswith("#")) == expected


def _file_lines(snapshots: list[ServerSnapshot]) -> list[str]:
    file = TimeSeriesFile()
    for snapshot in snapshots:
        file.add(snapshot)
    return "".join(file.texts()).splitlines(keepends=True)
