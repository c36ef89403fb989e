# SPDX-License-Identifier: Apache-2.0
"""
What the tokens of a load test cost, at the price of its server per hour, in whatever currency that is.

It is the price of the time in which the load ran: idle hours are not in it. By each kind of token it is the whole
price, since nothing says how a server's time is divided among prompts and answers: such costs do not add up.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from vllm_watch.analysis.loadtest.model import Result, Run, Steady


LEAST_TOKENS = 1000
"""Of fewer tokens a quotient says nothing but that they were few; `quotient_tokens` of the rules is the same."""

OUTPUT_COST = "cost_per_million_output_tokens"

_MILLION = 1e6
_HOUR = 3600.0


def priced(run: Run, cost_per_hour: float | None = None) -> Run:
    """
    Return a run with what its tokens cost.

    Args:
        run: A run.
        cost_per_hour: The price of its server; if `None`, the one that its source knows, if it does.
    """
    price = run.cost_per_hour if cost_per_hour is None else cost_per_hour
    if price is None:
        return run
    return msgspec.structs.replace(
        run,
        cost_per_hour=price,
        result=None if run.result is None else _priced_result(run.result, price),
        views=tuple(_priced_result(view, price) for view in run.views),
        steady=None if run.steady is None else _priced_steady(run.steady, price),
    )


def _priced_result(result: Result, price: float) -> Result:
    given, generated = result.total_input_tokens, result.total_output_tokens
    both = None if given is None or generated is None else given + generated
    cost = None if result.duration_s is None else price * result.duration_s / _HOUR
    return msgspec.structs.replace(
        result,
        cost_per_million_input_tokens=_per_million(cost, given),
        cost_per_million_output_tokens=_per_million(cost, generated),
        cost_per_million_tokens=_per_million(cost, both),
    )


def _priced_steady(steady: Steady, price: float) -> Steady:
    result = None if steady.result is None else _priced_result(steady.result, price)
    blocks = steady.blocks
    if result is not None and result.cost_per_million_output_tokens is not None:
        blocks = {**blocks, **_priced_blocks(blocks, price)}
    return msgspec.structs.replace(steady, result=result, blocks=blocks)


def _priced_blocks(blocks: Mapping[str, tuple[float, ...]], price: float) -> Mapping[str, tuple[float, ...]]:
    rates = blocks.get("output_throughput", ())
    return {OUTPUT_COST: tuple(price / _HOUR / rate * _MILLION for rate in rates)} if rates and min(rates) > 0 else {}


def _per_million(cost: float | None, tokens: int | None) -> float | None:
    return None if cost is None or tokens is None or tokens < LEAST_TOKENS else cost / tokens * _MILLION
