# SPDX-License-Identifier: Apache-2.0
"""What rules are evaluated over: series with a value for every step, as if Prometheus had scraped the daemon then."""

from __future__ import annotations

import re

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_watch.analysis.backtest.promtool import NOTHING, STALE
from vllm_watch.analysis.replay.replay import SPARSE_SECONDS
from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.exposition.time_series_file import TimeSeriesFile
from vllm_watch.daemon.state.snapshot import ServerSnapshot


_MOMENT = re.compile(r"\w+_(?:timestamp|start_time)_seconds(?=\{|$)", re.ASCII)
_FIRST_MOMENT = 1e9
"""A larger number of seconds is a time of the epoch: this one is in 2001."""

_SOURCE = re.compile(r'[{,]source="(\w+)"', re.ASCII)


class SeriesGrid(NamedTuple):
    """
    Series by name and labels, with a number, `STALE` or `NOTHING` for each step.

    `started` is the time of the first step, in seconds since the epoch.
    """

    started: float
    steps: int
    series: dict[str, list[str]]


def of_the_daemon(steps: int) -> dict[str, list[str]]:
    """Return what is there wherever a daemon is scraped."""
    return {'up{job="vllm-watch",instance="127.0.0.1:9468"}': ["1"] * steps, "vllm_watch_build_info": ["1"] * steps}


def gridded(snapshots: Iterable[ServerSnapshot], step: float) -> SeriesGrid | None:
    """
    Return the series of a server, from its first snapshot on; `None` if there is no snapshot.

    A series that ends is stale at once, as it is after a scrape without it. Where snapshots are few because nothing
    changes, their values stay until the next one.
    """
    gathered = TimeSeriesFile()
    moments = []
    for snapshot in snapshots:
        gathered.add(snapshot)
        moments.append(snapshot.at)
    if not moments:
        return None
    places = [round((at - moments[0]) / step) for at in moments]
    steps = places[-1] + 1
    stays = {
        f"{at:.3f}": (place, _last(place, later, step))
        for at, place, later in zip(moments, places, [*places[1:], steps], strict=True)
    }
    series: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for text in gathered.texts():
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, value, at = line.rsplit(" ", 2)
            _put(series.setdefault(name, []), *stays[at], texts.setdefault(value, value))
    return SeriesGrid(moments[0], steps, {name: padded(values, steps) for name, values in series.items()})


def together(grids: Iterable[SeriesGrid]) -> SeriesGrid:
    """Return the series of several servers, which begin at the same time."""
    every = list(grids)
    steps = max(grid.steps for grid in every)
    series = {name: padded(values, steps) for grid in every for name, values in grid.series.items()}
    return SeriesGrid(every[0].started, steps, series)


def padded(values: list[str], steps: int) -> list[str]:
    """Return values for all steps; a series that ends is stale at the next step."""
    missing = steps - len(values)
    if missing <= 0:
        return values
    is_stale = bool(values) and values[-1] not in {STALE, NOTHING}
    return [*values, *([STALE] if is_stale else []), *[NOTHING] * (missing - is_stale)]


def from_points(points: Mapping[int, str], steps: int) -> list[str]:
    """Return a value for every step, of those that have one."""
    values: list[str] = []
    for place in sorted(points):
        _put(values, place, place, points[place])
    return padded(values, steps)


def _put(values: list[str], place: int, last: int, value: str) -> None:
    """Append a value for the steps from one to another; steps before it that have none are stale."""
    if len(values) == place == last:
        values.append(value)
        return
    if len(values) > place:  # A later moment of the same step.
        del values[place:]
    if len(values) < place:
        values[:] = padded(values, place)
    values.extend([value] * (last - place + 1))


def _last(place: int, later: int, step: float) -> int:
    """Return until which step the values of one hold: to the next snapshot, unless that is too far."""
    return later - 1 if (later - place) * step <= 2 * SPARSE_SECONDS and later > place else place


class Subject(NamedTuple):
    """
    What rules are evaluated over, as one Prometheus would have it, with a value every `step` seconds.

    The first `lead` steps are there for the rules to look back at. `has_daemon` is whether the daemon's own series are
    those of one that was scraped, `engines` the most that a server has. In `gaps` nothing was scraped.
    """

    name: str
    grid: SeriesGrid
    step: float
    lead: int = 0
    has_daemon: bool = False
    engines: int = 1
    gaps: tuple[TimeRange, ...] = ()
    warnings: tuple[str, ...] = ()

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
        """Return the time of a moment in seconds after the first value, in seconds since the epoch."""
        return round(self.grid.started + seconds, 3)

    @property
    def names(self) -> frozenset[tuple[str, str]]:
        """The name of each series, with its source if it has one, and without."""
        names = [(series.partition("{")[0], _SOURCE.search(series)) for series in self.grid.series]
        return frozenset(
            pair for name, source in names for pair in ((name, ""), *([(name, source[1])] if source else []))
        )

    @property
    def in_virtual_time(self) -> dict[str, list[str]]:
        """The series for an evaluation whose time begins at 0: values that are times are moved as it is."""
        return {
            series: _moved(values, self.grid.started) if _MOMENT.match(series) else values
            for series, values in self.grid.series.items()
        }


def _moved(values: list[str], seconds: float) -> list[str]:
    texts: dict[str, str] = {STALE: STALE, NOTHING: NOTHING}
    for text in set(values) - texts.keys():
        value = float(text)
        texts[text] = repr(value - seconds) if value >= _FIRST_MOMENT else text
    return [texts[text] for text in values]
