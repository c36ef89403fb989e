# SPDX-License-Identifier: Apache-2.0
"""Snapshots of servers as series with a value for every step, as if Prometheus had scraped the daemon then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO, NamedTuple

from vllm_watch.analysis.backtest.evaluation import NOTHING, STALE
from vllm_watch.analysis.replay.replay import SPARSE_SECONDS
from vllm_watch.daemon.exposition.time_series_file import TimeSeriesFile
from vllm_watch.daemon.state.snapshot import ServerSnapshot


class SeriesGrid(NamedTuple):
    """
    Series with a value for every step.

    Args:
        started: The time of the first step, in seconds since the epoch.
        steps: How many there are.
        series: By name and labels: a number, `STALE` or `NOTHING` for each step.
    """

    started: float
    steps: int
    series: dict[str, list[str]]


def of_the_daemon(steps: int) -> dict[str, list[str]]:
    """Return what is there wherever a daemon is scraped."""
    return {'up{job="vllm-watch",instance="127.0.0.1:9468"}': ["1"] * steps, "vllm_watch_build_info": ["1"] * steps}


def gridded(snapshots: Iterable[ServerSnapshot], step: float, spool: IO[bytes] | None = None) -> SeriesGrid | None:
    """
    Return the series of a server, from its first snapshot on; `None` if there is no snapshot.

    A series that ends is stale at once, as it is after a scrape without it. Where snapshots are few because nothing
    changes, their values stay until the next one.

    Args:
        snapshots: In order of time, `step` apart or more.
        step: Seconds.
        spool: An empty file for what memory should not hold.
    """
    gathered = TimeSeriesFile(spool)
    moments = []
    for snapshot in snapshots:
        gathered.add(snapshot)
        moments.append(snapshot.at)
    if not moments:
        return None
    places = [round((at - moments[0]) / step) for at in moments]
    steps = places[-1] + 1
    lasts = {place: _last(place, later, step) for place, later in zip(places, [*places[1:], steps], strict=True)}
    series: dict[str, list[str]] = {}
    texts: dict[str, str] = {}
    for text in gathered.texts():
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            name, value, at = line.rsplit(" ", 2)
            place = round((float(at) - moments[0]) / step)
            _put(series.setdefault(name, []), place, lasts[place], texts.setdefault(value, value))
    return SeriesGrid(moments[0], steps, {name: padded(values, steps) for name, values in series.items()})


def together(grids: Iterable[SeriesGrid]) -> SeriesGrid:
    """Return the series of several servers, which begin at the same time."""
    found = list(grids)
    steps = max(grid.steps for grid in found)
    series = {name: padded(values, steps) for grid in found for name, values in grid.series.items()}
    return SeriesGrid(found[0].started, steps, series)


def padded(values: list[str], steps: int) -> list[str]:
    """Return values for so many steps; a series that ends is stale at the next step."""
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
    if len(values) > place:  # A later moment of the same step.
        del values[place:]
    if len(values) < place:
        values[:] = padded(values, place)
    values.extend([value] * (last - place + 1))


def _last(place: int, later: int, step: float) -> int:
    """Return until which step the values of one hold: to the next snapshot, unless that is too far."""
    return later - 1 if (later - place) * step <= 2 * SPARSE_SECONDS and later > place else place
