# SPDX-License-Identifier: Apache-2.0
"""What the commands that read load tests have in common: their sources, an objective and a price."""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
import time

from collections.abc import Sequence
from pathlib import Path

import click

from vllm_watch.analysis.loadtest.load_test import Objective, parse_objective
from vllm_watch.analysis.loadtest.source_names import Source, parse_source
from vllm_watch.cli.commands.options import parsed
from vllm_watch.daemon.config.moments import TimeRange, parse_time_range
from vllm_watch.daemon.config.texts import quote
from vllm_watch.daemon.support.errors import UsageError


STANDARD_INPUT = "-"

_FIRST, _LATEST = "0" * 9, "9999999999"
"""Moments before and after any in a source, in seconds since the epoch."""

sources_argument = click.argument("sources", nargs=-1, metavar="SOURCE...", type=click.Path(readable=False))


def given_sources(texts: Sequence[str]) -> tuple[Source, ...]:
    """Return the sources of a command, each once; raise `UsageError` if there is none."""
    if not texts:
        raise UsageError("give at least one SOURCE: a file, a folder, -, or prom:URL/SERVER@FROM/TO")
    return tuple(dict.fromkeys(given_source(text) for text in texts))


def given_source(text: str) -> Source:
    """Return what a source names, by the present and this process's environment; ``-`` is standard input."""
    return _standard_input() if text == STANDARD_INPUT else parse_source(text, time.time(), os.environ)


def _standard_input() -> str:
    """Return the path of a file with all of standard input, which is there until the command ends."""
    folder = tempfile.TemporaryDirectory(prefix="vllm-watch-")
    path = Path(click.get_current_context().with_resource(folder), "standard-input")
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return str(path)


def source_times(start: str | None, end: str | None) -> TimeRange | None:
    """Return what ``--from`` and ``--to`` say: without one of them from the first, or to the last moment."""
    if start is None and end is None:
        return None
    return parse_time_range(start or _FIRST, end or _LATEST, time.time())


def _objective_of(option: str, text: str) -> Objective:
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
