# SPDX-License-Identifier: Apache-2.0
"""What happened to the chosen servers in the time range, and which alerts fire now, with what to do about each."""

from __future__ import annotations

from boards.kit import links, palette, promql
from boards.kit.annotations import CRASHES
from boards.kit.links import to_page
from boards.kit.panels import COUNT, SECONDS, Column, Key, Panel, Query, figures, grid, value_mapping
from boards.kit.texts import Texts
from boards.kit.thresholds import runbook, thresholds
from vllm_watch_parsers.events import FAILURE_KINDS
from vllm_watch_parsers.kernel_messages import GPU_XID


START = "start"

RUNBOOKS = {
    "VllmEngineCrashed": (
        "engine_dead|out_of_memory|gpu_memory_too_small|kv_cache_too_small|worker_died|nccl_error|execution_timeout"
        "|gpu_ecc|gpu_nvlink|gpu_lost|cuda_illegal_access|cuda_launch_failure"
    ),
    "GpuXid": GPU_XID,
}
"""The events that each of these alerts is about, and its runbook."""

_BEFORE, _AFTER = 300, 120
"""Seconds of the log that a link shows before an event and after it."""

_GAP = "1h"
"""For so long Prometheus may have seen nothing of a server, and what happened before is not taken for new."""

_KEYS = ("instance", "server", "event")

_EVENTS = promql.of_server_each("log_events_total", "server_starts_total")
"""Both in one: those of starts have no label ``event``."""


def happened(t: Texts, *, width: int = 24, height: int = 6) -> Panel:
    """Return a table of events, the last one first, each with links to the logs and GPUs of its time."""
    last = t.name("last_time")
    return grid(
        t.panel("events"),
        [
            Key("event", t.name("event"), mappings=[value_mapping(_words(t))]),
            Key("server", t.name("server"), width=120),
        ],
        [
            Column(promql.only(_with_runbooks(_counts()), *_KEYS, "runbook_url"), t.name("times"), width=80),
            Column(f"{_last()} * 1000", last, "dateTimeAsIso", width=170),
            Column(links.timed(_times(), "event"), t.name("links"), hidden=True),
        ],
        facts=[
            links.url_cell("runbook_url", t.name("runbook_word"), t.name("runbook_of")),
            *links.cells(t),
        ],
        # The first step begins before the range does: what happened there has a last time, and no count.
        required=True,
        sort_by=[(last, True)],
        width=width,
        height=height,
    )


def _words(t: Texts) -> dict[str, tuple[str, str]]:
    """Return what events are called, and their colours: of failures those of the annotations."""
    crashes = CRASHES.split("|")
    colors: dict[str, str] = {
        kind: palette.PURPLE if kind in crashes else palette.WARNING for kind in (*FAILURE_KINDS, GPU_XID)
    }
    return {kind: (t.get(f"events.{kind}"), color) for kind, color in {**colors, START: palette.TEXT}.items()}


def _counts() -> str:
    """Return how often each event happened, where it did."""
    return _named(f"{promql.grown(_EVENTS)} > 0")


def _last() -> str:
    """Return when each event happened last: the time of the first sample that counts it."""
    # Also a counter that begins anew has counted what it shows; one that is only seen again has not.
    before = f"last_over_time({_EVENTS}[{_GAP}] offset $__interval)"
    counted = f"timestamp({_EVENTS}) and ({_EVENTS} > 0 unless {_EVENTS} == {before})"
    # The steps of a subquery end before the range does.
    return promql.only(_named(f"({counted} or max_over_time(({counted})[$__range:$__interval]))"), *_KEYS)


def _named(expr: str) -> str:
    return f'label_replace({expr}, "event", "{START}", "event", "")'


def _times() -> str:
    """Return a series for each event, with the time around the last one as its labels."""
    begin, end = _moment("_from", f"- {_BEFORE} - $__interval_ms / 1000"), _moment("_to", f"+ {_AFTER}")
    return f"{begin} * on ({', '.join(_KEYS)}) group_left (_to) {end}"


def _moment(label: str, shift: str) -> str:
    """Return series with a time beside the last event's as a label, in milliseconds."""
    return f'count_values by ({", ".join(_KEYS)}) ("{label}", 1000 * floor({_last()} {shift}))'


def _with_runbooks(expr: str) -> str:
    for alert, kinds in RUNBOOKS.items():
        expr = f'label_replace({expr}, "runbook_url", "{runbook(alert)}", "event", "{kinds}")'
    return expr


CHOSEN = 'alertname!="Watchdog",instance=~"$daemon|",server=~"$server|"'
"""Alerts about the daemon itself have no server, and those about its absence no address."""


SEVERITIES = {"critical": palette.RED, "warning": palette.WARNING}


def counted(severities: str, by: str = "") -> str:
    """Return how many alerts of some severities (a regular expression) fire for the chosen servers."""
    return f'count {by} (ALERTS{{alertstate="firing",severity=~"{severities}",{CHOSEN}}})'


def counts(texts: Texts, *, width: int = 3) -> Panel:
    """Return how many alerts fire, by severity."""
    return figures(
        texts.panel("firing"),
        COUNT,
        [
            # That none fires is known only where there are rules.
            Query(f'{counted(severity)} or count(ALERTS{{alertname="Watchdog"}}) * 0', texts.name(severity), color)
            for severity, color in SEVERITIES.items()
        ],
        width=width,
    )


def firing(texts: Texts, *, width: int = 11, height: int = 6, is_by_daemon: bool = False) -> Panel:
    """
    Return a table of the alerts that fire for the chosen servers, critical ones first, then the newest.

    A click opens the runbook. How long one has been active is told at the end of the time range; Grafana's
    "an hour ago" would be from the browser's now, and wrong of the past.

    is_by_daemon: there is a column for the daemon, where servers of several are shown.
    """
    # One row for what is shown: an alert of several GPUs or connectors of an engine is active since the first of them.
    labels = "alertname, severity, server, engine, instance"
    firing = f'ALERTS{{alertstate="firing",{CHOSEN}}}'
    active = f"max by ({labels}) ((time() - ALERTS_FOR_STATE{{{CHOSEN}}}) and ignoring (alertstate) {firing})"
    alert = texts.name("alert")
    severities = value_mapping({severity: (texts.name(severity), color) for severity, color in SEVERITIES.items()})
    return grid(
        texts.panel("alerts"),
        [
            Key(
                "alertname",
                alert,
                [to_page(texts.name("runbook_of"), f"{thresholds()['runbooks']}/${{__value.raw}}.md")],
            ),
            Key("severity", texts.name("severity"), width=80, mappings=[severities]),
            Key("server", texts.name("server"), width=100),
            Key("engine", texts.name("engine"), width=65),
            *([Key("instance", texts.name("daemon"), width=160)] if is_by_daemon else []),
        ],
        [Column(active, texts.name("active_for"), SECONDS, decimals=1, width=90)],
        sort_by=[(texts.name("severity"), False), (texts.name("active_for"), False)],
        width=width,
        height=height,
    )
