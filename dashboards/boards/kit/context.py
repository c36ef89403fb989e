# SPDX-License-Identifier: Apache-2.0
"""
How much of the longest request (``--max-model-len``) is used in the time range.

vLLM counts prompts and answers in histograms apart from each other, so the mean of both together is exact, and the
share of requests that were longer than something is known only from below and from above. The bounds of its buckets are
1, 2 and 5 times a power of ten; near the longest request is what is above the last of them.
"""

from __future__ import annotations

from boards.kit import promql


_SERVER = "instance, server"

_PARTS = ("request_prompt_tokens", "request_generation_tokens")

_BOUND, _LOWER_BOUND = "(1 + ({0} >= bool 2) + 3 * ({0} >= bool 5))", "(0.5 + 0.5 * ({0} >= bool 2) + ({0} >= bool 5))"
"""The last bound that is not above a number from 1 to 10, and the last that is not above its half."""


def longest() -> str:
    """Return the tokens of the longest request that each server takes."""
    return promql.only(promql.of_engine("max_model_len_tokens"), "instance", "server")


def used() -> str:
    """Return the mean length of requests, prompt and answer together, as a share of the longest."""
    means = (f"{_of_server('increase', f'{part}_sum')} / ({_observed(part)} > 0)" for part in _PARTS)
    return f"({' + '.join(means)}) / {longest()}"


def near() -> str:
    """Return the tokens from which on a request is near the longest."""
    return _bounds(_BOUND)


def at_least() -> str:
    """Return the share of requests whose prompt, or whose answer, is near the longest already."""
    prompt, answer = (_above(part, near()) for part in _PARTS)
    return f"({prompt} > {answer} or {answer})"


def at_most() -> str:
    """Return a share that those near the longest are not above: of one of them a part is as long as half of that."""
    prompt, answer = (_above(part, _bounds(_LOWER_BOUND)) for part in _PARTS)
    return f"clamp_max({prompt} + {answer}, 1)"


def _bounds(of: str) -> str:
    # The logarithm of 1000 is 2.9999999999999996 in Prometheus.
    decade = f"10 ^ floor(log10({longest()}) + 1e-9)"
    return f"{decade} * {of.format(f'({longest()} / {decade})')}"


def _above(part: str, bound: str) -> str:
    """Return the share of what was observed that is above a bound, which each server has its own of."""
    named = f'label_replace(count_values by ({_SERVER}) ("le", {bound}), "le", "$1.0", "le", "(.+)")'
    counted = f"increase({promql.of_engine(f'{part}_bucket')}[{promql.RANGE}]) and on ({_SERVER}, le) {named}"
    return f"(1 - sum by ({_SERVER}) ({counted}) / ({_observed(part)} > 0))"


def _observed(part: str) -> str:
    return _of_server("increase", f"{part}_count")


def _of_server(function: str, series: str) -> str:
    return f"sum by ({_SERVER}) ({function}({promql.of_engine(series)}[{promql.RANGE}]))"
