# SPDX-License-Identifier: Apache-2.0
"""KV transfers: servers that share requests (disaggregated prefill), and KV blocks that are kept outside of the GPU."""

from __future__ import annotations

from grafana_foundation_sdk.models import dashboard as models

from boards import server
from boards.kit import engines, palette, promql, variables
from boards.kit.board import Row, board
from boards.kit.engines import cell
from boards.kit.links import runbooks
from boards.kit.panels import (
    BYTES_PER_SECOND,
    EVENTS,
    RATIO,
    REQUESTS,
    SECONDS,
    TOKENS_PER_SECOND,
    Column,
    Panel,
    Query,
    grid,
    lines,
    value_mapping,
)
from boards.kit.promql import Quotient
from boards.kit.texts import Texts
from boards.kit.thresholds import number


UID = "vllm-watch-kv-transfer"

_ROLES = {"prefill": "1", "decode": "2", "both": "3"}
"""Roles of servers, and the numbers that stand for them."""

_PAIR = "pair:vllm_watch_time_to_first_token_seconds:mean5m"

_BYTES = promql.of_engine("kv_transfer_bytes_total")
_SECONDS = promql.of_engine("kv_transfer_seconds_total")
_TRANSFERS = promql.of_engine("kv_transfers_total")
_FAILURES = promql.of_engine("kv_transfer_failures_total")
_EXPIRED = promql.of_engine("kv_expired_requests_total")
_LATE = promql.of_engine("kv_notifications_after_expiry_total")
_SKIPPED = promql.of_engine("kv_transfers_skipped_total")
_FETCHING = promql.of_engine("kv_fetch_requests")
_BY_SOURCE = "prompt_tokens_by_source_total"


def dashboard(language: str) -> models.Dashboard:
    """Return the board in a language."""
    t = Texts(language, "kv_transfer")
    return board(
        t,
        UID,
        variables.usual(t),
        [
            Row(t.row("now"), [_servers(t)]),
            Row(t.row("pairs"), [_first_token(t), _fetching(t), _prompt_tokens(t)]),
            Row(t.row("transfers"), [_bytes(t), _time(t), _troubles(t)]),
            Row(t.row("tiers"), [_usage(t), _hits(t), _tier_bytes(t), _skipped(t)]),
        ],
        alerts_on=[t.panel("troubles").title],
    )


def _with_role(expr: str, role: str) -> str:
    """Return what is of servers with a role."""
    of_role = promql.of_model("server_info", f'pd_role="{role}"')
    return f"({expr} and on (instance, server) {of_role})"


def _servers(t: Texts) -> Panel:
    """Return a row for every engine that moves KV blocks, or has a role in doing so."""
    roles = value_mapping(
        {
            _ROLES["prefill"]: (t.name("prefill"), palette.ORANGE),
            _ROLES["decode"]: (t.name("decode"), palette.SKY),
            _ROLES["both"]: (t.name("both"), palette.GREY),
        }
    )
    moved = {way: f"sum without (connector, direction) ({_moved(way)})" for way in ("in", "out")}
    failed = _of_range(_FAILURES, "connector, kind")
    return grid(
        t.panel("servers"),
        engines.keys(t, server.UID),
        [
            Column(cell(_role()), t.name("role"), mappings=[roles], width=100),
            Column(cell(moved["in"]), t.name("in"), BYTES_PER_SECOND, decimals=1),
            Column(cell(moved["out"]), t.name("out"), BYTES_PER_SECOND, decimals=1),
            Column(cell(_mean_time("connector, direction")), t.name("time"), SECONDS),
            Column(cell(failed), t.name("failed"), EVENTS, steps=[(1, palette.WARNING)], decimals=0),
            Column(
                cell(_of_range(_EXPIRED, "connector")),
                t.name("expired"),
                EVENTS,
                steps=[(1, palette.WARNING)],
                decimals=0,
            ),
            Column(cell(_of_range(_LATE, "connector")), t.name("late"), EVENTS, steps=[(1, palette.BAD)], decimals=0),
            Column(cell(f"sum without (stage) ({_FETCHING})"), t.name("fetching"), REQUESTS, decimals=0),
        ],
        sort_by=[(t.name("server"), False)],
        height=6,
        runbooks=runbooks(t, "VllmKvTransfersFail", "VllmKvReadAfterExpiry"),
    )


def _role() -> str:
    """Return each engine's role as a number; one that has none has a row only if it moves blocks."""
    engine = f"max without (state) ({promql.of_engine('engine_state')}) * 0"
    return " or ".join(f"{_with_role(f'{engine} + {value}', role)}" for role, value in _ROLES.items())


def _moved(way: str) -> str:
    return promql.rate(promql.of_engine("kv_transfer_bytes_total", f'direction="{way}"'))


def _mean_time(without: str) -> str:
    """Return the mean time of the transfers whose time is measured: some connectors only count them."""
    measured = f"({promql.rate(_TRANSFERS)} and {_SECONDS})"
    return f"sum without ({without}) ({promql.rate(_SECONDS)}) / (sum without ({without}) ({measured}) > 0)"


def _of_range(series: str, without: str) -> str:
    return f"sum without ({without}) ({promql.increase(series, promql.RANGE)})"


def _first_token(t: Texts) -> Panel:
    """Return both halves of the time that a client waits for its first token, and their sum."""
    prefill, decode = (
        _with_role(promql.mean(name), role)
        for name, role in (("e2e_request_latency_seconds", "prefill"), ("time_to_first_token_seconds", "decode"))
    )
    # The recorded series has no server: only models of the chosen servers are shown.
    chosen = f'{_PAIR}{{model_name=~"$model"}} and on (model_name) ({_role()})'
    return lines(
        t.panel("first_token"),
        SECONDS,
        [
            Query(prefill, t.of_server("whole_request"), palette.ORANGE, several=True),
            Query(decode, t.of_server("first_token"), palette.SKY, several=True),
            Query(chosen, f"{{{{model_name}}}} {{{{pair}}}} {t.name('pair')}${{at}}", palette.TEXT),
        ],
    )


def _fetching(t: Texts) -> Panel:
    deferred = f"{promql.per_server(promql.of_engine('requests_deferred'))} and {_fetches()}"
    return lines(
        t.panel("fetching"),
        REQUESTS,
        [
            Query(promql.per_server(_FETCHING), "{{server}} {{stage}}", several=True),
            Query(deferred, t.of_server("deferred"), palette.TEXT, limit=True),
        ],
        stepped=True,
        soft_most=1,
        colors={
            "waiting_to_start": palette.ORANGE,
            "in_progress": palette.SKY,
            "completed_waiting": palette.GREEN,
        },
        runbooks=runbooks(t, "VllmKvTransfersWait", "VllmRequestsDeferred"),
    )


def _fetches() -> str:
    """Return what there is of servers that fetch KV blocks: on others, requests are deferred for other reasons."""
    return f"sum without (model_name, engine, stage) ({_FETCHING})"


def _prompt_tokens(t: Texts) -> Panel:
    """Return what the prefill servers compute beside what the decode servers get: of pairs the two agree."""
    computed, fetched = _with_role(_tokens("local_compute"), "prefill"), f"{_tokens('external_kv_transfer')} > 0"
    return lines(
        t.panel("prompt_tokens"),
        TOKENS_PER_SECOND,
        [
            Query(computed, t.of_server("computed"), palette.ORANGE, several=True),
            Query(fetched, t.of_server("fetched"), palette.SKY, several=True),
            Query(
                _with_role(_tokens("local_compute"), "decode"),
                t.of_server("computed_again"),
                palette.VERMILLION,
                several=True,
            ),
        ],
        soft_most=1,
    )


def _tokens(source: str) -> str:
    counted = promql.of_engine(_BY_SOURCE, f'source="{source}"')
    return f"sum without (model_name, engine, source) ({promql.rate(counted)})"


def _bytes(t: Texts) -> Panel:
    return lines(
        t.panel("bytes"),
        BYTES_PER_SECOND,
        [Query(promql.per_server(promql.rate(_BYTES)), "{{server}} {{connector}} {{direction}}", several=True)],
        soft_most=1024,
    )


def _time(t: Texts) -> Panel:
    parts = Quotient(promql.per_server(promql.rate(_SECONDS)), promql.per_server(promql.rate(_TRANSFERS)))
    return lines(
        t.panel("time"),
        SECONDS,
        [Query(parts.now, "{{server}} {{connector}} {{direction}}", several=True)],
    )


def _troubles(t: Texts) -> Panel:
    """Return what went wrong, each event once; of kinds that never happened nothing."""
    return lines(
        t.panel("troubles"),
        EVENTS,
        [
            Query(_events(_FAILURES), "{{server}} {{connector}} {{kind}}", several=True),
            Query(_events(_EXPIRED), f"{{{{server}}}} {{{{connector}}}} {t.name('expired')}", palette.ORANGE),
            Query(_events(_LATE), f"{{{{server}}}} {{{{connector}}}} {t.name('late')}", palette.RED),
        ],
        bars=True,
        soft_most=1,
        runbooks=runbooks(t, "VllmKvTransfersFail", "VllmKvReadAfterExpiry"),
    )


def _events(series: str) -> str:
    return promql.per_server(promql.happened(series))


def _usage(t: Texts) -> Panel:
    usage = promql.of_engine("kv_offload_usage_ratio")
    return lines(
        t.panel("usage"),
        RATIO,
        [Query(promql.per_server(usage, "max"), "{{server}} {{connector}} {{kv_tier}}", several=True)],
        width=6,
        most=1,
        runbooks=runbooks(t, "VllmKvTransfersWait"),
    )


def _hits(t: Texts) -> Panel:
    hits, queries = (
        promql.per_server(promql.rate(promql.of_engine(f"kv_tier_{what}_total"))) for what in ("hits", "queries")
    )
    return lines(
        t.panel("hits"),
        RATIO,
        [Query(Quotient(hits, queries).now, "{{server}} {{connector}} {{kv_tier}}", several=True)],
        width=6,
        most=1,
    )


def _tier_bytes(t: Texts) -> Panel:
    moved = promql.per_server(promql.rate(promql.of_engine("kv_tier_bytes_total")))
    return lines(
        t.panel("tier_bytes"),
        BYTES_PER_SECOND,
        [Query(moved, "{{server}} {{connector}} {{kv_tier}} {{direction}}", several=True)],
        width=6,
        soft_most=1024,
    )


def _skipped(t: Texts) -> Panel:
    """Return the share of stores that were not made, by reason."""
    skipped = promql.per_server(promql.rate(_SKIPPED))
    stored = promql.rate(promql.of_engine("kv_transfers_total", 'direction="out"'))
    every = f"{promql.per_server(f'sum without (reason) ({promql.rate(_SKIPPED)})')} + " + promql.per_server(
        f"sum without (direction) ({stored})"
    )
    return lines(
        t.panel("skipped"),
        RATIO,
        [
            Query(
                f"{skipped} / ignoring (reason) group_left () (({every}) > 0)",
                "{{server}} {{connector}} {{reason}}",
                several=True,
            )
        ],
        width=6,
        most=1,
        bounds=[(number("kv_skipped_ratio"), palette.WARNING)],
        runbooks=runbooks(t, "VllmKvTransfersWait"),
    )
