# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics with timestamps, for ``promtool tsdb create-blocks-from openmetrics``."""

from __future__ import annotations

import heapq

from array import array
from collections.abc import Iterator, Mapping
from io import SEEK_END, BytesIO
from typing import IO, NamedTuple

from prometheus_client.core import Metric

from vllm_watch.exposition.families import families
from vllm_watch.exposition.samples import server_samples
from vllm_watch.state.snapshot import ServerSnapshot


POINTS_IN_MEMORY = 512
"""So many points of a series are gathered before they go into the spool."""


class _Points:
    """One series' times and values: the newest in memory, those before them in the spool, in pieces of one size."""

    __slots__ = ("_pending", "_pieces", "_spool")

    def __init__(self, spool: IO[bytes]) -> None:
        self._spool = spool
        self._pieces = array("Q")
        self._pending = array("d")

    def append(self, at: float, value: float) -> None:
        self._pending.append(at)
        self._pending.append(value)
        if len(self._pending) >= 2 * POINTS_IN_MEMORY:
            self._pieces.append(self._spool.seek(0, SEEK_END))
            self._spool.write(self._pending.tobytes())
            self._pending = array("d")

    def __iter__(self) -> Iterator[tuple[float, float]]:
        for place in self._pieces:
            self._spool.seek(place)
            piece = array("d", self._spool.read(2 * POINTS_IN_MEMORY * self._pending.itemsize))
            yield from zip(piece[::2], piece[1::2], strict=True)
        yield from zip(self._pending[::2], self._pending[1::2], strict=True)


class _Gathered(NamedTuple):
    """A family's head and its points: by label set (a histogram's without ``le``), then by the series' text."""

    type: str
    help: str
    groups: dict[str, dict[str, _Points]]


class TimeSeriesFile:
    """
    Gathers snapshots of many moments and writes them family by family, as the format demands.

    Every sample gets the snapshot's time, as if Prometheus had scraped the daemon then. Memory grows with the number of
    series, not with the time.

    Args:
        spool: An empty file that can be written and read, for what memory should not hold: 16 bytes a sample.
            Without one memory holds it.
    """

    def __init__(self, spool: IO[bytes] | None = None) -> None:
        self._spool = spool or BytesIO()
        self._families: dict[str, _Gathered] = {}
        self.samples = 0

    def add(self, snapshot: ServerSnapshot) -> None:
        """Take in one moment."""
        labels: Mapping[str, Mapping[str, str]] = {snapshot.name: snapshot.labels}
        for family in families(server_samples(snapshot), extra_labels=labels):
            self._add_family(family, snapshot.at)

    def lines(self) -> Iterator[str]:
        """Yield the file's lines, each with its end."""
        for name, family in self._families.items():
            yield f"# TYPE {name} {family.type}\n"
            yield f"# HELP {name} {_escape(family.help)}\n"
            for group in family.groups.values():
                yield from _group_lines(group)
        yield "# EOF\n"

    def _add_family(self, family: Metric, at: float) -> None:
        gathered = self._families.setdefault(family.name, _Gathered(family.type, family.documentation, {}))
        for sample in family.samples:
            labels = _label_text({name: value for name, value in sample.labels.items() if name != "le"})
            group = gathered.groups.setdefault(labels, {})
            key = sample.name + _label_text(sample.labels)
            if key not in group:
                group[key] = _Points(self._spool)
            group[key].append(at, sample.value)
            self.samples += 1


def _group_lines(group: Mapping[str, _Points]) -> Iterator[str]:
    """Yield a group's samples moment by moment: all buckets of one moment stand together."""
    keys = list(group)
    for at, number, value in heapq.merge(*(_numbered(number, points) for number, points in enumerate(group.values()))):
        yield f"{keys[number]} {value!r} {at:.3f}\n"


def _numbered(number: int, points: _Points) -> Iterator[tuple[float, int, float]]:
    return ((at, number, value) for at, value in points)


def _label_text(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{_escape(value, quote=True)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escape(text: str, *, quote: bool = False) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if quote else escaped
