# SPDX-License-Identifier: Apache-2.0
"""
Whether two sides differ in speculative decoding, which changes what inter-token latency means.

A streamed chunk holds all tokens of a step: one without drafts, several with them. ITL counts chunks, TPOT tokens, so
their ratio is how many tokens a chunk has.
"""

from __future__ import annotations

from vllm_watch.analysis.comparison.pair import Measured, Pair, relative_difference
from vllm_watch.analysis.loadtest.load_test import Run


_SAME_CHUNKS = 0.10


def speculation(run: Run) -> str | None:
    """Return how a run drafted tokens, as text: its flags; ``off``; `None` if that is not known."""
    return _way(run, _flags(run))


def speculations(pair: Pair) -> tuple[set[str | None], set[str | None]]:
    """
    Return how the runs of each side drafted tokens, as `speculation` has it.

    A Prometheus has few flags: beside a run of one, only the flags that all runs with drafts have are looked at.
    """
    runs = [run for side in pair.sides for run in side.runs]
    every = [flags for run in runs if (flags := _flags(run))]
    has_few = any(run.server is not None for run in runs)
    shown = set[str]().union(*every).intersection(*(every if has_few else ()))
    a, b = ({_way(run, shown) for run in side.runs} for side in pair.sides)
    return a, b


def tokens_per_chunk(side: Measured) -> float | None:
    """Return how many tokens a streamed chunk has, `None` if that is not known."""
    itl = side.mean_result(lambda result: None if result.itl_ms is None else result.itl_ms.mean)
    tpot = side.mean_result(lambda result: None if result.tpot_ms is None else result.tpot_ms.mean)
    return None if itl is None or not tpot else itl / tpot


def differs_in_chunks(pair: Pair) -> str | None:
    """Return why a chunk of one side is not a chunk of the other, `None` if nothing says so."""
    chunks = [tokens_per_chunk(side) for side in pair.sides]
    if chunks[0] is not None and chunks[1] is not None and relative_difference(chunks[0], chunks[1]) > _SAME_CHUNKS:
        return f"a chunk of the stream has {chunks[0]:.1f} tokens in {pair.a.name} and {chunks[1]:.1f} in {pair.b.name}"
    ways = [each - {None} for each in speculations(pair)]
    if ways[0] and ways[1] and ways[0] != ways[1]:
        return (
            "the sides differ in speculative decoding, so their chunks of the stream hold different numbers of tokens"
        )
    return None


def _flags(run: Run) -> set[str]:
    return {flag for flag in run.config if "speculative" in flag}


def _way(run: Run, shown: set[str]) -> str | None:
    """Return how a run drafted tokens, by some of its flags."""
    drafting = _flags(run)
    if drafting & shown:
        return ", ".join(f"{flag}={run.config[flag]}" for flag in sorted(drafting & shown))
    if drafting or run.use.drafted_tokens:
        return "on"
    return "off" if run.config else None
