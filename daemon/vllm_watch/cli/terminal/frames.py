# SPDX-License-Identifier: Apache-2.0
"""
What a terminal shows of one document of ``/api/v1/snapshot``: the servers, the worst first, with what follows from it.

`None` is what is not known; it is never 0. Times are seconds since the epoch by the clock of the servers' daemon, but
for those of `Frame.received` and `Lost.since`, which are by the clock of the reader (`Clock.now`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, cast

from vllm_watch.daemon.catalog.reasons import BY_SOURCE, SOURCE_NAMES, SourceName, Standing, needs_attention, standing
from vllm_watch.daemon.catalog.states import (
    STATES,
    EngineState,
    FirstSteps,
    common,
    first_steps,
    meaning,
    severity,
    worst,
)
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.exposition.document import (
    AlertDocument,
    Document,
    EngineDocument,
    ReadingDocument,
    ServerDocument,
    SinceDocument,
    SourceDocument,
)
from vllm_watch.daemon.exposition.findings import Finding, alert_subject, alert_text, findings
from vllm_watch.daemon.state.latencies import is_wide
from vllm_watch.daemon.support.errors import DaemonError, WrongDaemonError


Stage = Literal["time_to_first_token", "time_per_output_token", "inter_token", "e2e", "queue", "prefill", "decode"]

STAGE_NAMES: dict[Stage, str] = {
    "time_to_first_token": "TTFT",
    "time_per_output_token": "TPOT",
    "inter_token": "ITL",
    "e2e": "E2EL",
    "queue": "queue",
    "prefill": "prefill",
    "decode": "decode",
}
"""The stages whose latencies are shown, in their order, with their names."""

LatencyLevel = Literal["p50", "p95", "p99"]

_LEVELS: dict[str, LatencyLevel] = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}
"""The names of the quantiles, by the keys of the document."""

_OBJECTIVES: Mapping[Stage, str] = {
    "time_to_first_token": "slo_time_to_first_token_seconds",
    "time_per_output_token": "slo_time_per_output_token_seconds",
}
"""The objective of a stage in `slo`."""


class Quantile(NamedTuple):
    """
    A quantile of a latency, in seconds.

    `sign` is ``>`` for one in a wide bucket, whose start is given; ``~`` for one in a coarse bucket, which is only
    roughly known; and ``<`` for one that lies in the first bucket, whose end is given.
    """

    seconds: float
    sign: Literal["", ">", "~", "<"] = ""


class Latency(NamedTuple):
    """How long one stage took in the last minute: what is known of it; `objective` is what the server promises."""

    quantiles: Mapping[LatencyLevel, Quantile]
    objective: float | None = None

    def seconds(self, level: LatencyLevel) -> float | None:
        """Return a quantile; `None` if it is not known, or only that it lies in the first bucket."""
        quantile = self.quantiles.get(level)
        return None if quantile is None or quantile.sign == "<" else quantile.seconds


Latencies = Mapping[Stage, Latency]
"""In the order of `STAGE_NAMES`."""


class Point(NamedTuple):
    """
    The numbers of a server at one moment: sums over its engines, and the highest of what cannot be summed.

    A sum of which an engine's part is not known is not known; the highest is that of the engines that have one.
    """

    at: float
    prompt_tokens_per_second: float | None = None
    generation_tokens_per_second: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    ttft_p95: float | None = None


class Server(NamedTuple):
    """
    One server.

    Args:
        document: What the daemon says of it.
        state: The worst of its engines.
        cause: Why it is in that state, as a code; `None` if that is not known, or not the same of all its engines.
        meaning: What the state means, in words; empty where nothing is to be said.
        since: Since when the first of the engines in this state is in it; `None` if that is not known.
        first_steps: What to do first; `None` for a state that needs nothing.
        now: Its numbers.
        latencies: As of an engine, the highest of all engines.
        findings: What is wrong, then what should be known.
        recent: The numbers of the last readings of this program, oldest first.
        hour: The numbers of the last hour, oldest first, ten seconds apart; empty if it was not asked for.
    """

    document: ServerDocument
    state: EngineState
    cause: str | None
    meaning: str
    since: SinceDocument | None
    first_steps: FirstSteps | None
    now: Point
    latencies: Latencies
    findings: tuple[Finding, ...]
    recent: tuple[Point, ...] = ()
    hour: tuple[Point, ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return self.document.name

    @property
    def engines(self) -> Sequence[EngineDocument]:
        """Its engines."""
        return self.document.engines

    def sum_of_facts(self, name: str) -> float | None:
        """Return the sum of a fact over the engines; `None` if one's is not known."""
        return _sum([engine.facts.get(name) for engine in self.engines])


class Frame(NamedTuple):
    """
    All servers at one moment.

    Args:
        at: The moment.
        received: When this program received it, by its own clock; the age of the data is the time since then.
        servers: The worst first, then by name.
        findings: What is wrong, then what should be known, that is about none of them but about vllm-watch.
        is_replay: Whether what is shown is a recording that `vllm-watch demo` replays.
    """

    at: float
    received: float
    servers: tuple[Server, ...]
    findings: tuple[Finding, ...] = ()
    is_replay: bool = False


class Lost(NamedTuple):
    """
    There is no reading now.

    Args:
        since: When the first attempt failed, by the clock of the reader.
        reason: Why, and what to do, in words.
        last: What was read last; `None` if nothing was ever read.
        is_final: Whether it is not tried again, because it would fail in the same way.
    """

    since: float
    reason: str
    last: Frame | None = None
    is_final: bool = False


View = Frame | Lost | None
"""What there is to show; `None` until the first attempt has ended."""


def frame_of(document: Document, received: float, only: str | None = None) -> Frame:
    """
    Return what a document says.

    Args:
        document: What a vllm-watch answers.
        received: When it came, by the reader's clock.
        only: The only server to show.

    Raises:
        DaemonError: It is not among them; a `WrongDaemonError` if there are others.
    """
    servers = [_server(server, document) for server in document.servers if only is None or server.name == only]
    if only is not None and not servers:
        others = ", ".join(sorted(quote(server.name) for server in document.servers))
        error = WrongDaemonError if others else DaemonError  # One that has none yet may still find it.
        raise error(f"there is no server {quote(only)}; there are: {others or 'none'}")
    servers.sort(key=lambda server: (-severity(server.state, server.cause), server.name))
    return Frame(document.at, received, tuple(servers), _common_findings(document), document.replay is not None)


def state_of(engine: EngineDocument) -> EngineState:
    """Return the state of an engine; one of a newer daemon is not known here."""
    return cast("EngineState", engine.state) if engine.state in STATES else "unknown"


def cause_of(engine: EngineDocument) -> str | None:
    """Return why an engine is in a bad state, as a code."""
    return engine.cause.reason if engine.cause is not None else None


def gauge(engine: EngineDocument, name: str) -> ReadingDocument | None:
    """Return a gauge with its source; one from a source of a newer daemon is not known here."""
    reading = engine.gauges.get(name)
    return None if reading is None or reading.value is None or reading.source not in BY_SOURCE else reading


def value(engine: EngineDocument, name: str) -> float | None:
    """Return the number of a gauge."""
    reading = gauge(engine, name)
    return None if reading is None else reading.value


def short_of(source: SourceDocument) -> str:
    """Return how reading a source goes, in a few words."""
    reasons = BY_SOURCE.get(cast("SourceName", source.source), {})
    return reasons[source.reason].short if source.reason in reasons else source.explanation


def standing_of(source: SourceDocument, server: ServerDocument) -> Standing:
    """Return how a source is."""
    return standing(source.source, source.reason, is_up=source.up, is_stopped=server.is_stopped)


def latencies_of(engine: EngineDocument, slo: Mapping[str, float | None]) -> Latencies:
    """Return how long each stage took."""
    return {
        stage: Latency(dict(_quantiles(stage, engine)), slo.get(_OBJECTIVES.get(stage, ""))) for stage in STAGE_NAMES
    }


def _server(server: ServerDocument, document: Document) -> Server:
    states = [state_of(engine) for engine in server.engines]
    state = worst(states)
    in_state = [engine for engine in server.engines if state_of(engine) == state]
    cause = common(map(cause_of, in_state))
    known_since = [engine.state_since for engine in in_state if engine.state_since is not None]
    latencies = _worst([latencies_of(engine, server.slo) for engine in server.engines])
    return Server(
        document=server,
        state=state,
        cause=cause,
        meaning=meaning(state, cause),
        since=min(known_since, key=lambda since: since.at, default=None),
        first_steps=first_steps().get(state),
        now=_now(server.engines, latencies["time_to_first_token"], document.at),
        latencies=latencies,
        findings=_server_findings(server, document.alerts),
        hour=tuple(Point(at, *values) for at, values in server.hour(Point._fields[1:])),
    )


def _quantiles(stage: Stage, engine: EngineDocument) -> Iterator[tuple[LatencyLevel, Quantile]]:
    numbers, bounds = engine.quantiles.get(stage, {}), engine.quantile_bounds.get(stage, {})
    first = engine.first_bounds.get(stage) if stage in engine.means else None
    for key, level in _LEVELS.items():
        number = numbers.get(key)
        if key in bounds and is_wide(bounds[key]):  # An estimate within it would be a number that nobody had.
            yield level, Quantile(bounds[key][0], ">")
        elif number is not None:
            yield level, Quantile(number, "~" if key in bounds else "")
        elif first is not None:
            yield level, Quantile(first, "<")


def _worst(engines: Sequence[Latencies]) -> Latencies:
    """Return the highest of each quantile of each stage; one below a bound only where none is known."""
    return {
        stage: Latency(
            {
                level: max(known, key=lambda each: (each.sign != "<", each.seconds, each.sign == ">"))
                for level in _LEVELS.values()
                if (known := [engine[stage].quantiles[level] for engine in engines if level in engine[stage].quantiles])
            },
            next((engine[stage].objective for engine in engines), None),
        )
        for stage in STAGE_NAMES
    }


def _now(engines: Sequence[EngineDocument], first_token: Latency, at: float) -> Point:
    sums = {
        name: _sum([value(engine, name) for engine in engines])
        for name in Point._fields
        if name.endswith(("per_second", "running", "waiting"))
    }
    usage = [ratio for engine in engines if (ratio := value(engine, "kv_cache_usage_ratio")) is not None]
    return Point(at, **sums, kv_cache_usage_ratio=max(usage, default=None), ttft_p95=first_token.seconds("p95"))


def _sum(values: Sequence[float | None]) -> float | None:
    """Return a sum, if there is nothing in it that is not known."""
    numbers = [number for number in values if number is not None]
    return sum(numbers) if numbers and len(numbers) == len(values) else None


def _server_findings(server: ServerDocument, alerts: Sequence[AlertDocument]) -> tuple[Finding, ...]:
    """Return what is wrong with a server or should be known: first the wrong, and of it the alerts."""
    alerted = (_alert(alert, None) for alert in alerts if alert.server == server.name)
    return _wrong_first([*alerted, *_failures(server), *findings(server)])


def _common_findings(document: Document) -> tuple[Finding, ...]:
    """Return what is wrong or should be known about no server: alerts about vllm-watch, or why there are none."""
    prometheus = document.prometheus
    unknown = []
    if prometheus is not None and not prometheus.up:
        unknown = [Finding("note", f"alerts are not known: {prometheus.explanation}")]
    return _wrong_first(
        [*unknown, *(_alert(alert, alert.instance) for alert in document.alerts if alert.server is None)]
    )


def _wrong_first(unordered: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(unordered, key=lambda finding: finding.weight == "note"))


def _alert(alert: AlertDocument, instance: str | None) -> Finding:
    is_wrong = (alert.severity, alert.state) == ("critical", "firing")
    subject = alert_subject(alert.alertname, None, alert.engine, instance)
    return Finding("wrong" if is_wrong else "note", alert_text(alert.severity, alert.state, subject, alert.summary))


def _failures(server: ServerDocument) -> Iterator[Finding]:
    for source in server.sources:
        if needs_attention(source.source, source.reason, is_up=source.up, is_stopped=server.is_stopped):
            name = cast("SourceName", source.source)  # One of a newer daemon is called by its code.
            yield Finding("wrong", f"{SOURCE_NAMES.get(name, name)}: {source.explanation or source.reason}")
