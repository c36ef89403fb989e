# SPDX-License-Identifier: Apache-2.0
"""Known traps: metrics that mean something else on the two sides, or nothing, though both have a value."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_watch.analysis.comparison.load_kinds import SERVED, load_kind, served_share
from vllm_watch.analysis.comparison.metrics import COSTS, THROUGHPUTS, Metric
from vllm_watch.analysis.comparison.pair import Measured, Pair, mean_known, result_in
from vllm_watch.analysis.comparison.speculation import differs_in_chunks
from vllm_watch.analysis.loadtest.client_texts import slow_client
from vllm_watch.analysis.loadtest.load_test import Objective, Result
from vllm_watch.daemon.catalog.number_texts import limit, milliseconds, percent


_CLIENT_SHARE = 0.25
"""From so large a share of the client's TTFT on that the server does not know of, the client was slow itself."""
_CLIENT_EXPLAINS = 0.5
"""From so large a part of the difference on that is the clients' alone, the servers' is not known from it."""
_CLIENT_SAME = 0.05


class Traps:
    """
    What is not compared between two sides, and why.

    Args:
        pair: The sides.
    """

    def __init__(self, pair: Pair) -> None:
        self._chunks = differs_in_chunks(pair)
        self._is_one_saturated = pair.a.is_saturated is not None and pair.a.is_saturated is not pair.b.is_saturated
        self._is_one_saturated &= pair.b.is_saturated is not None
        self._repeated_rate = _repeated_rate(pair)
        self._client = _client_difference(pair)
        self._objectives = _other_objectives(pair)

    def note(self, metric: Metric) -> str | None:
        """Return why a metric is not compared, `None` if it is."""
        if metric.latency == "itl_ms" and self._chunks is not None:
            return f"ITL counts chunks, not tokens: {self._chunks}. Compare TPOT instead."
        if metric.name in (*THROUGHPUTS, *COSTS) and self._repeated_rate is not None:
            return self._repeated_rate
        if metric.latency is not None and self._is_one_saturated:
            return "One side was saturated and the other was not: latencies then only tell how long the queue grew."
        if metric.latency == "ttft_ms" and self._client is not None:
            return self._client
        return self._objectives if metric.name == "request_goodput" else None


def trap_warnings(pair: Pair) -> Iterator[str]:
    """Yield what a reader must know of values that are compared."""
    for side in pair.sides:
        added = _client_added(side)
        if added is not None and added[0] > _CLIENT_SHARE * added[1]:
            yield slow_client(added[1], added[1] - added[0], side.name)


def _repeated_rate(pair: Pair) -> str | None:
    """Return why throughput says nothing: the server kept up with a given rate."""
    loads = [run.load for side in pair.sides for run in side.runs]
    if any(load_kind(load) != "open" for load in loads) or any(side.is_saturated for side in pair.sides):
        return None
    rate = loads[0].request_rate
    given = "a rate that was given" if rate is None else f"a fixed rate of {limit(float(rate))} requests/s"
    served = [_served(side) for side in pair.sides]
    if all(share is None or share >= SERVED for share in served):
        return f"At {given} throughput only repeats the rate."
    shares = " and ".join(
        f"{percent(share)} % in {side.name}"
        for share, side in zip(served, pair.sides, strict=True)
        if share is not None
    )
    return (
        f"At {given} throughput repeats the rate, of which {shares} was served. Whether a server was too slow, or the "
        "time after the last request is a large part of the run, is not known."
    )


def _served(side: Measured) -> float | None:
    """Return how much of the given rate was served, `None` if that is not known."""
    return mean_known([served_share(run, result) for run, result in zip(side.runs, side.results, strict=True)])


def _client_added(side: Measured) -> tuple[float, float] | None:
    """Return by how much the client's mean TTFT is above the server's, and the client's, in milliseconds."""
    pairs = [(_mean_ttft(result_in(run, "client")), _mean_ttft(result_in(run, "server"))) for run in side.runs]
    known = [(client, server) for client, server in pairs if client is not None and server is not None]
    if not known:
        return None
    client = sum(each for each, _ in known) / len(known)
    return client - sum(each for _, each in known) / len(known), client


def _client_difference(pair: Pair) -> str | None:
    """Return why the client's TTFT is not compared: most of the difference is its own slowness."""
    if pair.view != "client":
        return None
    a, b = (_client_added(side) for side in pair.sides)
    if a is None or b is None or max(a[0] / a[1], b[0] / b[1]) <= _CLIENT_SHARE:
        return None
    difference = abs(b[1] - a[1])
    if difference <= _CLIENT_SAME * a[1] or abs(b[0] - a[0]) < _CLIENT_EXPLAINS * difference:
        return None
    return (
        f"The client's own slowness is most of the difference: it adds {milliseconds(round(a[0]))} to TTFT in "
        f"{pair.a.name} and {milliseconds(round(b[0]))} in {pair.b.name}."
    )


def _mean_ttft(result: Result | None) -> float | None:
    return None if result is None or result.ttft_ms is None else result.ttft_ms.mean


def _other_objectives(pair: Pair) -> str | None:
    """Return why goodput is not compared: the sides were measured by other limits."""
    limits = {tuple(sorted(found.limits.items())) for side in pair.sides for found in _objectives(side)}
    return "The objectives of the sides differ." if len(limits) > 1 else None


def _objectives(side: Measured) -> list[Objective]:
    return [result.goodput.objective for result in side.results if result.goodput is not None]
