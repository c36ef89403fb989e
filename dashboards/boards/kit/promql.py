# SPDX-License-Identifier: Apache-2.0
"""
PromQL over vllm-watch's series, narrowed to what the dashboard's variables choose.

Sums keep every label but those that they add up (``without``): two daemons may each have a server of one name.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from boards.kit.thresholds import thresholds
from vllm_watch.daemon.catalog.states import BEST_TO_WORST
from vllm_watch.daemon.state.window import STAGES
from vllm_watch_parsers.metric_names import INFERENCE_HANDLERS


_ANSWERING: Final = ("idle", "serving", "saturated")
"""The states in which a server's last latencies are still true of it."""

_STAGE_OF: Final = {histogram: stage for stage, histogram in STAGES.items()}

WINDOW: Final = "$__rate_interval"
RANGE: Final = "$__range"

COMPLETIONS: Final = f'handler=~"{"|".join(sorted(INFERENCE_HANDLERS))}"'
"""Of `http_requests_total`: what asks the model for something."""

_DAEMON = 'instance=~"$daemon"'
_SERVER = _DAEMON + ',server=~"$server"'
_MODEL = _SERVER + ',model_name=~"$model"'
_ENGINE = _MODEL + ',engine=~"$engine"'


def of_daemon(name: str, more: str = "") -> str:
    """Return a series that the daemon has of itself."""
    return f"vllm_watch_{name}{{{_joined(_DAEMON, more)}}}"


def of_server(name: str, more: str = "") -> str:
    """Return a series with ``server``, and without ``model_name`` and ``engine``; `more` narrows it further."""
    return f"vllm_watch_{name}{{{_joined(_SERVER, more)}}}"


def of_server_each(*names: str) -> str:
    """Return several series with ``server`` in one selector; their other labels must tell them apart."""
    chosen = f'__name__=~"vllm_watch_({"|".join(names)})"'
    return f"{{{_joined(chosen, _SERVER)}}}"


def of_model(name: str, more: str = "") -> str:
    """Return a series with ``server`` and ``model_name``, and without ``engine``."""
    return f"vllm_watch_{name}{{{_joined(_MODEL, more)}}}"


def of_engine(name: str, more: str = "") -> str:
    """Return a series with ``server``, ``model_name`` and ``engine``; `more` narrows it further."""
    return f"vllm_watch_{name}{{{_joined(_ENGINE, more)}}}"


def recorded(name: str, more: str = "") -> str:
    """Return a series of ``alerts/rules/recording.yml``, by what follows ``engine:vllm_watch_``."""
    return f"engine:vllm_watch_{name}{{{_joined(_ENGINE, more)}}}"


def recorded_of_server(name: str) -> str:
    """Return a series that is recorded for each server, by what follows ``server:vllm_watch_``."""
    return f"server:vllm_watch_{name}{{{_SERVER}}}"


def per_server(expr: str, how: str = "sum") -> str:
    """Return one value for a server out of those of its engines."""
    return f"{how} without (model_name, engine) ({expr})"


def whole(expr: str, among: str) -> str:
    """Return the sum of engines' values for a server, where each engine that is `among` has one: a part is no sum."""
    return f"({per_server(expr)} unless {per_server(expr, 'count')} < {per_server(among, 'count')})"


def rate(series: str, window: str = WINDOW) -> str:
    """Return a counter's growth per second."""
    return f"rate({series}[{window}])"


def increase(series: str, window: str = WINDOW) -> str:
    """Return a counter's growth."""
    return f"increase({series}[{window}])"


def grown(series: str) -> str:
    """
    Return how much a counter grew in the time range, asked at its end: the difference of its last and first value.

    In whole numbers, where `increase` makes 1.07 of one. That stands in only where the counter was reset, and the
    difference would be wrong. What began within the range counts from its first value.
    """
    first = f"({series} offset {RANGE} or min_over_time({series}[{RANGE}]))"
    difference = f"last_over_time({series}[{RANGE}]) - {first}"
    return f"({difference} unless resets({series}[{RANGE}]) > 0 or {increase(series, RANGE)})"


def earlier(expr: str) -> str:
    """
    Return what an expression was as long ago as the variable ``shift`` says, whatever ranges and offsets are in it.

    A subquery of one step is evaluated then as a whole: two offsets of one selector do not add up.
    """
    return f"last_over_time(({expr})[1s:1s] offset $shift)"


def happened(series: str) -> str:
    """
    Return how often a counter's event happened since the point before, where it did.

    In whole numbers, each event once: `increase` makes 1.33 of one crash, and shows it for as long as its window is.
    """
    return f"{series} - ({series} offset $__interval) > 0"


def quantile(of: float, name: str, window: str = WINDOW) -> str:
    """
    Return a server's quantile of a histogram, its engines together; absent where nothing was observed.

    It is also absent where it lies in the first bucket of a latency, see `quantile_below`: what is told of it there
    would be a number made up between zero and the bucket's bound.
    """
    found = _quantile(of, name, window)
    return f"(({found}) unless ({found}) <= {_first_bound(name)})" if name in _STAGE_OF else found


def quantile_below(of: float, name: str, window: str = WINDOW) -> str:
    """Return the bound of a latency's first bucket where a server's quantile lies below it."""
    return f"({_first_bound(name)} >= ({_quantile(of, name, window)}))"


def _quantile(of: float, name: str, window: str) -> str:
    return f"histogram_quantile({of:g}, {per_server(rate(of_engine(name + '_bucket'), window))}) >= 0"


def usual(name: str) -> str:
    """
    Return what a server's mean of a histogram usually is: the median over a day, up to some minutes ago.

    So what is wrong since some hours is not usual yet. It is absent for a server that is new.
    """
    return f"quantile_over_time(0.5, ({mean(name, '5m')})[1d:5m] offset {thresholds()['baseline_before']})"


def worst(expr: str) -> str:
    """Return the largest of a latency among the chosen servers that answer."""
    return f"max({answering(expr)})"


def _first_bound(name: str) -> str:
    bound = of_engine("latency_first_bound_seconds", f'stage="{_STAGE_OF[name]}"')
    return f"max without (model_name, engine, stage) ({bound})"


def answering(expr: str, of: str = "instance, server") -> str:
    """
    Return what is of servers that answer: what one did before it stalled or went down says nothing of it now.

    of: the labels that tell servers apart; with ``engine`` it is what is of engines that answer.
    """
    states = of_engine("engine_state", f'state=~"{"|".join(_ANSWERING)}"')
    return f"({expr} and on ({of}) max by ({of}) ({states}) == 1)"


def mean(name: str, window: str = WINDOW) -> str:
    """Return a server's mean of a histogram, absent where nothing was observed."""
    observed = per_server(rate(of_engine(name + "_count"), window))
    return f"{per_server(rate(of_engine(name + '_sum'), window))} / ({observed} > 0)"


def since_token() -> str:
    """Return the seconds since a server's last token in the time range, also of one that is down."""
    last = of_engine("last_token_timestamp_seconds")
    return f"time() - {per_server(over_range(last, 'max_over_time'), 'max')}"


def state(more: str = "") -> str:
    """Return each engine's state as a number, its severity; it is the same engine before its model is known."""
    numbered = " or ".join(f"{_state(name, more)} * {number}" for number, name in enumerate(BEST_TO_WORST, start=1))
    return f"max without (state, model_name) ({numbered})"


def worst_state(more: str = "") -> str:
    """Return each server's state as a number: that of its worst engine."""
    return f"max without (engine) ({state(more)})"


def worst_at_end_first() -> str:
    """
    Return `state` with a label ``_place``: the smaller, the worse the engine is at the end of the time range.

    One that is not shown any more then stands last.
    """
    engine = "instance, server, engine"
    at_end = f"last_over_time(({state()})[1s:1s] @ end())"
    places = f'count_values by ({engine}) ("_place", {len(BEST_TO_WORST) + 1} - {at_end})'
    last = f'label_replace({state()}, "_place", "{len(BEST_TO_WORST) + 1}", "", "")'
    return f"({state()} * on ({engine}) group_left (_place) {places} or on ({engine}) {last})"


def ranked(expr: str, by: str, place: int) -> str:
    """
    Return of `expr` only the series that is at a place among all, from 1; what is ranked by 0 has none.

    by: what the series are ranked by, the greatest first, with the labels of `expr`. It must be the same at every
        moment of the time range (``@ end()``), or a line would be another one's from somewhere on, and hardly ever
        equal for two of them (a mean, and not a maximum), or one would get two places.
    """
    better = f" unless topk({place - 1}, {by} > 0)" if place > 1 else ""
    return f"{expr} and (topk({place}, {by} > 0){better})"


def grew(expr: str, counter: str, *, without: str = "model_name, engine") -> str:
    """
    Return of `expr` only the series whose counter grew in the time range: one that is always zero only hides another.

    without: the labels of the counter that `expr` has added up.
    """
    return f"{expr} and sum without ({without}) ({over_range(counter, 'increase')}) > 0"


def over_range(series: str, function: str) -> str:
    """Return what a function such as ``avg_over_time`` makes of the time range, the same at every moment of it."""
    return f"{function}({series}[$__range] @ end())"


def only(expr: str, *labels: str) -> str:
    """Return one value for each set of some labels, without a metric's name: what tables with several columns need."""
    return f"max by ({', '.join(labels)}) ({expr})"


def in_order(expr: str, *labels: str) -> str:
    """
    Return series with a label ``_row``, which joins some of their labels and which they are ordered by.

    Prometheus puts the series of a range in the order of their labels, and these in that of their names: an engine
    would stand before its server.
    """
    names = ", ".join(f'"{label}"' for label in labels)
    return f'label_join({expr}, "_row", " ", {names})'


def _state(name: str, more: str) -> str:
    return of_engine("engine_state", _joined(f'state="{name}"', more))


def _joined(*selectors: str) -> str:
    return ",".join(filter(None, selectors))


class Quotient(NamedTuple):
    """
    A sum divided by another.

    Their quotient over a time range is that of all that was added up in it, and no mean of quotients.
    """

    part: str
    whole: str

    @property
    def now(self) -> str:
        """What it is at each moment; nothing while the divisor is 0."""
        return f"({self.part}) / (({self.whole}) > 0)"

    @property
    def in_range(self) -> str:
        """What it was in the whole time range."""
        part, whole = (f"sum_over_time(({each})[$__range:$__interval])" for each in self)
        return f"{part} / ({whole} > 0)"


def by_drafts(ratio: str) -> Quotient:
    """Return a server's ratio out of those of its engines, each by how many tokens it drafts."""
    drafted = of_engine("spec_decode_drafted_tokens_per_second")
    weighted, weight = (f"{ratio} {how} ignoring (position) group_left () {drafted}" for how in ("*", "* 0 +"))
    return Quotient(per_server(weighted), per_server(weight))
