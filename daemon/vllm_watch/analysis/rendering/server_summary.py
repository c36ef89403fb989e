# SPDX-License-Identifier: Apache-2.0
"""What is known about a server at one moment, for a person: `once` on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from vllm_watch.analysis.loadtest.load_test import Latency, Quantile
from vllm_watch.analysis.loadtest.server_result import HISTOGRAMS, latencies
from vllm_watch.analysis.rendering import gpu_cells
from vllm_watch.analysis.rendering.document import (
    Block,
    Cells,
    Column,
    Document,
    Group,
    Section,
    Statement,
    Table,
    Tone,
    known_table,
    plain_table,
)
from vllm_watch.analysis.rendering.results import in_unit, percentile, percentile_notes
from vllm_watch.analysis.rendering.text import WIDTH, render_text
from vllm_watch.analysis.replay.replay import LogCourse, LogPeriod, Peak
from vllm_watch.daemon.catalog.codes import CAPACITY_BASES, CAPACITY_UNKNOWN
from vllm_watch.daemon.catalog.event_texts import FAILURE_RUNBOOKS, FAILURES
from vllm_watch.daemon.catalog.metric_titles import LATENCY_LABELS, STATISTIC_LABELS, LatencyName, metric_title, titled
from vllm_watch.daemon.catalog.number_texts import (
    MISSING,
    count,
    duration,
    moment,
    of_most,
    share,
    shortened,
    significant,
)
from vllm_watch.daemon.catalog.reasons import SOURCE_NAMES, Standing, explain, standing
from vllm_watch.daemon.catalog.states import STATES, meaning, worst
from vllm_watch.daemon.exposition.document import GpuDocument
from vllm_watch.daemon.exposition.findings import findings
from vllm_watch.daemon.exposition.json_view import as_document, gpu_document
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.snapshot import (
    EngineSnapshot,
    FailureTimes,
    LogCounts,
    Reading,
    ServerSnapshot,
)
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS
from vllm_watch_parsers.scrape import Histogram


_GPU_COLUMNS: Sequence[tuple[Column, Callable[[GpuDocument], str]]] = (
    (Column("GPU"), gpu_cells.title),
    (Column("State", is_text=True), lambda gpu: gpu_cells.condition(gpu).text),
    (Column("Busy", "%"), gpu_cells.busy),
    (Column("Memory", "GiB"), gpu_cells.server_memory),
    (Column("Other", "GiB"), gpu_cells.other_memory),
    (Column("Power", "W"), gpu_cells.power),
    (Column("Core", "°C"), gpu_cells.temperature),
    (Column("SM", "MHz"), gpu_cells.clock),
    (Column("Throttled", "% of time", is_text=True), lambda gpu: gpu_cells.throttling(gpu).text),
)

ENGINES = 4
"""How many engines are side by side in 80 columns."""

_TONES: Mapping[Standing, Tone] = {"ok": "good", "not ok": "warning", "FAILED": "warning", "not read": "note"}
_TITLES = {"requests_running": "running", "requests_waiting": "waiting"}
"""What a quantity of a statistics line is called where it has another name."""

_QUANTILES: tuple[Quantile, ...] = ("p50", "p99")
_COUNTERS = {
    "prompt_tokens_total": "Prompt tokens",
    "generation_tokens_total": "Generated tokens",
    "preemptions_total": "Preemptions",
}


def gpu_table(gpus: Iterable[ServerGpu]) -> Iterator[Block]:
    """Yield the table of what is known of any; nothing where no GPU is. Why they are not read is among the sources."""
    rows = [tuple(text(gpu) for _, text in _GPU_COLUMNS) for gpu in map(gpu_document, gpus)]
    if rows:
        yield known_table("", tuple(column for column, _ in _GPU_COLUMNS), rows)


def summary_text(
    snapshot: ServerSnapshot, log: LogPeriod | None, width: int = WIDTH, course: LogCourse | None = None
) -> str:
    """Return what is known about a server as text, as `summary` has it, in so many columns."""
    return render_text(summary(snapshot, log, course), width)


def summary(snapshot: ServerSnapshot, log: LogPeriod | None, course: LogCourse | None = None) -> Document:
    """Return what is known about a server, with what became of it in its log if that was followed."""
    sections = (
        Section("In the course of the log", () if course is None else tuple(_course(snapshot, course))),
        Section("Last values", tuple(_now(snapshot.engines))),
        Section("GPUs", tuple(gpu_table(snapshot.gpus))),
        Section("Latency since the server's start", tuple(_latencies(snapshot.engines))),
        Section("Counted", tuple(_counted(snapshot, log))),
        Section("What was read", tuple(_sources(snapshot))),
    )
    return Document(_title(snapshot), _lead(snapshot, log), tuple(each for each in sections if each.blocks))


def _title(snapshot: ServerSnapshot) -> str:
    state = worst(engine.state for engine in snapshot.engines)
    version = "" if snapshot.version is None else f" on vLLM {snapshot.version}"
    return f"{snapshot.model_name or snapshot.name}{version}: {state}"


def _lead(snapshot: ServerSnapshot, log: LogPeriod | None) -> str:
    if log is None:
        return f"Read at {moment(snapshot.at)} UTC."
    if snapshot.tail is not None and not snapshot.tail.lines:
        return "The log is empty."
    return f"The log is from {moment(log.start)} to {moment(log.end)} UTC: {duration(log.end - log.start)}."


def _course(snapshot: ServerSnapshot, course: LogCourse) -> Iterator[Block]:
    states = sorted(course.states.items(), key=lambda item: STATES[item[0]].severity, reverse=True)
    for state, times in states[:1]:
        span = f"from {moment(times.start)} to {moment(times.end)}" if times.seconds else f"at {moment(times.start)}"
        longest = "" if times.times == 1 else f", and {count(times.times - 1)} more times"
        runbook = STATES[state].runbook
        yield Statement("warning", f"The worst state was {state}, {span}{longest}. What to do: runbook {runbook}.")
    columns = ("State", "in all", "times", "longest from", "to")
    rows = tuple(
        (state, duration(times.seconds), count(times.times), moment(times.start), moment(times.end))
        for state, times in states
    )
    if rows:
        yield plain_table("", tuple(Column(head, is_text=True) for head in columns), rows)
    peaks = tuple(_peak(name, peak, several=len(snapshot.engines) > 1) for name, peak in course.peaks.items())
    if peaks:
        yield plain_table("", tuple(Column(head, is_text=True) for head in ("Highest", "", "at")), peaks)


def _peak(name: str, peak: Peak, *, several: bool) -> Cells:
    label, unit = metric_title(_TITLES.get(name, name))
    value = share(peak.value) if unit == "%" else count(peak.value)
    return f"{label} ({unit})", value, f"{moment(peak.at)}{f', engine {peak.engine}' if several else ''}"


def _now(engines: Sequence[EngineSnapshot]) -> Iterator[Block]:
    for engine in engines:
        name = f"Engine {engine.key.engine}: " if len(engines) > 1 else ""
        text = meaning(engine.state, engine.cause)
        if text:
            tone: Tone = "note" if engine.state in {"sleeping", "starting"} else "warning"
            yield Statement(tone, f"{name}{text}")
    for first in range(0, len(engines), ENGINES):
        few = engines[first : first + ENGINES]
        heads = [f"engine {engine.key.engine}" if len(engines) > 1 else "" for engine in few]
        rows = [(label, *(value(engine) for engine in few)) for label, value in _VALUES.items()]
        known = tuple(row for row in rows if set(row[1:]) - {MISSING})
        yield plain_table("", (Column("", is_text=True), *(Column(head, is_text=True) for head in heads)), known)
    yield from (Statement("note", text) for text in dict.fromkeys(map(_capacity_note, engines)) if text)


def _capacity_note(engine: EngineSnapshot) -> str:
    """Return how the capacity is known, or why it is not; nothing where that is for want of /metrics."""
    basis, why = next(iter(engine.capacity.ranges), None), engine.capacity.unknown
    if basis is not None:
        return f"The capacity is {CAPACITY_BASES[basis]}."
    return "" if why is None or why == "no_metrics" else f"No capacity is known: {CAPACITY_UNKNOWN[why]}"


def _gauge(name: str, text: Callable[[float | None], str]) -> Callable[[EngineSnapshot], str]:
    def value(engine: EngineSnapshot) -> str:
        return text(_value(engine.gauges.get(name)))

    return value


def _value(reading: Reading | None) -> float | None:
    return None if reading is None else reading.value


def _running(engine: EngineSnapshot) -> str:
    limit = engine.facts.get("max_running_requests")
    return of_most(_value(engine.gauges.get("requests_running")), limit)


def _waiting(engine: EngineSnapshot) -> str:
    deferred = _value(engine.gauges.get("requests_deferred"))
    waiting = count(_value(engine.gauges.get("requests_waiting")))
    return f"{waiting}, of which {count(deferred)} deferred" if deferred else waiting


def _acceptance(engine: EngineSnapshot) -> str:
    length = significant(_value(engine.gauges.get("spec_decode_mean_acceptance_length")))
    drafted, least = engine.facts.get("num_speculative_tokens"), engine.facts.get("num_speculative_tokens_least")
    if drafted is None or length == MISSING:
        return length
    of_most = f" of {count(drafted + 1)}" if least is None else f", {count(least)} to {count(drafted)} a draft"
    return length + of_most


def _tokens(engine: EngineSnapshot) -> str:
    usage, size = _value(engine.gauges.get("kv_cache_usage_ratio")), engine.facts.get("kv_cache_capacity_tokens")
    return count(size) if usage is None or size is None else of_most(usage * size, size, shortened)


def _positions(engine: EngineSnapshot) -> str:
    return ", ".join(share(_value(each)) for each in engine.position_acceptance) or MISSING


def _capacity(engine: EngineSnapshot) -> str:
    known = next(iter(engine.capacity.ranges.values()), None)
    if known is None:
        return MISSING
    return f"{significant(known.tokens_per_second)} ({significant(known.low)} to {significant(known.high)})"


def _last_value(engine: EngineSnapshot) -> str:
    return moment(max((reading.at for reading in engine.gauges.values()), default=None))


_VALUES: Mapping[str, Callable[[EngineSnapshot], str]] = {
    "State": lambda engine: engine.state,
    **{
        titled(name): _gauge(name, significant) for name in ("generation_tokens_per_second", "prompt_tokens_per_second")
    },
    titled("running"): _running,
    titled("waiting"): _waiting,
    titled("kv_cache_usage_ratio"): _gauge("kv_cache_usage_ratio", share),
    "KV cache (tokens)": _tokens,
    **{titled(name): _gauge(name, share) for name in ("prefix_cache_hit_ratio", "mm_cache_hit_ratio")},
    titled("acceptance_length"): _acceptance,
    "Accepted by position (%)": _positions,
    "Capacity (tokens/s)": _capacity,
    "Last value (UTC)": _last_value,
}
"""What is shown of an engine, by label."""


def _latencies(engines: Sequence[EngineSnapshot]) -> Iterator[Block]:
    known = [latencies(_observed(engine)) for engine in engines]
    columns = (
        Column(""),
        *(Column(STATISTIC_LABELS[name]) for name in ("mean", *_QUANTILES)),
        Column("requests"),
    )
    groups = tuple(
        Group(f"Engine {engine.key.engine}" if len(engines) > 1 else "", tuple(_latency_rows(found)))
        for engine, found in zip(engines, known, strict=True)
    )
    table = Table("", columns, groups, percentile_notes([each for found in known for each in found.values()]))
    if not table.is_empty:
        yield table


def _observed(engine: EngineSnapshot) -> dict[LatencyName, Histogram | None]:
    readings = {name: engine.histograms.get(series) for name, series in HISTOGRAMS.items()}
    return {
        name: reading.histogram if reading is not None and reading.histogram.observations else None
        for name, reading in readings.items()
    }


def _latency_rows(known: Mapping[LatencyName, Latency | None]) -> Iterator[Cells]:
    for name, found in known.items():
        if found is not None:
            scale, unit = in_unit([found])
            quantiles = (percentile(quantile, found, scale) for quantile in _QUANTILES)
            mean = significant(None if found.mean is None else found.mean * scale)
            yield f"{LATENCY_LABELS[name]} ({unit})", mean, *quantiles, count(found.count)


def _counted(snapshot: ServerSnapshot, log: LogPeriod | None) -> Iterator[Block]:
    if snapshot.log is not None:
        yield from (Statement("warning", text) for text in _failures(snapshot.log))
    groups = (
        Group("In the log" if log is not None else "By the server", tuple(_server_rows(snapshot))),
        Group("By the engines since the server's start", tuple(_engine_rows(snapshot))),
    )
    table = Table("", (Column("", is_text=True), Column("")), tuple(group for group in groups if group.rows))
    if not table.is_empty:
        yield table


def _failures(log: LogCounts) -> Iterator[str]:
    for name, number in log.events.items():
        if number:
            times = "" if number == 1 else f", {count(number)} times"
            when = _failure_times(log.failure_times.get(name))
            what = f" What to do: runbook {FAILURE_RUNBOOKS[name]}." if name in FAILURE_RUNBOOKS else ""
            yield f"The log reports: {FAILURES.get(name, name)}{times}{when}.{what}"


def _failure_times(times: FailureTimes | None) -> str:
    if times is None:
        return ""
    if times.first == times.last:
        return f", at {moment(times.first)}"
    return f", first at {moment(times.first)}, last at {moment(times.last)}"


def _server_rows(snapshot: ServerSnapshot) -> Iterator[Cells]:
    if snapshot.tail is not None:
        yield "Lines", count(snapshot.tail.lines)
    if snapshot.starts:
        yield "Starts of the server", count(snapshot.starts)
    answers: Counter[str] = Counter()
    for key, number in snapshot.http_requests.items():
        if key.handler in INFERENCE_HANDLERS:
            answers[key.code] += int(number)
    for code, number in sorted(answers.items()):
        if number:
            yield f"Answers {code}", count(number)
    rejected = sum(reading.value for reading in snapshot.admission_rejections.values())
    if rejected:
        yield "Rejected for the length of the queue", count(rejected)


def _engine_rows(snapshot: ServerSnapshot) -> Iterator[Cells]:
    totals = [*(engine.totals for engine in snapshot.engines), *snapshot.former]
    finished: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    for each in totals:
        finished.update({reason: int(reading.value) for reason, reading in each.requests_finished.items()})
        counted.update({name: int(reading.value) for name, reading in each.counters.items()})
    for reason, number in finished.items():
        if number:
            yield f"Requests finished: {reason}", count(number)
    yield from ((label, count(counted[name])) for name, label in _COUNTERS.items() if name in counted)


def _sources(snapshot: ServerSnapshot) -> Iterator[Block]:
    for source in snapshot.sources:
        name = SOURCE_NAMES[source.source]
        text = f"{name[0].upper()}{name[1:]}: {explain(source.source, source.reason, is_stopped=snapshot.is_stopped)}"
        how = standing(source.source, source.reason, is_up=source.is_up, is_stopped=snapshot.is_stopped)
        yield Statement(_TONES[how], text)
    for finding in findings(as_document(snapshot)):
        text = f"{finding.text[0].upper()}{finding.text[1:].rstrip('.')}."
        yield Statement("warning" if finding.weight == "wrong" else "note", text)
    if snapshot.log is not None and snapshot.log.unparsed_stats_lines:
        number = count(snapshot.log.unparsed_stats_lines)
        yield Statement("warning", f"Statistics lines of an unknown form were not read: {number}.")
