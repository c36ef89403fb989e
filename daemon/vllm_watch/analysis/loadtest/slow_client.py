# SPDX-License-Identifier: Apache-2.0
"""What is said of a client that measured its own slowness."""

from __future__ import annotations

from vllm_watch.analysis.loadtest.number_texts import milliseconds


def slow_client(seen_ms: float, had_ms: float, name: str | None = None) -> str:
    """
    Return a sentence on a client that sees the first token much later than its server has it.

    Args:
        seen_ms: The client's mean TTFT.
        had_ms: The server's.
        name: Of the side, if there are several.
    """
    client = "The client" if name is None else f"The client of {name}"
    return (
        f"{client} saw the first token after {milliseconds(round(seen_ms))} on average, its server had it after "
        f"{milliseconds(round(had_ms))}: the rest is the client's own slowness, or the network's."
    )
