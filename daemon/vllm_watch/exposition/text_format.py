# SPDX-License-Identifier: Apache-2.0
"""
Samples in Prometheus' text format and in OpenMetrics, byte for byte as prometheus_client's encoders write them.

Those check each label of each sample letter by letter; with 200 servers they take most of a second, in which nothing
else is answered. Here all names are known not to need escaping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from vllm_watch.catalog.series import PREFIX, Series
from vllm_watch.exposition.collector import Collected
from vllm_watch.exposition.samples import AnySample, PlainSample, bound_text, by_series


BUCKET_LABEL = "le"

_value_text: Callable[[float], str] = floatToGoString


def prometheus_text(
    collected: Collected,
    others: Iterable[Metric] = (),
    *,
    for_openmetrics: bool = False,
    with_times: bool = False,
) -> bytes:
    """
    Return series in Prometheus' text format, or in OpenMetrics.

    Args:
        collected: The samples of one moment.
        others: Families of prometheus_client's, such as those of the process.
        for_openmetrics: Whether to write OpenMetrics.
        with_times: Whether each sample has the time of its value, in milliseconds: for values that are not current.
            Only in the text format.
    """
    lines: list[str] = []
    configured = tuple(sorted({name for labels in collected.labels.values() for name in labels}))
    for series, samples in by_series(collected.samples):
        lines.append(_head(PREFIX + series.family, series.type, series.help, for_openmetrics=for_openmetrics))
        labels = _SeriesLabels(series, configured, collected.labels)
        for sample in samples:
            time = f" {int(sample.at * 1000):d}" if with_times else ""
            values = labels.values(sample)
            lines += [
                f"{name}{labels.text(values, bound)} {_value_text(value)}{time}\n"
                for name, bound, value in written_samples(series, sample)
            ]
    for metric in others:
        lines.append(_head(metric.name, metric.type, metric.documentation, for_openmetrics=for_openmetrics))
        lines += [
            f"{sample.name}{label_text(sorted(sample.labels.items()))} {_value_text(sample.value)}\n"
            for sample in metric.samples
        ]
    if for_openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode(errors="replace")  # A lone surrogate costs a letter, not the scrape.


def written_samples(series: Series, sample: AnySample) -> Iterator[tuple[str, str | None, float]]:
    """Yield what is written of a sample, with the bound of a bucket: a histogram's buckets, its count and its sum."""
    name = series.full_name
    if isinstance(sample, PlainSample):
        yield name, None, sample.value
        return
    histogram = sample.histogram
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        yield f"{name}_bucket", bound_text(bound), count
    yield f"{name}_count", None, histogram.counts[-1]
    yield f"{name}_sum", None, histogram.sum


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """Return label names and values in braces, in the order given; without labels nothing."""
    inner = ",".join([f'{name}="{escaped(value)}"' for name, value in labels])
    return f"{{{inner}}}" if inner else ""


def escaped(text: str) -> str:
    """Return a label's value, or in OpenMetrics a help text, as it is written between quotes."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _SeriesLabels:
    """The labels of one series' samples, in the order of their names; those of a server have its configured ones."""

    def __init__(self, series: Series, configured: Sequence[str], of_server: Mapping[str, Mapping[str, str]]) -> None:
        self._configured = configured if series.labels[:1] == ("server",) else ()
        self._of_server = of_server
        names = (*series.labels, *self._configured)
        self._order = _sorted(names)
        self._order_in_bucket = _sorted((*names, BUCKET_LABEL))

    def values(self, sample: AnySample) -> tuple[str, ...]:
        """Return the values of a sample's labels."""
        if not self._configured:
            return sample.labels
        own = self._of_server.get(sample.labels[0], {})
        return (*sample.labels, *(own.get(name, "") for name in self._configured))

    def text(self, values: tuple[str, ...], bound: str | None) -> str:
        """Return the labels as they are written, with the bound of a bucket if it is one."""
        if bound is None:
            return label_text([(name, values[place]) for name, place in self._order])
        values = (*values, bound)
        return label_text([(name, values[place]) for name, place in self._order_in_bucket])


def _sorted(names: Sequence[str]) -> list[tuple[str, int]]:
    return sorted((name, place) for place, name in enumerate(names))


def _head(name: str, metric_type: str, text: str, *, for_openmetrics: bool) -> str:
    if for_openmetrics:
        return f"# HELP {name} {escaped(text)}\n# TYPE {name} {metric_type}\n"
    name = f"{name}_total" if metric_type == "counter" else name
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {metric_type}\n"
