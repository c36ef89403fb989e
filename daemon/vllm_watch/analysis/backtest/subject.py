# SPDX-License-Identifier: Apache-2.0
"""What rules are evaluated over: the series of one recording, log or Prometheus."""

from __future__ import annotations

import re

from collections.abc import Iterator
from typing import NamedTuple

from vllm_watch.analysis.backtest.evaluation import NOTHING, STALE
from vllm_watch.analysis.backtest.series_grid import SeriesGrid
from vllm_watch.daemon.config.times import TimeRange


_MOMENT = re.compile(r"\w+_(?:timestamp|start_time)_seconds(?=\{|$)", re.ASCII)
_FIRST_MOMENT = 1e9
"""A larger number of seconds is a time of the epoch: this one is in 2001."""

_NAME = re.compile(r"[^{]+")
_SOURCE = re.compile(r'[{,]source="(\w+)"', re.ASCII)


class Subject(NamedTuple):
    """
    What rules are evaluated over, as one Prometheus would have it.

    Args:
        name: Its path or address.
        grid: Its series.
        step: Seconds between two values.
        lead: How many of the first steps are there for the rules to look back at.
        has_daemon: Whether the daemon's own series are those of a daemon that was scraped.
        engines: How many engines a server has at most.
        gaps: When nothing was scraped.
        warnings: What else a reader must know.
        moved: Seconds by which its times are shown later: the log's zone is not this machine's.
    """

    name: str
    grid: SeriesGrid
    step: float
    lead: int = 0
    has_daemon: bool = False
    engines: int = 1
    gaps: tuple[TimeRange, ...] = ()
    warnings: tuple[str, ...] = ()
    moved: float = 0.0

    @property
    def seconds(self) -> float:
        """How long it is, without its lead."""
        return max((self.grid.steps - 1 - self.lead) * self.step, 0.0)

    @property
    def start(self) -> float:
        """When it begins, in seconds since the epoch."""
        return self.at(self.lead * self.step)

    @property
    def end(self) -> float:
        """When it ends, in seconds since the epoch."""
        return self.start + self.seconds

    def at(self, seconds: float) -> float:
        """Return the time of so many seconds after the first value, in seconds since the epoch."""
        return round(self.grid.started + seconds + self.moved, 3)

    @property
    def names(self) -> frozenset[tuple[str, str]]:
        """The name of each series, with its source if it has one, and without."""
        return frozenset(found for series in self.grid.series for found in _names(series))

    @property
    def in_virtual_time(self) -> dict[str, list[str]]:
        """The series for an evaluation whose time begins at 0: values that are times are moved as it is."""
        return {
            series: _moved(values, self.grid.started) if _MOMENT.match(series) else values
            for series, values in self.grid.series.items()
        }


def _names(series: str) -> Iterator[tuple[str, str]]:
    found = _NAME.match(series)
    name = found[0] if found else ""
    yield name, ""
    source = _SOURCE.search(series)
    if source is not None:
        yield name, source[1]


def _moved(values: list[str], seconds: float) -> list[str]:
    texts: dict[str, str] = {STALE: STALE, NOTHING: NOTHING}
    for text in set(values) - texts.keys():
        value = float(text)
        texts[text] = repr(value - seconds) if value >= _FIRST_MOMENT else text
    return [texts[text] for text in values]
