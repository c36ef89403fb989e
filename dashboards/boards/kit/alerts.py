# SPDX-License-Identifier: Apache-2.0
"""Alerts as Prometheus has them: which fire now, and what to do about each."""

from __future__ import annotations

from boards.kit import palette
from boards.kit.links import to_page
from boards.kit.panels import COUNT, SECONDS, Column, Key, Panel, Query, figures, grid, value_mapping
from boards.kit.texts import Texts
from boards.kit.thresholds import thresholds


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
    active = f'(time() - ALERTS_FOR_STATE{{{CHOSEN}}}) and ignoring (alertstate) ALERTS{{alertstate="firing",{CHOSEN}}}'
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
