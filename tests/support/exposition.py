# SPDX-License-Identifier: Apache-2.0
"""Snapshots as the daemon exports them, and the same samples as prometheus_client's families, to compare with."""

from __future__ import annotations

from prometheus_client.core import Metric

from vllm_watch.catalog.series import PREFIX
from vllm_watch.exposition.collector import SnapshotCollector
from vllm_watch.exposition.samples import HistogramSample, bound_text, by_series
from vllm_watch.exposition.text_format import prometheus_text


def _fail(name, error):
    raise AssertionError(f"{name} cannot be exported") from error


def collected(*snapshots, own=()):
    """Return the samples of some servers, and of the daemon itself."""
    return SnapshotCollector(lambda: snapshots, lambda: own, failed=_fail).collect()


def exported(*snapshots, for_openmetrics=False):
    """Return what a scrape of the daemon gets of some servers, as bytes."""
    return prometheus_text(collected(*snapshots), for_openmetrics=for_openmetrics)


class LibraryFamilies:
    """A collector for prometheus_client's registry with the samples of a moment."""

    def __init__(self, collected, *, with_times=False):
        self._collected = collected
        self._with_times = with_times

    def collect(self):
        """Yield the families."""
        for series, samples in by_series(self._collected.samples):
            family = Metric(PREFIX + series.family, series.help, series.type)
            for sample in samples:
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
