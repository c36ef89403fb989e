# SPDX-License-Identifier: Apache-2.0
"""A dashboard out of its rows: variables, annotations, links, and the panels' places on the grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from boards.kit import legends
from boards.kit.annotations import load_tests, marks
from boards.kit.links import TAG, VLLM_TAG
from boards.kit.panels import DATASOURCE, Panel
from boards.kit.texts import Texts
from boards.kit.variables import Variable


class Row(NamedTuple):
    """Panels under a heading, from left to right; a collapsed row's queries run when somebody opens it."""

    title: str
    panels: Sequence[Panel]
    collapsed: bool = False


def board(
    texts: Texts,
    uid: str,
    variables: Sequence[Variable],
    rows: Sequence[Row],
    *,
    annotated: bool = True,
    alerts_on: Sequence[str] = (),
    since: str = "now-1h",
) -> dashboard.Dashboard:
    """
    Return the dashboard.

    annotated: restarts and crashes of the chosen servers are marked in all panels with a time axis; otherwise only when
        somebody asks for it. Load tests are marked in any case.
    alerts_on: titles of the panels in which alerts are marked, too; without any, somebody has to ask for them.
    """
    made = (
        builders.Dashboard(texts.get("title"))
        .uid(uid)
        .description(texts.get("description"))
        .tags([TAG])
        .editable()
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .time(since, "now")
        .timezone("browser")
        .refresh("10s")
        .link(_link(texts.name("dashboards"), TAG, dropdown=False))
        .link(_link(texts.name("vllm_dashboards"), VLLM_TAG, dropdown=True))
    )
    for variable in variables:
        made.with_variable(variable)
    for variable in legends.variables(texts.get("engine_of_legend"), DATASOURCE):
        made.with_variable(variable)
    for annotation in marks(texts):
        made.annotation(annotation.enable(annotated))
    made.annotation(load_tests(texts).enable(True))
    for row in rows:
        _add_row(made, row)
    return _alerts_marked(_numbered(made.build()), texts.name("alerts"), alerts_on)


def _add_row(made: builders.Dashboard, row: Row) -> None:
    """Add a heading and its panels: inside it if it is collapsed, else behind it."""
    head = builders.Row(row.title)
    for panel in row.panels if row.collapsed else ():
        head.with_panel(panel)
    made.with_row(head)
    for panel in () if row.collapsed else row.panels:
        made.with_panel(panel)


def _link(title: str, tag: str, *, dropdown: bool) -> builders.DashboardLink:
    return (
        builders.DashboardLink(title)
        .type(dashboard.DashboardLinkType.DASHBOARDS)
        .tags([tag])
        .as_dropdown(dropdown)
        .include_vars(True)
        .keep_time(True)
    )


def _numbered(made: dashboard.Dashboard) -> dashboard.Dashboard:
    """Give every panel an id; Grafana would, and then the file would not be what Grafana has."""
    number = 0
    for panel in made.panels or []:
        inner = panel.panels if isinstance(panel, dashboard.RowPanel) else []
        for each in (panel, *inner):
            number += 1
            each.id_val = number
    return made


def _alerts_marked(made: dashboard.Dashboard, name: str, titles: Sequence[str]) -> dashboard.Dashboard:
    """Let the annotation of this name be drawn in the panels of these titles only."""
    ids = [panel.id_val for panel in _panels(made) if panel.title in titles and panel.id_val is not None]
    for annotation in made.annotations.list_val or []:
        if annotation.name == name:
            annotation.enable = annotation.enable and bool(ids)
            annotation.filter_val = dashboard.AnnotationPanelFilter(exclude=False, ids=ids) if ids else None
    return made


def _panels(made: dashboard.Dashboard) -> Iterator[dashboard.Panel]:
    """Yield all panels but the rows."""
    for panel in made.panels or []:
        yield from panel.panels if isinstance(panel, dashboard.RowPanel) else (panel,)
