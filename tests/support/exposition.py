# SPDX-License-Identifier: Apache-2.0
"""Snapshots as the daemon exports them, and the same samples as prometheus_client's families, to compare with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families as parse_text

from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.samples import HistogramSample, bound_text, for_each_server, server_samples
from vllm_watch.daemon.exposition.text_format import TextWriter


class Collected(NamedTuple):
    """The samples of one moment; `labels` holds the configured labels of each server by its name."""

    samples: list
    labels: Mapping = MappingProxyType({})


def _fail(name, error):
    raise AssertionError(f"{name} cannot be exported") from error


def collected(*snapshots, own=()):
    """Return the samples of some servers, and of the daemon itself."""
    samples = [sample for snapshot in snapshots for sample in server_samples(snapshot)]
    return Collected([*samples, *own], {snapshot.name: snapshot.labels for snapshot in snapshots})


def _text(writer, *, for_openmetrics):
    families = writer.families(for_openmetrics=for_openmetrics)
    return b"".join([*families, *([b"# EOF\n"] if for_openmetrics else [])])


def written(collected, *, for_openmetrics=False, with_times=False):
    """Return samples as they are written, as bytes."""
    writer = TextWriter(collected.labels, with_times=with_times)
    writer.add(collected.samples)
    return _text(writer, for_openmetrics=for_openmetrics)


def exported(*snapshots, own=(), for_openmetrics=False, failed=_fail):
    """Return what a scrape of the daemon gets of some servers, as bytes."""
    writer = TextWriter({snapshot.name: snapshot.labels for snapshot in snapshots})
    for_each_server(snapshots, lambda server, other_gpus: writer.add(server_samples(server, other_gpus)), failed)
    writer.add(own)
    return _text(writer, for_openmetrics=for_openmetrics)


class LibraryFamilies:
    """A collector for prometheus_client's registry with the samples of a moment."""

    def __init__(self, collected, *, with_times=False):
        self._collected = collected
        self._with_times = with_times

    def collect(self):
        """Yield the families."""
        by_name = defaultdict(list)
        for sample in self._collected.samples:
            by_name[sample.name].append(sample)
        for series in (series for name, series in SERIES.items() if name in by_name):
            family = Metric(PREFIX + series.family, series.help, series.type)
            for sample in by_name[series.name]:
                self._add(family, series, sample)
            yield family

    def _add(self, family, series, sample):
        name, at = series.full_name, sample.at if self._with_times else None
        labels = dict(zip(series.labels, sample.labels, strict=True))
        if "server" in labels:
            known = {label for of_server in self._collected.labels.values() for label in of_server}
            own = self._collected.labels.get(labels["server"], {})
            labels.update({label: own.get(label, "") for label in known})
        if not isinstance(sample, HistogramSample):
            family.add_sample(name, labels, sample.value, at)
            return
        histogram = sample.histogram
        for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
            family.add_sample(f"{name}_bucket", {**labels, "le": bound_text(bound)}, count, at)
        family.add_sample(f"{name}_count", labels, histogram.counts[-1], at)
        family.add_sample(f"{name}_sum", labels, histogram.sum, at)


def values_of(text):
    """Return the values of a text by name without prefix and the labels' values, in the order of the labels' names."""
    return {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }
