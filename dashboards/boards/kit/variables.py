# SPDX-License-Identifier: Apache-2.0
"""The variables at the top of a dashboard; they have the same names on all, so that links carry them along."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.models import dashboard

from boards.kit.panels import DATASOURCE
from boards.kit.texts import Texts
from boards.kit.thresholds import number


OBJECTIVES = (0.9, 0.95, 0.99, 0.995, 0.999)
"""Shares of requests that may be asked to keep their latency objective."""


SHIFT = "1h"
"""How long before the chosen time range the second one is, until somebody says something else."""


PLANNED = "1000"
"""Tokens per second that replicas are counted for, until somebody says something else."""


Variable = (
    builders.DatasourceVariable
    | builders.QueryVariable
    | builders.CustomVariable
    | builders.TextBoxVariable
    | builders.AdHocVariable
)


def usual(texts: Texts, *, everything: bool = True) -> list[Variable]:
    """Return the variables of every dashboard, in their order; `everything` is as in `server`."""
    return [
        datasource(texts),
        daemon(texts),
        server(texts, everything=everything),
        model(texts),
        engine(texts),
        slo(texts),
        filters(texts),
    ]


def datasource(texts: Texts) -> builders.DatasourceVariable:
    """Return the choice of a Prometheus."""
    return builders.DatasourceVariable("datasource").label(texts.name("datasource")).type("prometheus")


def daemon(texts: Texts) -> builders.QueryVariable:
    """Return the choice of daemons, by the address that Prometheus scrapes."""
    return _labels(texts, "daemon", "label_values(vllm_watch_build_info, instance)")


def server(texts: Texts, *, everything: bool = True) -> builders.QueryVariable:
    """Return the choice of servers; all of them at first, or the first (`everything` is false)."""
    return _labels(
        texts, "server", 'label_values(vllm_watch_source_up{instance=~"$daemon"}, server)', everything=everything
    )


def model(texts: Texts) -> builders.QueryVariable:
    """Return the choice of models among those of the chosen servers."""
    chosen = 'instance=~"$daemon",server=~"$server"'
    return _labels(texts, "model", f"label_values(vllm_watch_engine_state{{{chosen}}}, model_name)")


def engine(texts: Texts) -> builders.QueryVariable:
    """Return the choice of engines (ranks of data parallelism) among those of the chosen servers."""
    chosen = 'instance=~"$daemon",server=~"$server",model_name=~"$model"'
    return _labels(texts, "engine", f"label_values(vllm_watch_engine_state{{{chosen}}}, engine)")


def slo(texts: Texts) -> builders.CustomVariable:
    """Return the choice of the share of requests that should be good; at first that of the alerts."""
    wanted = number("objective_ratio")
    options = [
        dashboard.VariableOption(text=f"{value:.1%}".replace(".0%", "%"), value=f"{value:g}", selected=value == wanted)
        for value in OBJECTIVES
    ]
    return (
        builders.CustomVariable("slo")
        .label(texts.name("slo"))
        .values(", ".join(f"{option.text} : {option.value}" for option in options))
        .options(options)
        .current(next(option for option in options if option.selected))
    )


def shift(texts: Texts) -> builders.TextBoxVariable:
    """Return the place for how long before the time range a second one is, a duration such as ``37m30s``."""
    return _text(texts, "shift", SHIFT)


def planned(texts: Texts) -> builders.TextBoxVariable:
    """Return the place for a number of tokens per second, prompt and generated, that somebody plans for."""
    return _text(texts, "planned", PLANNED)


def filters(texts: Texts) -> builders.AdHocVariable:
    """Return a place for conditions on any other label, such as those that a server is configured with."""
    return builders.AdHocVariable("filters").label(texts.name("filters")).datasource(DATASOURCE)


def _text(texts: Texts, name: str, value: str) -> builders.TextBoxVariable:
    return (
        builders.TextBoxVariable(name)
        .label(texts.name(name))
        .default_value(value)
        .current(dashboard.VariableOption(text=value, value=value, selected=True))
    )


def _labels(texts: Texts, name: str, query: str, *, everything: bool = True) -> builders.QueryVariable:
    variable = (
        builders.QueryVariable(name)
        .label(texts.name(name))
        .query({"query": query, "refId": name})
        .datasource(DATASOURCE)
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.NATURAL_ASC)
        .multi(True)
        .include_all(everything)
    )
    if everything:
        # Also what has no such label yet, such as the model of a server that was never reached.
        variable.all_value(".*").current(dashboard.VariableOption(text="All", value="$__all", selected=True))
    return variable
