# SPDX-License-Identifier: Apache-2.0
"""
The queries for one server's series, by the names of the catalog.

Those of a history ask for the last value within one scrape interval, not for the value of up to five minutes before:
where nothing was scraped there is nothing. Counters and buckets are asked for as they are, never as rates.
"""

from __future__ import annotations

import json
import math
import re

from collections.abc import Collection, Iterator
from typing import NamedTuple
from urllib.parse import quote as quote_part

from vllm_watch.analysis.loadtest.energy_and_cost import ENERGY
from vllm_watch.analysis.loadtest.prometheus_history import (
    COUNTERS,
    GPU_INFO,
    HISTOGRAMS,
    PLAIN,
    PRESENCE,
    PRICE,
    SERVER_GPU,
    Answers,
    PrometheusHistory,
    Sampling,
    sampling_of,
)
from vllm_watch.analysis.loadtest.server_history import ServerHistory
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.number_texts import moment
from vllm_watch.daemon.catalog.series import PREFIX
from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.prometheus.api import PrometheusApi, PrometheusTarget
from vllm_watch.daemon.support.errors import PrometheusError


def sampled_at(server: str | None) -> str:
    """Return the expression for when a server's values were scraped, by the labels that Prometheus added; or any's."""
    wanted = "" if server is None else _server(server)
    return f"max without (server, source) (timestamp({PREFIX}{PRESENCE}{{{wanted}}}))"


def values_of(names: Collection[str], server: str | None) -> str:
    """Return the expression for series by their names: those of a server and those of none, or all."""
    wanted = "" if server is None else f",server=~{json.dumps(re.escape(server) + '|')}"
    return f'{{__name__=~"{"|".join(sorted(names))}"{wanted}}}'


def servers_within(seconds: float) -> str:
    """Return the expression for all servers with values within some seconds."""
    return f"group by (server) (present_over_time({PREFIX}{PRESENCE}[{_window(seconds)}]))"


def queries(server: str, interval: float) -> tuple[tuple[str, ...], ...]:
    """
    Return the expressions for each field of `Answers` about a server that was scraped every `interval` seconds.

    The answers on histograms are large: each family has an expression of its own.
    """
    plain = (*PLAIN, SERVER_GPU, PRICE)
    families = ("|".join(plain), "|".join(COUNTERS), *(f"{name}_(bucket|sum)" for name in HISTOGRAMS))
    energy = PREFIX + ENERGY
    memory = f"{PREFIX}gpu_memory_used_bytes / {PREFIX}gpu_memory_total_bytes"
    return (
        (sampled_at(server),),
        tuple(_last(names, server, interval) for names in families),
        (_of_gpus(f"max by (gpu) ({energy})", server),),
        (_of_gpus(f"max by (gpu) (timestamp({energy}))", server),),
        (_of_gpus(f'max by (gpu) ({PREFIX}{GPU_INFO}{{mig="1"}})', server),),
        (f"max({_of_gpus(f'max by (gpu) ({memory})', server)})",),
    )


def _of_gpus(by_gpu: str, server: str) -> str:
    return f"{by_gpu} and on (gpu) {PREFIX}{SERVER_GPU}{{{_server(server)}}}"


def _last(names: str, server: str, interval: float) -> str:
    return f'last_over_time({{__name__=~"{PREFIX}({names})",{_server(server)}}}[{_window(interval)}])'


def _server(name: str) -> str:
    # A string of PromQL has Go's escapes, and JSON's are among them.
    return f"server={json.dumps(name)}"


def _window(seconds: float) -> str:
    return f"{max(round(1000 * seconds), 1)}ms"


MAX_POINTS = 11_000
"""Prometheus answers no query with more moments."""

_PART = 1000
"""The moments that are asked for at once: the answers of a server with many engines stay below the limit."""

_MAX_NAMES = 20


SCHEME = "prom:"
"""How the name of a source begins that a Prometheus has."""


class PrometheusQuery(NamedTuple):
    """Which server's series, from when to when; without a `server` those of the only one, or of all."""

    target: PrometheusTarget
    server: str | None
    times: TimeRange

    @property
    def source(self) -> str:
        """What is read, as a report names it: that can be given as a source again."""
        start, end = (f"{moment(at).replace(' ', 'T')}Z" for at in self.times)
        server = quote_part(self.server or "", safe=":")
        return f"{SCHEME}{self.target.url.rstrip('/')}/{server}@{start}/{end}"


def read_prometheus(query: PrometheusQuery, progress: Progress = lambda _share: None) -> ServerHistory:
    """Return a server's history with a point for each scrape, fewer over a long time; or raise `PrometheusError`."""
    target, asked, times = query
    api = PrometheusApi(target)
    try:
        server = asked or _only_server(api, query)
        sampling = sampling_of(api.range(sampled_at(server), times, _finest(times)))
        if sampling is None:
            raise PrometheusError(f"{query.source}: {nothing_found(api, server, times)}")
        return _read(api, query, server, sampling, progress)
    finally:
        api.close()


def _only_server(api: PrometheusApi, query: PrometheusQuery) -> str:
    present = _servers(api, query.times)
    if not present:
        raise PrometheusError(f"{query.source}: {nothing_found(api, None, query.times)}")
    if len(present) > 1:
        named = f"{SCHEME}URL/SERVER@FROM/TO"
        raise PrometheusError(f"{query.source}: there are several servers, name one as in {named}: {_listed(present)}")
    return present[0]


def _read(
    api: PrometheusApi, query: PrometheusQuery, server: str, sampling: Sampling, progress: Progress
) -> ServerHistory:
    times = query.times
    interval = max(sampling.interval, 1.0)
    step = max(_finest(times), round(interval))
    history = PrometheusHistory(interval)
    every = queries(server, interval)
    # Half an interval after a scrape, small delays of scrapes change nothing.
    first = max(sampling.first, times.start) + interval / 2
    last = min(sampling.last, times.end) + step
    parts = list(_parts(first, last, step))
    for number, part in enumerate(parts, 1):
        answers = (tuple(found for query in field for found in api.range(query, part, step)) for field in every)
        history.add(Answers(*answers))
        progress(number / len(parts))
    warnings = []
    if step > 1.5 * interval:
        long = N_("The time is long: there is a point every {step} s, and a scrape every {interval:g} s.")
        warnings.append(_(long, step=step, interval=interval))
    return history.build(query.source, server, warnings)._replace(server=server)


def _parts(first: float, last: float, step: float) -> Iterator[TimeRange]:
    moments = math.floor((last - first) / step) + 1
    for done in range(0, moments, _PART):
        count = min(_PART, moments - done)
        yield TimeRange(first + done * step, first + (done + count - 1) * step)


def _finest(times: TimeRange) -> float:
    return max(math.ceil((times.end - times.start) / (MAX_POINTS - 1)), 1)


def nothing_found(api: PrometheusApi, server: str | None, times: TimeRange) -> str:
    """Return why there is nothing of a server, or of any: which ones there are, in this time or at all."""
    present = _servers(api, times)
    named = "any server" if server is None else quote(server)
    there = present or sorted(api.servers())
    if not there:
        return "no series of vllm-watch: is it scraped by this Prometheus?"
    return f"no values of {named} in this time; there {'are' if present else 'were'} {_listed(there)}"


def _servers(api: PrometheusApi, times: TimeRange) -> list[str]:
    series = api.range(servers_within(times.end - times.start), TimeRange(times.end, times.end), 1)
    return sorted({each.labels.get("server", "") for each in series} - {""})


def _listed(names: list[str]) -> str:
    listed = ", ".join(quote(name) for name in names[:_MAX_NAMES])
    return f"{listed} and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else listed
