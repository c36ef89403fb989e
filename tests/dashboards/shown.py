# SPDX-License-Identifier: Apache-2.0
"""What the figures and tables of a shipped dashboard show of a recording at the end of a time range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, Loaded, Span
from tests.dashboards.panels import legend_of, opened, panels_of, sent_by
from tests.dashboards.shipped import dashboard


class Shown(NamedTuple):
    """
    One value of a panel.

    Args:
        name: As the panel calls it: its legend, or the heading of its column.
        labels: Of its series.
        value: What it is at the end of the time range.
    """

    name: str
    labels: Mapping[str, str]
    value: float


def shown(prometheus: Loaded, uid: str, server: str, span: Span) -> dict[str, list[Shown]]:
    """Return what each panel that asks for one moment shows of a server, by its title."""
    board, api = dashboard(uid), Api(prometheus.url)
    view = opened(board, api, span, {"server": server, "daemon": DAEMON_ADDRESS})
    return {
        panel["title"]: [
            Shown(legend_of(sent.legend, series.labels), series.labels, value)
            for sent in sent_by(panel, view)
            for series in api.instant(sent.expr, sent.end)
            for value in series.values.values()
        ]
        for panel in panels_of(board)
        if all(target.get("instant") for target in panel["targets"])
    }


def words(uid: str, title: str, name: str | None = None) -> dict[str, str]:
    """Return what a panel, or a column of it, writes in place of values."""
    (panel,) = (panel for panel in panels_of(dashboard(uid)) if panel["title"] == title)
    config = panel["fieldConfig"]
    mappings = config["defaults"].get("mappings", [])
    for override in config["overrides"]:
        if override["matcher"]["options"] == name:
            mappings = next(each["value"] for each in override["properties"] if each["id"] == "mappings")
    return {value: result["text"] for mapping in mappings for value, result in mapping["options"].items()}
