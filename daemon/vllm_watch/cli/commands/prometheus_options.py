# SPDX-License-Identifier: Apache-2.0
"""A Prometheus as a source of several commands: the options that name it, and what is asked of it."""

from __future__ import annotations

import time

from collections.abc import Sequence
from typing import NamedTuple

import click

from vllm_watch.analysis.backtest.subjects import PrometheusRange
from vllm_watch.analysis.comparison.side_argument import RangeArgument, SideArgument
from vllm_watch.analysis.loadtest.prometheus_source import PrometheusQuery
from vllm_watch.cli.commands.options import several
from vllm_watch.daemon.config.moments import parse_time_range
from vllm_watch.daemon.config.texts import parse_url
from vllm_watch.daemon.prometheus.api import PrometheusTarget
from vllm_watch.daemon.sources.http_client import TlsOptions
from vllm_watch.daemon.support.choices import file_names
from vllm_watch.daemon.support.errors import UsageError


prometheus_options = several(
    click.option("--prometheus", "url", metavar="URL", help="Read a server's series from this Prometheus."),
    click.option("--server", metavar="NAME", help="Which server of it: the label `server`."),
    click.option(
        "--bearer-token-file",
        "token_file",
        metavar="FILE",
        shell_complete=file_names,
        help="The file with its bearer token.",
    ),
    click.option(
        "--ca-file",
        metavar="FILE",
        shell_complete=file_names,
        help="The authorities to trust for its certificate, in PEM format.",
    ),
)
range_options = several(
    click.option("--from", "start", metavar="TIME", help='From when, such as -2h, "2026-11-20 14:00" or RFC 3339.'),
    click.option("--to", "end", metavar="TIME", help="Until when [default: now]."),
)


class PrometheusOptions(NamedTuple):
    """The values of ``--prometheus``, ``--server``, ``--from``, ``--to``, ``--bearer-token-file`` and ``--ca-file``."""

    url: str | None = None
    server: str | None = None
    start: str | None = None
    end: str | None = None
    token_file: str | None = None
    ca_file: str | None = None


_NAMES = PrometheusOptions("--prometheus", "--server", "--from", "--to", "--bearer-token-file", "--ca-file")


def prometheus_query(options: PrometheusOptions) -> PrometheusQuery | None:
    """
    Return what `report` and `advise` ask of a Prometheus, if they do.

    Raises:
        UsageError: Something is missing or wrong.
    """
    if options.url is not None and options.server is None:
        raise UsageError("--prometheus requires --server NAME")
    asked = prometheus_range(options)
    return None if asked is None or asked.server is None else PrometheusQuery(asked.target, asked.server, asked.times)


def prometheus_range(options: PrometheusOptions) -> PrometheusRange | None:
    """
    Return what `backtest` asks of a Prometheus, if it does: without ``--server`` all its servers.

    Raises:
        UsageError: Something is missing or wrong.
    """
    target = _target(options)
    if target is None:
        return None
    if options.start is None:
        raise UsageError("--prometheus requires --from TIME")
    times = parse_time_range(options.start, options.end or "now", time.time())
    return PrometheusRange(target, options.server, times)


def side_queries(sides: Sequence[SideArgument], options: PrometheusOptions) -> list[tuple[PrometheusQuery, ...]]:
    """
    Return for each side of `compare` what it asks of a Prometheus.

    Raises:
        UsageError: A side has a time range and it is not known of what, or there is a Prometheus and no time range.
    """
    target = _target(options)
    ranges = [given for side in sides for given in side.ranges]
    if target is None and ranges:
        raise UsageError(f"the time range {ranges[0].text} requires --prometheus URL (or is there no such file?)")
    if target is None:
        return [() for _ in sides]
    if not ranges:
        raise UsageError("--prometheus requires a side with a time range, as in A=2026-11-20T14:00/14:10")
    return [tuple(_range_query(target, given, options.server) for given in side.ranges) for side in sides]


def _range_query(target: PrometheusTarget, given: RangeArgument, server: str | None) -> PrometheusQuery:
    name = given.server or server
    if name is None:
        raise UsageError(f"the time range {given.text} requires --server NAME, or NAME@{given.text}")
    return PrometheusQuery(target, name, given.times)


def _target(options: PrometheusOptions) -> PrometheusTarget | None:
    """Return which Prometheus is asked; none without ``--prometheus``, which all other options require."""
    if options.url is None:
        alone = next((name for name, value in zip(_NAMES, options, strict=True) if value is not None), None)
        if alone is not None:
            raise UsageError(f"{alone} requires --prometheus URL")
        return None
    try:
        url = parse_url(options.url, path="", instead="--bearer-token-file")
    except ValueError as error:
        raise UsageError(f"--prometheus: {error}") from None
    return PrometheusTarget(url, options.token_file, TlsOptions(options.ca_file))
