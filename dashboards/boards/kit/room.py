# SPDX-License-Identifier: Apache-2.0
"""How many more requests fit into an engine, and what limits them."""

from __future__ import annotations

from boards.kit import promql
from boards.kit.thresholds import number


_RECENT = "10m"
"""The requests that finished in this time show what requests are like now."""

_RUNNING = promql.of_engine("requests_running")
_USAGE = promql.of_engine("kv_cache_usage_ratio")
_CAPACITY = promql.of_engine("kv_cache_capacity_tokens")
_PLACES = f"clamp_min({promql.of_engine('max_running_requests')} - {_RUNNING}, 0)"


def free_places() -> str:
    """
    Return how many more requests an engine can run: the fewer of those that the batch and the KV cache take.

    One that is stalled or down takes none that anybody would want there: of it nothing is said.
    """
    fewer = f"({_PLACES} <= {_fitting()} or {_fitting()} or {_PLACES})"
    return promql.answering(fewer, "instance, server, engine")


def is_limited_by_batch() -> str:
    """Return what each server's batch takes where the KV cache takes as many, or it is not known how many."""
    places, fitting = f"({promql.per_server(_PLACES)})", f"({promql.per_server(_fitting())})"
    return f"({places} <= {fitting} or {places} unless {fitting})"


def _fitting() -> str:
    """
    Return how many requests of the server's recent mean length the free part of an engine's KV cache holds.

    A full one holds none, also while no request has finished yet and their length is not known.
    """
    length = " + ".join(f"({promql.mean(f'request_{kind}_tokens', _RECENT)})" for kind in ("prompt", "generation"))
    free = f"{_CAPACITY} * (1 - {_USAGE})"
    held = f"floor({free} / ignoring (model_name, engine) group_left () ({length}))"
    return f"({held} or ({_USAGE} >= {number('kv_full_ratio'):g}) * 0)"
