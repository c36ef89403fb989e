# SPDX-License-Identifier: Apache-2.0
"""
What several boards show of engines: rows of tables that name them, since when their state holds, preemptions.

A row of a table is an engine of a chosen server.
"""

from __future__ import annotations

from boards.kit import palette, promql
from boards.kit.links import runbooks, to_board
from boards.kit.panels import SECONDS, Column, Key, Panel, Query, lines, value_mapping
from boards.kit.texts import Texts


_LABELS = ("instance", "server", "engine")


def keys(texts: Texts, uid: str) -> list[Key]:
    """Return the columns that name an engine; a click on its server opens the dashboard of this uid for it.

    It is that server of that daemon: another daemon may have one of the same name.
    """
    chosen = {"server": "${__value.raw}", "daemon": "${__data.fields.instance}"}
    opened = to_board(texts.name("open_server"), uid, **chosen)
    return [
        Key("server", texts.name("server"), [opened], width=150),
        Key("instance", texts.name("daemon"), width=115),
        Key("engine", texts.name("engine"), width=65),
    ]


def cell(expr: str, *more: str) -> str:
    """Return what a query gives as one value for each row, with some more labels where it brings them."""
    return promql.only(expr, *_LABELS, *more)


_OLDER = -1
"""In place of seconds: longer than the time range is."""

_OF_ENGINE = "instance, server, engine"
_STATE = promql.of_engine("engine_state")


def state_for(expr: str, t: Texts, width: int | None = None) -> Column:
    """Return a column of `in_state`, or of what joins it to other rows."""
    older = value_mapping({str(_OLDER): (t.name("older"), palette.TEXT)})
    return Column(expr, t.name("state_for"), SECONDS, decimals=1, width=width, mappings=[older])


def in_state() -> str:
    """
    Return each server's seconds in its state, asked at the end of the time range, to a step (``$__interval``).

    It is the longest time of the engines that are in the server's worst state; nothing where the range shows no other
    state of one and does not reach back to its beginning either.
    """
    now = f"{_STATE} == 1 and on ({_OF_ENGINE}) ({promql.state()} == on (instance, server) group_left () {_worst()})"
    # Before its model is known an engine has other series.
    seconds = f"time() - max by ({_OF_ENGINE}, state) ({_last_in_other()})"
    older = f"(max by ({_OF_ENGINE}, state) ({_STATE} offset $__range) >= 0) * 0 + {_OLDER}"
    return promql.only(f"({seconds} or {older}) and on ({_OF_ENGINE}, state) ({now})", "instance", "server")


def _worst() -> str:
    return promql.only(promql.worst_state(), "instance", "server")


def _last_in_other() -> str:
    """Return when each of an engine's states was last not its own, also for less than a step."""
    other = f"timestamp(min_over_time({_STATE}[$__interval]) == 0)"
    # The steps of a subquery end before the range does.
    return f"({other} or max_over_time(({other})[$__range:$__interval]))"


PREEMPTED = promql.per_server(promql.rate(promql.of_engine("preemptions_total")))
"""Preemptions per second of each server."""


def preemptions(t: Texts, *more: Query, width: int) -> Panel:
    """Return how often requests are preempted, by server; `more` are drawn beside it."""
    return lines(
        t.panel("preemptions"),
        "suffix: /s",
        [Query(PREEMPTED, "{{server}}", palette.ORANGE), *more],
        width=width,
        soft_most=1,
        runbooks=runbooks(t, "VllmPreemptionStorm"),
    )
