# SPDX-License-Identifier: Apache-2.0
"""For how long a server has been in the state that it is in at the end of the time range."""

from __future__ import annotations

from boards.kit import palette, promql
from boards.kit.panels import SECONDS, Column, value_mapping
from boards.kit.texts import Texts


_OLDER = -1
"""In place of seconds: longer than the time range is."""

_ENGINE = "instance, server, engine"
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
    now = f"{_STATE} == 1 and on ({_ENGINE}) ({promql.state()} == on (instance, server) group_left () {_worst()})"
    # Before its model is known an engine has other series.
    seconds = f"time() - max by ({_ENGINE}, state) ({_last_in_other()})"
    older = f"(max by ({_ENGINE}, state) ({_STATE} offset $__range) >= 0) * 0 + {_OLDER}"
    return promql.only(f"({seconds} or {older}) and on ({_ENGINE}, state) ({now})", "instance", "server")


def _worst() -> str:
    return promql.only(promql.worst_state(), "instance", "server")


def _last_in_other() -> str:
    """Return when each of an engine's states was last not its own, also for less than a step."""
    other = f"timestamp(min_over_time({_STATE}[$__interval]) == 0)"
    # The steps of a subquery end before the range does.
    return f"({other} or max_over_time(({other})[$__range:$__interval]))"
