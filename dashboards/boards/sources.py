# SPDX-License-Identifier: Apache-2.0
"""How far what is shown can be trusted: which source is fresh, where they differ, what the daemon itself does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, get_args

from grafana_foundation_sdk.models import dashboard as models

from boards.kit import palette, promql, variables
from boards.kit.board import Row, board
from boards.kit.legends import ENGINE
from boards.kit.links import runbooks, to_board
from boards.kit.panels import (
    BYTES,
    EVENTS,
    RATIO,
    REQUESTS,
    SECONDS,
    TOKENS,
    TOKENS_PER_SECOND,
    Column,
    Key,
    Panel,
    Query,
    figures,
    grid,
    lines,
    timeline,
    value_mapping,
)
from boards.kit.texts import Texts
from boards.kit.thresholds import number
from vllm_watch.daemon.catalog.reasons import BY_SOURCE, CheckpointReason
from vllm_watch.daemon.exposition.samples import SHOWN_QUANTITIES
from vllm_watch.daemon.state.cross_check import QUANTITIES


UID = "vllm-watch-sources"

_SERVER, _DAEMON = "{{server}}", "{{instance}}"

_LOG_COLOR, _PAGE_COLOR = palette.ORANGE, palette.SKY

_UNITS = {
    "kv_cache_usage_ratio": RATIO,
    "prefix_cache_hit_ratio": RATIO,
    "prompt_tokens_per_second": TOKENS_PER_SECOND,
    "generation_tokens_per_second": TOKENS_PER_SECOND,
    "spec_decode_mean_acceptance_length": TOKENS,
}

_OF_SERVER: Final = frozenset(
    {("log", "stalled"), ("log", "ended"), ("metrics", "timeout"), ("probe", "timeout"), ("probe", "failed")}
)
"""Reasons that tell of a server that hangs or ended: the source is right, and it is the server that needs somebody."""

_VERDICTS: Final[tuple[tuple[str, str], ...]] = (
    ("ok", palette.GOOD),
    ("quiet", palette.PLAIN),
    ("internal", palette.PURPLE),
    ("misconfigured", palette.WARNING),
    ("failure", palette.WARNING),
    ("trouble", palette.BAD),
)
"""What to think of a source, from the best to the worst, in the words of its reasons' kinds."""

_NOT_BELIEVED = {
    "unparsed_stats_lines_total": palette.VERMILLION,
    "log_lines_rejected_total": palette.PURPLE,
    "refused_values_total": palette.ORANGE,
    "unknown_field_total": palette.BLUE,
    "label_values_dropped_total": palette.GREY,
}
_HAPPENED_TO_FILES = {
    "log_rotations_total": palette.SKY,
    "log_truncations_total": palette.ORANGE,
    "log_files_lost_total": palette.VERMILLION,
    "log_read_errors_total": palette.PURPLE,
    "log_long_lines_total": palette.BLUE,
}
_COUNTED = (
    *_NOT_BELIEVED,
    *(name for name in _HAPPENED_TO_FILES if name != "log_rotations_total"),
    "log_skipped_bytes_total",
    "log_nul_bytes_total",
)
"""What should be 0, and is listed when it is not; that a log is rotated is as it should be."""

_IN_A_ROW, _ROWS = 4, 8

_OF_SOURCE: Final = ("instance", "server", "source")
"""Labels that tell sources apart."""

_MOST_REASONS: Final = 100
"""Of one verdict: their numbers lie between two hundreds."""

_LONG_LINE = 1024.0
"""Bytes; less than this is no lag worth an axis of its own."""

_NEARLY_ALL = 0.8
"""Of the descriptors that the process may open; there is no alert on them."""


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "sources")
    return board(
        t,
        UID,
        variables.usual(t, everything=False),
        [
            Row(t.row("trust"), [_verdicts(t), _doubts(t), _sources(t)]),
            Row(t.row("when"), [_reasons_over_time(t)]),
            Row(t.row("compared"), [*_compared(t), _disagreement(t)]),
            Row(
                t.row("doubted"),
                [_missing(t), _counted(t), _bars(t, "doubted", _NOT_BELIEVED, width=24)],
                collapsed=True,
            ),
            Row(t.row("reading"), [*_reading(t), *_asking(t)], collapsed=True),
            Row(t.row("daemon"), [_daemons(t), *_cost(t)], collapsed=True),
        ],
    )


class _Said(NamedTuple):
    """A reason of a source, the number that stands for it, the larger the worse, and what to think of the source."""

    source: str
    code: str
    number: int
    verdict: str


def _said() -> Iterator[_Said]:
    """Yield all reasons, the best first."""
    names = [name for name, _ in _VERDICTS]
    for rank, name in enumerate(names):
        reasons = [
            (source, code)
            for source, of_source in BY_SOURCE.items()
            for code, reason in of_source.items()
            if name == ("trouble" if (source, code) in _OF_SERVER else reason.kind)
        ]
        for place, (source, code) in enumerate(reasons):
            yield _Said(source, code, rank * _MOST_REASONS + place, name)


def _of_verdict(verdict: str) -> str:
    """Return the reasons of all servers' sources that have a verdict: 1 for each."""
    infos = [
        promql.of_daemon("source_info", f'source="{source}",reason=~"{"|".join(codes)}"')
        for source in BY_SOURCE
        if (codes := [said.code for said in _said() if (said.source, said.verdict) == (source, verdict)])
    ]
    return f"({' or '.join(infos)})"


def _verdicts(t: Texts) -> Panel:
    """Return how many sources of all servers there are of each verdict, the worst first."""
    ranks = " or ".join(f"{_of_verdict(name)} * {rank}" for rank, (name, _) in enumerate(_VERDICTS))
    worst = promql.only(ranks, *_OF_SOURCE)
    return figures(
        t.panel("verdicts"),
        EVENTS,
        [
            Query(
                _counted_of(f"count({worst} == {rank})", promql.of_daemon("source_info")),
                t.name(f"verdict_{name}"),
                color,
            )
            for rank, (name, color) in reversed([*enumerate(_VERDICTS)])
        ],
        width=14,
    )


def _doubts(t: Texts) -> Panel:
    """Return what is to be doubted although each source can be read; all should be 0."""
    rejected = " or ".join(f'label_replace({_in_range(name)}, "kind", "{name}", "", "")' for name in _NOT_BELIEVED)
    watched = promql.of_server("source_up")
    return figures(
        t.panel("doubts"),
        EVENTS,
        [
            Query(_counted_of(f"sum({rejected})", watched), t.name("rejected"), palette.BAD),
            Query(
                _counted_of(f"count({promql.of_engine('source_disagreement')} == 1)", watched),
                t.name("disagree"),
                palette.BAD,
            ),
            Query(
                _counted_of(f"count({promql.of_server('required_metric_missing')} == 1)", watched),
                t.name("missing"),
                palette.BAD,
            ),
            Query(_counted_of(f"count({_unwell()})", _scraped()), t.name("unwell"), palette.BAD),
        ],
        width=10,
    )


def _counted_of(count: str, among: str) -> str:
    """Return a count, which is 0 only where there is something among which it counts: else it is not known."""
    return f"{count} or count({among}) * 0"


def _in_range(name: str) -> str:
    """Return how often something happened in the time range; a counter that began in it counts from 0."""
    counter = promql.of_server(name)
    return f"clamp_min({counter} - ({counter} offset {promql.RANGE} or {counter} * 0), 0)"


def _unwell() -> str:
    """Return the daemons that cannot be scraped, that hang, or that rejected their configuration."""
    hanging = f"max without (thread) ({_heartbeat_age()}) > {number('heartbeat_seconds'):g}"
    rejected = f"{promql.of_daemon('config_last_reload_successful')} == 0"
    return f"{_scraped()} == 0 or {promql.only(hanging, 'instance')} or {promql.only(rejected, 'instance')}"


def _sources(t: Texts) -> Panel:
    verdict, server, source = t.name("verdict"), t.name("server"), t.name("source")
    last = _age("source_last_reading_timestamp_seconds")
    judged = " or ".join(
        f'label_replace({_of_verdict(name)}, "todo", "{name}", "", "") * {rank}'
        for rank, (name, _) in enumerate(_VERDICTS)
    )
    # Loaded from files, series have no mark of their end: for a while a source has two reasons, and the worse is shown.
    worst = f'topk by ({", ".join(_OF_SOURCE)}) (1, label_join({judged}, "why", ":", "source", "reason"))'
    return grid(
        t.panel("sources"),
        [
            Key("server", server, [_here(t), _to_server(t)], width=110),
            Key("instance", t.name("daemon"), width=115),
            Key("source", source, width=70),
        ],
        [
            Column(promql.only(worst, *_OF_SOURCE, "why", "todo"), verdict, mappings=[_judged(t)], width=145),
            Column(promql.only(last, *_OF_SOURCE), t.name("last_reading"), SECONDS, decimals=1, width=90),
        ],
        facts=[
            Key("why", t.name("why"), width=400, mappings=[_reasons(t)]),
            Key("todo", t.name("todo"), mappings=[_todo(t)]),
        ],
        sort_by=[(verdict, True), (server, False), (source, False)],
        height=8,
        runbooks=runbooks(t, "VllmSourceDown", "VllmServerNotWatched"),
    )


def _judged(t: Texts) -> models.ValueMapping:
    return value_mapping(
        {str(rank): (t.name(f"verdict_{name}"), color) for rank, (name, color) in enumerate(_VERDICTS)}
    )


def _todo(t: Texts) -> models.ValueMapping:
    return value_mapping({name: (t.name(f"todo_{name}"), palette.TEXT) for name, _ in _VERDICTS})


def _here(t: Texts) -> Mapping[str, object]:
    return to_board(t.name("to_here"), UID, server="${__data.fields.server}", daemon="${__data.fields.instance}")


def _to_server(t: Texts) -> Mapping[str, object]:
    chosen = {"server": "${__data.fields.server}", "daemon": "${__data.fields.instance}"}
    return to_board(t.name("to_server"), "vllm-watch-server", **chosen)


def _yes_or_no(t: Texts, yes: str, no: str) -> models.ValueMapping:
    return value_mapping({"1": (t.name(yes), palette.GOOD), "0": (t.name(no), palette.BAD)})


def _age(of_daemon: str) -> str:
    return f"time() - {promql.of_daemon(of_daemon)}"


def _reasons(t: Texts) -> models.ValueMapping:
    colors = dict(_VERDICTS)
    return value_mapping(
        {
            f"{said.source}:{said.code}": (t.get(f"reasons.{said.source}.{said.code}"), colors[said.verdict])
            for said in _said()
        }
    )


def _reasons_over_time(t: Texts) -> Panel:
    """Return what each source said of itself, in words."""
    numbered = " or ".join(
        promql.of_server("source_info", f'source="{said.source}",reason="{said.code}"') + f" * {said.number}"
        for said in _said()
    )
    colors = dict(_VERDICTS)
    words = {str(said.number): (t.get(f"reasons.{said.source}.{said.code}"), colors[said.verdict]) for said in _said()}
    return timeline(
        t.panel("reasons_over_time"),
        Query(promql.in_order(f"max without (reason) ({numbered})", "server", "source"), "{{_row}}"),
        [value_mapping(words)],
        height=10,
        rows_per_page=_ROWS,
        runbooks=runbooks(t, "VllmSourceDown"),
    )


def _compared(t: Texts) -> Iterator[Panel]:
    for place, quantity in enumerate(SHOWN_QUANTITIES):
        unit = _UNITS.get(quantity, REQUESTS)
        yield lines(
            t.panel(quantity),
            unit,
            [
                Query(
                    promql.of_engine("source_value", f'source="{source}",quantity="{quantity}"'),
                    f"{{{{server}}}} {t.name(f'of_{source}')}${{{ENGINE}}}",
                    color,
                    several=True,
                )
                for source, color in (("log", _LOG_COLOR), ("metrics", _PAGE_COLOR))
            ],
            width=6 if place < _IN_A_ROW else 8,
            height=7,
            most=1 if unit == RATIO else None,
            soft_most=1,
            stepped=True,
            runbooks=runbooks(t, "VllmSourcesDisagree"),
        )


def _disagreement(t: Texts) -> Panel:
    """Return a line for each quantity, in words: its own name, and the state's."""
    words = {**{quantity: t.panel(quantity).title for quantity in QUANTITIES}, "engine_state": t.name("state")}
    first, *more = (
        Query(promql.of_engine("source_disagreement", f'quantity="{quantity}"'), f"{{{{server}}}} {name}${{{ENGINE}}}")
        for quantity, name in words.items()
    )
    return timeline(
        t.panel("disagreement"),
        first,
        [value_mapping({"0": (t.name("same"), palette.GOOD), "1": (t.name("different"), palette.BAD)})],
        height=9,
        rows_per_page=_ROWS,
        runbooks=runbooks(t, "VllmSourcesDisagree"),
        more=more,
    )


def _missing(t: Texts) -> Panel:
    missing = promql.of_server("required_metric_missing")
    server, metric = t.name("server"), t.name("metric")
    return grid(
        t.panel("missing"),
        [Key("server", server, width=120), Key("metric", metric)],
        [Column(f"avg_over_time({missing}[$__range]) and {missing} == 1", t.name("how_long"), RATIO, width=120)],
        sort_by=[(server, False), (metric, False)],
        width=10,
        runbooks=runbooks(t, "VllmFormatChanged"),
    )


def _counted(t: Texts) -> Panel:
    counted = " or ".join(f'label_replace({promql.of_server(name)} > 0, "kind", "{name}", "", "")' for name in _COUNTED)
    count = t.name("count")
    kinds = value_mapping({name: (t.name(name), palette.PLAIN) for name in _COUNTED})
    return grid(
        t.panel("counted"),
        [
            Key("server", t.name("server"), width=100),
            Key("kind", t.name("kind"), mappings=[kinds]),
            Key("source", t.name("source"), width=75),
            Key("quantity", t.name("quantity")),
            Key("field", t.name("field")),
        ],
        [Column(counted, count, width=80)],
        sort_by=[(count, True)],
        width=14,
        runbooks=runbooks(t, "VllmFormatChanged", "VllmLogLost"),
    )


def _bars(t: Texts, key: str, colors: Mapping[str, str], *, width: int) -> Panel:
    """Return how often what happened, each counter's series of a server together."""
    return lines(
        t.panel(key),
        EVENTS,
        [
            Query(
                f"sum without (source, quantity, field) ({promql.happened(promql.of_server(name))})",
                t.of_server(name),
                color,
            )
            for name, color in colors.items()
        ],
        width=width,
        bars=True,
        soft_most=1,
        runbooks=runbooks(t, "VllmFormatChanged", "VllmLogLost"),
    )


def _reading(t: Texts) -> list[Panel]:
    lag = Query(promql.of_server("log_lag_bytes"), _SERVER, palette.ORANGE, several=True)
    read_lines = Query(promql.rate(promql.of_server("log_lines_total")), _SERVER, palette.SKY, several=True)
    read_bytes = Query(promql.rate(promql.of_server("log_bytes_total")), _SERVER, palette.SKY, several=True)
    return [
        lines(t.panel("lag"), BYTES, [lag], width=6, soft_most=_LONG_LINE),
        lines(t.panel("log_lines"), "suffix: /s", [read_lines], width=6, soft_most=1),
        lines(t.panel("log_bytes"), "Bps", [read_bytes], width=6, soft_most=1),
        _bars(t, "files", _HAPPENED_TO_FILES, width=6),
    ]


def _asking(t: Texts) -> list[Panel]:
    scrape = Query(promql.of_server("scrape_duration_seconds"), _SERVER, palette.SKY, several=True)
    probe = Query(promql.of_server("probe_time_to_first_token_seconds"), _SERVER, palette.GREEN, several=True)
    return [
        lines(t.panel("scrape"), SECONDS, [scrape], soft_most=0.1),
        lines(t.panel("probe"), SECONDS, [probe], soft_most=0.1),
        timeline(
            t.panel("probe_success"),
            Query(promql.of_server("probe_success"), _SERVER),
            [_yes_or_no(t, "succeeded", "failed")],
            width=8,
            height=8,
            runbooks=runbooks(t, "VllmProbeFailing"),
        ),
    ]


def _checkpoints(t: Texts) -> models.ValueMapping:
    """Return in words whether the checkpoint was used at the start, or why not: at a first start there is none."""
    colors = {"ok": palette.GOOD, "absent": palette.TEXT}
    reasons = get_args(CheckpointReason)
    return value_mapping({each: (t.get(f"checkpoints.{each}"), colors.get(each, palette.WARNING)) for each in reasons})


def _daemons(t: Texts) -> Panel:
    daemon, is_scraped = t.name("daemon"), t.name("is_scraped")
    return grid(
        t.panel("daemons"),
        [Key("instance", daemon)],
        [
            Column(_scraped(), is_scraped, mappings=[_yes_or_no(t, "yes", "no")], width=85),
            *_daemon_columns(t),
            Column(
                promql.only(promql.of_daemon("checkpoint_info"), "instance", "reason"),
                t.name("checkpoint_info"),
                hidden=True,
            ),
            Column(promql.only(promql.of_daemon("build_info"), "instance", "version"), t.name("info"), hidden=True),
        ],
        facts=[
            Key("reason", t.name("checkpoint"), width=110, mappings=[_checkpoints(t)]),
            Key("version", t.name("version"), width=80),
        ],
        sort_by=[(is_scraped, False), (daemon, False)],
        height=5,
        runbooks=runbooks(t, "VllmWatchGone", "VllmWatchUnwell"),
    )


def _scraped() -> str:
    """Return whether Prometheus can scrape each daemon, also one that is gone: it was there, and is still a target."""
    there = f"last_over_time({promql.of_daemon('build_info')}[$__range])"
    return promql.only(f"{_of_target('up')} and on (job, instance) {there}", "instance")


def _daemon_columns(t: Texts) -> list[Column]:
    age = f"time() - {_of_process('process_start_time_seconds')}"
    servers = promql.only(promql.of_daemon("source_up"), "instance", "server")
    opened = f"{_of_process('process_open_fds')} / {_of_process('process_max_fds')}"
    return [
        Column(promql.only(age, "instance"), t.name("runs_for"), SECONDS, decimals=1, width=85),
        Column(f"count by (instance) ({servers})", t.name("servers"), width=75),
        Column(
            promql.only(promql.of_daemon("config_last_reload_successful"), "instance"),
            t.name("configuration"),
            mappings=[_yes_or_no(t, "accepted", "refused")],
            width=85,
        ),
        _failures(t, "config_reload_failures_total", "reload_failures", 80),
        _failures(t, "checkpoint_failures_total", "checkpoint_failures", 85),
        _failures(t, "internal_errors_total", "internal_errors", 70),
        Column(
            promql.only(_heartbeat_age(), "instance"),
            t.name("oldest_heartbeat"),
            SECONDS,
            steps=[(0, palette.GOOD), (number("heartbeat_seconds"), palette.BAD)],
            decimals=1,
            width=90,
        ),
        Column(
            promql.only(opened, "instance"),
            t.name("descriptors"),
            RATIO,
            steps=[(0, palette.GOOD), (_NEARLY_ALL, palette.WARNING)],
            decimals=1,
            width=90,
        ),
    ]


def _failures(t: Texts, counter: str, name: str, width: int) -> Column:
    grown = f"sum by (instance) ({promql.increase(promql.of_daemon(counter), '$__range')})"
    return Column(grown, t.name(name), steps=[(0, palette.GOOD), (0.5, palette.WARNING)], decimals=0, width=width)


def _of_target(name: str) -> str:
    return f'{name}{{instance=~"$daemon"}}'


def _of_process(name: str, window: str = "") -> str:
    """Return a metric that every process may have, of the daemons' only."""
    metric = f"rate({_of_target(name)}[{window}])" if window else _of_target(name)
    return f"({metric} and on (job, instance) {promql.of_daemon('build_info')})"


def _heartbeat_age() -> str:
    """Return how old the threads' heartbeats were at the scrape: `time()` would add the time since then."""
    heartbeat = promql.of_daemon("heartbeat_timestamp_seconds")
    return f"(timestamp({heartbeat}) - {heartbeat})"


def _cost(t: Texts) -> list[Panel]:
    failed = promql.happened(promql.of_daemon("internal_errors_total"))
    return [
        lines(
            t.panel("cpu"),
            RATIO,
            [_by_daemon("process_cpu_seconds_total", palette.SKY, promql.WINDOW)],
            width=6,
            soft_most=0.05,
        ),
        lines(t.panel("memory"), BYTES, [_by_daemon("process_resident_memory_bytes", palette.PURPLE)], width=6),
        lines(t.panel("descriptors"), EVENTS, [_by_daemon("process_open_fds", palette.GREEN)], width=6),
        lines(t.panel("page_samples"), EVENTS, [_by_daemon("scrape_samples_scraped", palette.GREY)], width=6),
        lines(
            t.panel("heartbeats"),
            SECONDS,
            [Query(_heartbeat_age(), f"{_DAEMON} {{{{thread}}}}", palette.ORANGE, several=True)],
            bounds=[(number("heartbeat_seconds"), palette.BAD)],
            soft_most=number("heartbeat_seconds"),
            runbooks=runbooks(t, "VllmWatchUnwell"),
        ),
        lines(
            t.panel("internal_errors"),
            EVENTS,
            [Query(failed, f"{_DAEMON} {{{{part}}}}", palette.VERMILLION, several=True)],
            bars=True,
            soft_most=1,
            runbooks=runbooks(t, "VllmWatchUnwell"),
        ),
        lines(t.panel("page_duration"), SECONDS, [_by_daemon("scrape_duration_seconds", palette.SKY)]),
    ]


def _by_daemon(metric: str, color: str, window: str = "") -> Query:
    return Query(_of_process(metric, window), _DAEMON, color, several=True)
