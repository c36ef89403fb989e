# SPDX-License-Identifier: Apache-2.0
"""Snapshots as prometheus_client's families, built anew for every scrape of the daemon."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from vllm_watch.catalog.series import PREFIX, SERIES
from vllm_watch.exposition.samples import AnySample, PlainSample, bound_text, server_samples
from vllm_watch.state.snapshot import ServerSnapshot


LabelsOf = Mapping[str, Mapping[str, str]]


def families(
    samples: Iterable[AnySample],
    *,
    with_times: bool = False,
    extra_labels: LabelsOf | None = None,
) -> Iterator[Metric]:
    """
    Yield families in the table's order, each with its samples.

    Args:
        samples: The samples of one moment.
        with_times: Whether each sample carries the time it is of: for what is not the present.
        extra_labels: The configured labels of each server, by its name.
    """
    by_name: dict[str, list[AnySample]] = defaultdict(list)
    for sample in samples:
        by_name[sample.name].append(sample)
    extra = extra_labels or {}
    names = tuple(sorted({name for labels in extra.values() for name in labels}))
    for series in SERIES.values():
        if series.name in by_name:
            family = Metric(PREFIX + series.family, series.help, series.type)
            is_of_server = series.labels[:1] == ("server",)
            for sample in by_name[series.name]:
                labels = dict(zip(series.labels, sample.labels, strict=True))
                if is_of_server:
                    own = extra.get(sample.labels[0], {})
                    labels.update({name: own.get(name, "") for name in names})
                _add(family, series.full_name, labels, sample, sample.at if with_times else None)
            yield family


def _add(family: Metric, name: str, labels: dict[str, str], sample: AnySample, timestamp: float | None) -> None:
    if isinstance(sample, PlainSample):
        family.add_sample(name, labels, sample.value, timestamp)
        return
    histogram = sample.histogram
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        family.add_sample(f"{name}_bucket", {**labels, "le": bound_text(bound)}, count, timestamp)
    family.add_sample(f"{name}_count", labels, histogram.counts[-1], timestamp)
    family.add_sample(f"{name}_sum", labels, histogram.sum, timestamp)


def _check(sample: AnySample) -> None:
    """Raise `ValueError` if a sample cannot be written: better here, for one server, than in the midst of the page."""
    is_whole = len(sample.labels) == len(SERIES[sample.name].labels) and all(
        type(text) is str for text in sample.labels
    )
    if not is_whole or (isinstance(sample, PlainSample) and not isinstance(sample.value, (int, float))):
        raise ValueError(f"{sample.name} has labels or a value that cannot be shown")


class SnapshotCollector(Collector):
    """
    Shows the present snapshots.

    Args:
        snapshots: Takes the snapshots of all servers; each is taken by itself, so that one that fails hides no other.
        own_samples: The daemon's own samples.
        failed: Told the name of a server whose snapshot cannot be shown, and why.
    """

    def __init__(
        self,
        snapshots: Callable[[], Iterable[ServerSnapshot]],
        own_samples: Callable[[], Iterable[PlainSample]],
        *,
        failed: Callable[[str, Exception], None] = lambda _name, _error: None,
    ) -> None:
        self._snapshots = snapshots
        self._own_samples = own_samples
        self._failed = failed

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        samples: list[AnySample] = []
        labels: dict[str, Mapping[str, str]] = {}
        for snapshot in self._snapshots():
            samples += self._samples_of(snapshot)
            labels[snapshot.name] = snapshot.labels
        samples += self._own_samples()  # Last, so that they count what has failed just now.
        yield from families(samples, extra_labels=labels)

    def _samples_of(self, snapshot: ServerSnapshot) -> list[AnySample]:
        try:
            samples = list(server_samples(snapshot))
            for sample in samples:
                _check(sample)
        except Exception as error:  # noqa: BLE001 - One server must not empty the page; `failed` is told.
            self._failed(snapshot.name, error)
            return []
        else:
            return samples

    def describe(self) -> list[Metric]:
        """Return nothing: the registry need not take a snapshot to know the names."""
        return []


class SnapshotFamilies(Collector):
    """Shows one snapshot, each sample with the time at which it was so."""

    def __init__(self, snapshot: ServerSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        yield from families(server_samples(self._snapshot), with_times=True)
