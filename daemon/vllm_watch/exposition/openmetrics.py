# SPDX-License-Identifier: Apache-2.0
"""OpenMetrics with timestamps, for ``promtool tsdb create-blocks-from openmetrics``."""

from __future__ import annotations

import heapq

from array import array
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import Metric

from vllm_watch.exposition.families import families
from vllm_watch.exposition.samples import server_samples
from vllm_watch.state.snapshot import ServerSnapshot


_Points = tuple["array[float]", "array[float]"]
"""Times and values."""


class _Gathered(NamedTuple):
    """A family's head and its points: by label set (a histogram's without ``le``), then by the series' text."""

    type: str
    help: str
    groups: dict[str, dict[str, _Points]]


class TimeSeriesFile:
    """
    Gathers snapshots of many moments and writes them family by family, as the format demands.

    Every sample gets the snapshot's time, as if Prometheus had scraped the daemon then.
    """

    def __init__(self) -> None:
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
            times, values = group.setdefault(key, (array("d"), array("d")))
            times.append(at)
            values.append(sample.value)
            self.samples += 1


def _group_lines(group: Mapping[str, _Points]) -> Iterator[str]:
    """Yield a group's samples moment by moment: all buckets of one moment stand together."""
    keys = list(group)
    streams = [
        [(at, number, value) for at, value in zip(*points, strict=True)] for number, points in enumerate(group.values())
    ]
    for at, number, value in heapq.merge(*streams):
        yield f"{keys[number]} {value!r} {at:.3f}\n"


def _label_text(labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{name}="{_escape(value, quote=True)}"' for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""


def _escape(text: str, *, quote: bool = False) -> str:
    escaped = text.replace("\\", r"\\").replace("\n", r"\n")
    return escaped.replace('"', r"\"") if quote else escaped
