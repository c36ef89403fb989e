# SPDX-License-Identifier: Apache-2.0
"""Reads a server's history from a Prometheus, or what speaks like one, over HTTP: bounded in time and in bytes."""

from __future__ import annotations

import math

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar
from urllib.parse import urlencode

import requests

from vllm_watch.config.quoting import quote
from vllm_watch.config.times import TimeRange
from vllm_watch.loadtest.history import ServerHistory
from vllm_watch.loadtest.http_reader import HttpReader
from vllm_watch.loadtest.number_texts import moment
from vllm_watch.loadtest.prometheus_answers import PromSeries, parse_matrix, parse_names, parse_rejection
from vllm_watch.loadtest.prometheus_history import Answers, PrometheusHistory, Sampling, sampling_of
from vllm_watch.loadtest.prometheus_queries import Queries, queries, sampled_at, servers_within
from vllm_watch.replay.replay import Progress
from vllm_watch.support.errors import PrometheusError
from vllm_watch.support.tokens import read_token


MAX_POINTS = 11_000
"""Prometheus answers no query with more moments."""

_PART = 1000
"""So many moments are asked for at once: the answers of a server with many engines stay below the limit."""

T = TypeVar("T")

_EXACT: Mapping[str, str] = {"nocache": "1", "deny_partial_response": "1", "partial_response": "false"}
"""
What a Prometheus ignores. VictoriaMetrics moves the moments to multiples of the step, unless it must not use its cache;
and a cluster of it, as Thanos, answers without the nodes that are down, unless that has to be an error.
"""
_MAX_NAMES = 20


class PrometheusTarget(NamedTuple):
    """
    Which Prometheus.

    Args:
        url: Where it is, with its path if it is served below one.
        token_file: A file with its bearer token.
        ca_file: The authorities to trust instead of the usual ones.
    """

    url: str
    token_file: str | None = None
    ca_file: str | None = None


class PrometheusQuery(NamedTuple):
    """Which server's series, from when to when."""

    target: PrometheusTarget
    server: str
    times: TimeRange

    @property
    def source(self) -> str:
        """What is read, as a report names it."""
        start, end = map(moment, self.times)
        return f"{self.target.url.rstrip('/')}: {self.server}, {start} to {end} UTC"


def read_prometheus(query: PrometheusQuery, progress: Progress = lambda _share: None) -> ServerHistory:
    """
    Return a server's history over a time, with a point for each scrape, or fewer over a long time.

    Raises:
        PrometheusError: It cannot be reached, rejects the token or a query, or has nothing of this server in this time.
    """
    target, server, times = query
    api = _Api(target)
    try:
        sampling = sampling_of(api.range(sampled_at(server), times, _finest(times)))
        if sampling is None:
            raise PrometheusError(f"{query.source}: {_nothing(api, server, times)}")
        return _read(api, query, sampling, progress)
    finally:
        api.close()


def _read(api: _Api, query: PrometheusQuery, sampling: Sampling, progress: Progress) -> ServerHistory:
    _, server, times = query
    interval = max(sampling.interval, 1.0)
    step = max(math.ceil((times.end - times.start) / (MAX_POINTS - 1)), round(interval), 1)
    history = PrometheusHistory(interval)
    every = queries(server, interval)
    # Half an interval after a scrape, small delays of scrapes change nothing.
    first = max(sampling.first, times.start) + interval / 2
    last = min(sampling.last, times.end) + step
    parts = list(_parts(first, last, step))
    for number, part in enumerate(parts, 1):
        history.add(_answers(api, every, part, step))
        progress(number / len(parts))
    warnings = []
    if step > 1.5 * interval:
        warnings.append(f"The time is long: there is a point every {step} s, and a scrape every {interval:g} s.")
    return history.build(query.source, server, warnings)._replace(server=server)


def _parts(first: float, last: float, step: float) -> Iterator[TimeRange]:
    """Yield parts of the time, each of at most `_PART` moments, none of which is in two parts."""
    moments = math.floor((last - first) / step) + 1
    for done in range(0, moments, _PART):
        count = min(_PART, moments - done)
        yield TimeRange(first + done * step, first + (done + count - 1) * step)


def _answers(api: _Api, every: Queries, part: TimeRange, step: float) -> Answers:
    return Answers(
        api.range(every.sampled, part, step),
        api.range(every.gauges, part, step),
        api.range(every.counters, part, step),
        tuple(series for query in every.histograms for series in api.range(query, part, step)),
    )


def _finest(times: TimeRange) -> float:
    return max(math.ceil((times.end - times.start) / (MAX_POINTS - 1)), 1)


def _nothing(api: _Api, server: str, times: TimeRange) -> str:
    """Return why there is nothing of a server: which ones there are, in this time or at all."""
    length = times.end - times.start
    found = api.range(servers_within(length), TimeRange(times.end, times.end), 1)
    present = sorted({series.labels.get("server", "") for series in found} - {""})
    if present:
        return f"no server {quote(server)} in this time; there are {_listed(present)}"
    ever = sorted(api.servers())
    if server in ever:
        return f"no values of {quote(server)} in this time"
    if ever:
        return f"no server {quote(server)}, and no values of others in this time; there are {_listed(ever)}"
    return "no series of vllm-watch: is it scraped by this Prometheus?"


def _listed(names: list[str]) -> str:
    shown = ", ".join(quote(name) for name in names[:_MAX_NAMES])
    return f"{shown} and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else shown


class _Api:
    """Asks one Prometheus, one request after the other."""

    def __init__(self, target: PrometheusTarget) -> None:
        self._token_file = target.token_file
        token = None if target.token_file is None else read_token(target.token_file)
        if target.token_file is not None and token is None:
            raise PrometheusError(f"{target.token_file}: cannot be read, or has no token")
        self._reader = HttpReader(target.url, target.ca_file, token)
        self.url = self._reader.url

    def close(self) -> None:
        self._reader.close()

    def range(self, query: str, times: TimeRange, step: float) -> tuple[PromSeries, ...]:
        """Return an expression's series at moments `step` apart, from the first on."""
        moments = {"start": f"{times.start:.3f}", "end": f"{times.end:.3f}", "step": f"{step:.3f}"}
        return self._parsed(parse_matrix, "/api/v1/query_range", {"query": query, **moments, **_EXACT})

    def servers(self) -> tuple[str, ...]:
        """Return every name of a server that there ever was."""
        return self._parsed(parse_names, "/api/v1/label/server/values", {"match[]": "vllm_watch_source_up"})

    def _parsed(self, parse: Callable[[bytes], T], path: str, parameters: Mapping[str, str]) -> T:
        status, body = self._get(f"{path}?{urlencode(parameters)}")
        if status != requests.codes.ok:
            raise PrometheusError(f"{self.url}: {self._rejection(status, body)}")
        try:
            return parse(body)
        except ValueError as error:
            raise PrometheusError(f"{self.url}: {error}") from error

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            return self._reader.get(path)
        except ValueError as error:
            raise PrometheusError(f"{self.url}: {error}") from None

    def _rejection(self, status: int, body: bytes) -> str:
        if status == requests.codes.unauthorized:
            return (
                "it requires a token (401): give --bearer-token-file"
                if self._token_file is None
                else f"it rejects the token in {self._token_file} (401)"
            )
        if status == requests.codes.forbidden:
            return "it denies access (403)"
        if 300 <= status < 400:
            return "it redirects: give the final URL"
        said = parse_rejection(body)
        if said:
            return f"it rejects a query: {said}"
        if status == requests.codes.not_found:
            return "no Prometheus API there (404): check the URL's path"
        return f"it answered with an error ({status})"
