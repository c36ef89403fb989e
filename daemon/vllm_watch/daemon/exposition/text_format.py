# SPDX-License-Identifier: Apache-2.0
"""
Samples in Prometheus' text format and in OpenMetrics, byte for byte as prometheus_client's encoders write them.

Those check each label of each sample letter by letter; with 200 servers they take most of a second. Here all names are
known not to need escaping, and how lines start is kept from scrape to scrape: see `line_starts`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import add

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.line_starts import (
    NONE_CONFIGURED,
    SERVERS_SERIES,
    ConfiguredLabels,
    LineStarts,
    escaped,
    label_text,
)
from vllm_watch.daemon.exposition.sample_values import AnySample, HistogramSample


SeriesTexts = Mapping[str, bytes]
"""The lines of some samples, encoded, by the name of their series without the prefix."""

_go_text: Callable[[float], str] = floatToGoString
_AS_PYTHON = 1e6
"""Numbers below this are written as Python does; from here on Go has exponents."""


class SampleWriter:
    """
    Writes samples: no line depends on the samples of another call.

    Args:
        configured: The labels that samples of a server have besides those of their series.
    """

    def __init__(self, configured: ConfiguredLabels = NONE_CONFIGURED) -> None:
        self.configured = configured
        self._starts: dict[tuple[str, ...], LineStarts] = {}
        """By the values of the configured labels: servers with the same ones share them."""

    def write(self, samples: Iterable[AnySample], *, with_times: bool = False) -> SeriesTexts:
        """
        Return the lines of samples.

        Args:
            samples: The samples, of one server or of several.
            with_times: Whether each sample has the time of its value, in milliseconds: for values that are not current.

        Raises:
            TypeError: A sample has other labels than its series, a label is no text, or a value no number.
        """
        lines: dict[str, list[str]] = defaultdict(list)
        server, text, starts = None, "", self._starts_of(None)
        time = ""
        for sample in samples:
            name, own = sample.name, sample.labels
            of = own[0] if name in SERVERS_SERIES else None
            if of != server:
                server, text, starts = of, "" if of is None else escaped(of), self._starts_of(of)
            if of is not None:
                own = own[1:]
            if with_times:
                time = f" {int(sample.at * 1000):d}"
            if isinstance(sample, HistogramSample):
                lines[name].append(_histogram_text(sample, text, starts, time))
                continue
            value = sample.value
            before, after = starts.known.get((name, own)) or starts.plain(name, own)
            written = repr(float(value)) if -_AS_PYTHON < value < _AS_PYTHON else _go_text(value)
            lines[name].append(f"{before}{text}{after}{written}{time}\n")
        return {name: _encoded("".join(of_series)) for name, of_series in lines.items()}

    def _starts_of(self, server: str | None) -> LineStarts:
        """Return the starts of the lines of a server, or of those without one."""
        own = self.configured.of_server.get(server, {}) if server is not None else {}
        values = tuple([own.get(name, "") for name in self.configured.names])
        known = self._starts.get(values)
        if known is None:
            known = self._starts[values] = LineStarts(zip(self.configured.names, values, strict=True))
        return known


def prometheus_text(
    texts: Iterable[SeriesTexts], others: Iterable[Metric] = (), *, for_openmetrics: bool = False
) -> Iterator[bytes]:
    """
    Yield the families of a body in Prometheus' text format, or in OpenMetrics.

    Args:
        texts: What a `SampleWriter` has made of the samples.
        others: Families of prometheus_client's, such as those of the process.
        for_openmetrics: Whether to write OpenMetrics.
    """
    found: dict[str, list[bytes]] = {name: [] for name in SERIES}
    for part in texts:
        for name, text in part.items():
            found[name].append(text)
    for name, series in SERIES.items():
        if found[name]:
            head = _head(PREFIX + series.family, series.type, series.help, for_openmetrics=for_openmetrics)
            yield b"".join([_encoded(head), *found[name]])
    for metric in others:
        head = _head(metric.name, metric.type, metric.documentation, for_openmetrics=for_openmetrics)
        lines = [
            f"{sample.name}{label_text(sorted(sample.labels.items()))} {_value_text(sample.value)}\n"
            for sample in metric.samples
        ]
        yield _encoded("".join([head, *lines]))
    if for_openmetrics:
        yield b"# EOF\n"


def _histogram_text(sample: HistogramSample, server: str, starts: LineStarts, time: str) -> str:
    """Return the lines of a histogram: its buckets, its count and its sum."""
    histogram = sample.histogram
    first, nexts, after = starts.histogram(sample.name, sample.labels[1:], histogram.bounds)
    counts = histogram.counts  # Cumulative: none is greater than the last one.
    written = list(map(repr, map(float, counts)) if counts[-1] < _AS_PYTHON else map(_value_text, counts))
    written += [written[-1], _value_text(histogram.sum)]
    if time:
        written = [f"{value}{time}" for value in written]
    # In every line the same text is between its start and its value.
    return f"{server}{after}".join([first, *map(add, written, nexts)])


def _encoded(text: str) -> bytes:
    return text.encode(errors="replace")  # A lone surrogate costs a letter, not the scrape.


def _value_text(value: float) -> str:
    return repr(float(value)) if -_AS_PYTHON < value < _AS_PYTHON else _go_text(value)


def _head(name: str, metric_type: str, text: str, *, for_openmetrics: bool) -> str:
    if for_openmetrics:
        return f"# HELP {name} {escaped(text)}\n# TYPE {name} {metric_type}\n"
    name = f"{name}_total" if metric_type == "counter" else name
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {metric_type}\n"
