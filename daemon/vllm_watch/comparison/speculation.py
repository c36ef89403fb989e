# SPDX-License-Identifier: Apache-2.0
"""
Whether two sides differ in speculative decoding, which changes what inter-token latency means.

A streamed chunk holds all tokens of a step: one without drafts, several with them. ITL counts chunks, TPOT tokens, so
their ratio is how many tokens a chunk has.
"""

from __future__ import annotations

from vllm_watch.comparison.pair import Measured, Pair, relative_difference
from vllm_watch.loadtest.model import Run


_SAME_CHUNKS = 0.10


def speculation(run: Run) -> str | None:
    """Return how a run drafted tokens, as text: its flags; ``off``; `None` if that is not known."""
    flags = sorted((flag, value) for flag, value in run.config.items() if "speculative" in flag)
    if flags:
        return ", ".join(f"{flag}={value}" for flag, value in flags)
    if run.use.drafted_tokens:
        return "on"
    return "off" if run.config else None


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
    ways = [{way for run in side.runs if (way := speculation(run)) is not None} for side in pair.sides]
    if ways[0] and ways[1] and ways[0] != ways[1]:
        return (
            "the sides differ in speculative decoding, so their chunks of the stream hold different numbers of tokens"
        )
    return None
