# SPDX-License-Identifier: Apache-2.0
"""What is read of an engine at one moment, for its capacity; the sum of all engines in the history of a load test."""

from __future__ import annotations

from typing import NamedTuple


class LoadSample(NamedTuple):
    """
    An engine at one moment, `at`, in seconds. What is not known is `None`.

    `running` requests are in the batch, `queued` ones wait for a place in it or in the KV cache; `kv_cache_usage` is
    from 0 to 1. The rest are counts since some start: `generated` and `computed` in tokens (`computed` those of
    prompts, without cached ones), `preemptions` in requests, `prefix_queries` and `prefix_hits` in tokens, `drafts`,
    and `accepted` in tokens of these; `prompted` and `answered` are the tokens of the prompts and answers of finished
    requests, `measured` how many requests those are of.
    """

    at: float
    running: float
    queued: float
    kv_cache_usage: float | None = None
    generated: float | None = None
    computed: float | None = None
    preemptions: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    drafts: float | None = None
    accepted: float | None = None
    prompted: float | None = None
    answered: float | None = None
    measured: float | None = None


def grown(old: float | None, new: float | None) -> float | None:
    """Return by how much a count grew; one that appears later has counted from 0."""
    return None if new is None else new - (old or 0.0)


def share(part: float | None, whole: float | None) -> float | None:
    """Return the share of a part in a whole, `None` if there was nothing."""
    # Counters are read one after the other while they grow: a part may be ahead of the whole.
    return None if part is None or not whole else min(part / whole, 1.0)


def is_reset(old: LoadSample, new: LoadSample) -> bool:
    """Return whether the engine was started again between two samples."""
    return any(
        before is not None and after is not None and after < before
        for before, after in ((old.generated, new.generated), (old.computed, new.computed))
    )
