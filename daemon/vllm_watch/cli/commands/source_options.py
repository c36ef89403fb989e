# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that read load tests: how files are read, and which Prometheus is one more source."""

from __future__ import annotations

import math
import re
import time

from collections.abc import Sequence
from datetime import timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo

import click

from vllm_watch.analysis.backtest.subjects import PrometheusRange
from vllm_watch.analysis.comparison.compare_arguments import RangeArgument, SideArgument
from vllm_watch.analysis.loadtest.load_test import Objective, parse_objective
from vllm_watch.analysis.loadtest.prometheus_source import PrometheusQuery
from vllm_watch.cli.commands.options import as_one, file_option, parsed
from vllm_watch.daemon.config.moments import TimeRange, parse_time_range
from vllm_watch.daemon.config.server_config import TlsConfig
from vllm_watch.daemon.config.texts import parse_url, quote
from vllm_watch.daemon.prometheus.api import PrometheusTarget
from vllm_watch.daemon.support.errors import UsageError


_LATEST = 9_999_999_999
"""A moment later than any in a log, in seconds since the epoch."""

_OFFSET = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)", re.ASCII)


class PrometheusOptions(NamedTuple):
    """The values of ``--prometheus``, ``--server``, ``--from``, ``--to``, ``--bearer-token-file`` and ``--ca-file``."""

    url: str | None = None
    server: str | None = None
    start: str | None = None
    end: str | None = None
    token_file: str | None = None
    ca_file: str | None = None


_NAMES = PrometheusOptions("--prometheus", "--server", "--from", "--to", "--bearer-token-file", "--ca-file")

_PROMETHEUS = (
    click.option("--prometheus", "url", metavar="URL", help="Read a server's series from this Prometheus."),
    click.option("--server", metavar="NAME", help="Which server of it: the label `server`."),
    file_option("--bearer-token-file", "token_file", help="The file with its bearer token."),
    file_option("--ca-file", help="The authorities to trust for its certificate, in PEM format."),
)
_RANGE = (
    click.option("--from", "start", metavar="TIME", help='From when, such as -2h, "2026-11-20 14:00" or RFC 3339.'),
    click.option("--to", "end", metavar="TIME", help="Until when [default: now]."),
)

prometheus_options = as_one("prometheus", PrometheusOptions, *_PROMETHEUS)
"""Gives a command all but a range: its sources have one each."""

prometheus_range_options = as_one("prometheus", PrometheusOptions, *_PROMETHEUS, *_RANGE)


def parse_zone(text: str) -> tzinfo:
    """Return a time zone by its name, or by its distance from UTC: ``Asia/Shanghai``, ``UTC``, ``+08:00``."""
    found = _OFFSET.fullmatch(text)
    try:
        if found is None:
            return ZoneInfo(text)
        distance = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-distance if found[1] == "-" else distance)
    except (ValueError, OSError, KeyError):
        raise UsageError(f"--zone: expected a time zone such as Asia/Shanghai or +08:00, got {quote(text)}") from None


def _objective_of(option: str, text: str) -> Objective:
    """Return what requests have to be answered within."""
    try:
        return parse_objective(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def cost_of(option: str, text: str) -> float:
    """Return the price that an option gives, in any currency."""
    try:
        price = float(text)
    except ValueError:
        price = math.nan
    if not 0 < price < math.inf:
        raise UsageError(f"{option}: expected a number above 0 such as 2.4, got {quote(text)}")
    return price


objective_option = click.option(
    "--objective",
    callback=parsed(_objective_of),
    metavar="chat|batch|LIMITS",
    help="What requests have to be answered within: chat, batch, or limits such as ttft=300ms,tpot=40ms.",
)
cost_option = click.option(
    "--cost-per-hour",
    "cost",
    callback=parsed(cost_of),
    metavar="N",
    help="What the server costs in an hour, in any currency: shows what a million tokens cost.",
)
zone_option = click.option(
    "--zone",
    callback=parsed(lambda _option, text: parse_zone(text)),
    metavar="ZONE",
    help="Time zone of logs and results, such as Asia/Shanghai or +08:00 [default: this machine's].",
)


def prometheus_query(options: PrometheusOptions) -> PrometheusQuery | None:
    """Return what `report` and `advise` ask of a Prometheus, if they do."""
    if options.url is not None and options.server is None:
        raise UsageError("--prometheus requires --server NAME")
    asked = prometheus_range(options)
    return None if asked is None or asked.server is None else PrometheusQuery(asked.target, asked.server, asked.times)


def source_times(options: PrometheusOptions) -> TimeRange | None:
    """Return what ``--from`` and ``--to`` say of files: without one of them from the first, or to the last moment."""
    if options.url is not None or (options.start is None and options.end is None):
        return None
    now = time.time()
    if options.start is None:
        return TimeRange(0.0, parse_time_range("0" * 9, options.end or "now", now).end)
    if options.end is None:
        return TimeRange(parse_time_range(options.start, str(_LATEST), now).start, float(_LATEST))
    return parse_time_range(options.start, options.end, now)


def prometheus_range(options: PrometheusOptions) -> PrometheusRange | None:
    """Return what `backtest` asks of a Prometheus, if it does: without ``--server`` all its servers."""
    target = _target(options)
    if target is None:
        return None
    if options.start is None:
        raise UsageError("--prometheus requires --from TIME")
    times = parse_time_range(options.start, options.end or "now", time.time())
    return PrometheusRange(target, options.server, times)


def side_queries(sides: Sequence[SideArgument], options: PrometheusOptions) -> list[tuple[PrometheusQuery, ...]]:
    """Return for each side of `compare` what it asks of a Prometheus."""
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
    return PrometheusTarget(url, options.token_file, TlsConfig(ca_file=options.ca_file))
