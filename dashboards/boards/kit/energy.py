# SPDX-License-Identifier: Apache-2.0
"""
What tokens take in energy and in money: over a time range, and, by the rules, over the last five minutes.

Energy is of all GPUs of a server together, where all of them are read and are its alone. A server's price is not
divided among the kinds of its tokens, so their costs do not add up.
"""

from __future__ import annotations

from typing import Final

from boards.kit import palette, promql
from boards.kit.panels import Panel, Query, lines
from boards.kit.texts import Texts
from boards.kit.thresholds import number


JOULES: Final = "suffix: J"
WATTS: Final = "suffix: W"
PER_JOULE: Final = "suffix: tok/J"
MONEY: Final = "suffix: /M tok"
"""In whatever currency `cost_per_hour` has, per million tokens."""

_STEP = "5m"
"""The window of the rules: one after the other they are the whole range."""

_LEAST = f"{number('quotient_tokens'):g}"
_GPUS = promql.of_server("server_gpu_info")
_SHARED = promql.of_server("server_gpu_info", 'shared="true"')
_ENERGY = "vllm_watch_gpu_energy_joules_total"
_PRICE = promql.of_server("server_cost_per_hour")


def recorded_watts() -> str:
    """Return each server's mean power over five minutes."""
    return promql.recorded_of_server("gpu_power_watts:avg5m")


def recorded_idle_watts() -> str:
    """Return the same of a server that had no request in them."""
    return promql.recorded_of_server("gpu_power_watts:idle5m")


def joules_in_range(tokens: str) -> str:
    """Return each server's joules per token of a kind (``generation``, ``computed``), over the time range."""
    return _quotient(promql.recorded_of_server("gpu_energy_joules:increase5m"), _recorded_tokens(tokens))


def tokens_per_joule_in_range() -> str:
    """Return each server's computed tokens per joule over the time range."""
    return f"1 / ({joules_in_range('computed')})"


def cost_in_range(*tokens: str) -> str:
    """Return each server's cost per million tokens of some kinds together, over the time range, idle times included."""
    return f"{_quotient(f'{_PRICE} / 12', ' + '.join(map(_recorded_tokens, tokens)))} * 1e6"


def _recorded_tokens(kind: str) -> str:
    return promql.recorded_of_server(f"{kind}_tokens:increase5m")


def _quotient(part: str, whole: str) -> str:
    """Return a sum of the range divided by another, each of the moments at which both are known."""
    part, whole = (
        f"sum_over_time((({one}) and ({other}))[$__range:{_STEP}])" for one, other in ((part, whole), (whole, part))
    )
    return f"{part} / ({whole} >= {_LEAST})"


def grown_energy() -> str:
    """
    Return each server's joules in the time range, asked at its end.

    It needs no rules, and is absent where a GPU was not read at both ends, or was not the server's alone.
    """
    grown = promql.increase(_ENERGY, promql.RANGE)
    # Whoever reads a GPU, this daemon, another one or another exporter: of one GPU there is one value.
    by_gpu = f"max by (gpu) ({grown} and timestamp({_ENERGY}) and timestamp({_ENERGY} offset {promql.RANGE}))"
    of_gpus = f"{_GPUS} * on (gpu) group_left () {by_gpu}"
    ever = f"max without (how, shared) (max_over_time({_GPUS}[{promql.RANGE}]))"
    divided = f'{_GPUS} * on (gpu) group_left () max by (gpu) (vllm_watch_gpu_info{{mig="1"}})'
    return (
        f"(sum without (gpu, how, shared) ({of_gpus})"
        f" unless count without (gpu) ({ever}) > count without (gpu, how, shared) ({of_gpus})"
        f" unless max without (gpu, how, shared) (max_over_time({_SHARED}[{promql.RANGE}]))"
        f" unless max without (gpu, how, shared) ({divided}))"
    )


def grown_tokens(counter: str, more: str = "") -> str:
    """Return by how much a counter of tokens grew in the time range, by server."""
    without = ", ".join(("model_name", "engine", *(["source"] if more else [])))
    return f"sum without ({without}) ({promql.grown(promql.of_engine(counter, more))})"


def of_both(part: str, whole: str) -> str:
    """Return the sum of servers' parts divided by that of their wholes, of servers of which both are known."""
    return f"sum({part} and {whole}) / (sum({whole} and {part}) >= {_LEAST})"


def price() -> str:
    """Return what each server costs in an hour, as it was at some time of the range."""
    return f"last_over_time({_PRICE}[{promql.RANGE}])"


def panels(t: Texts) -> list[Panel]:
    """Return what tokens take over time, in energy and in money."""
    return [_joules(t), _per_joule(t), _power(t), _cost(t)]


def _joules(t: Texts) -> Panel:
    return lines(
        t.panel("joules"),
        JOULES,
        [
            _line(t, "joules_per_output_token:rate5m", "per_output", palette.GREEN),
            _line(t, "joules_per_computed_token:rate5m", "per_computed", palette.SKY),
        ],
        width=6,
    )


def _per_joule(t: Texts) -> Panel:
    recorded = promql.recorded_of_server("tokens_per_joule:rate5m")
    return lines(t.panel("per_joule"), PER_JOULE, [Query(recorded, "{{server}}", palette.GREEN)], width=6)


def _power(t: Texts) -> Panel:
    return lines(
        t.panel("power"),
        WATTS,
        [
            Query(recorded_watts(), t.of_server("mean"), palette.ORANGE),
            Query(recorded_idle_watts(), t.of_server("while_idle"), palette.GREY),
        ],
        width=6,
    )


def _cost(t: Texts) -> Panel:
    return lines(
        t.panel("cost"),
        MONEY,
        [
            _line(t, "cost_per_million_output_tokens:rate5m", "per_output", palette.GREEN),
            _line(t, "cost_per_million_prompt_tokens:rate5m", "per_prompt", palette.SKY),
            _line(t, "cost_per_million_tokens:rate5m", "per_total", palette.PURPLE),
        ],
        width=6,
    )


def _line(t: Texts, recorded: str, name: str, color: str) -> Query:
    return Query(promql.recorded_of_server(recorded), t.of_server(name), color)
