# SPDX-License-Identifier: Apache-2.0
"""
Samples in Prometheus' text format and in OpenMetrics, byte for byte as prometheus_client's encoders write them.

Those check each label of each sample letter by letter; with 200 servers they take most of a second. Here all names are
known not to need escaping, and labels that many samples share are written once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

from vllm_watch.catalog.series import PREFIX, SERIES
from vllm_watch.exposition.samples import AnySample, HistogramSample, bound_text


BUCKET_LABEL = "le"

SeriesTexts = Mapping[str, str]
"""The lines of some samples, by the name of their series without the prefix."""

_OF_ENGINE = ("server", "model_name", "engine")
"""The labels of an engine: most samples have them, and each histogram has no other."""

_go_text: Callable[[float], str] = floatToGoString
_AS_PYTHON = 1e6
"""Numbers below this are written as Python does; from here on Go has exponents."""


class ConfiguredLabels(NamedTuple):
    """The names of the labels that are configured for any server, in their order, and each server's own, by name."""

    names: tuple[str, ...] = ()
    of_server: Mapping[str, Mapping[str, str]] = {}


NONE_CONFIGURED = ConfiguredLabels()


def configured_labels(of_server: Mapping[str, Mapping[str, str]]) -> ConfiguredLabels:
    """Return the labels of all servers; one that lacks a label of another has it with an empty value."""
    return ConfiguredLabels(tuple(sorted({name for labels in of_server.values() for name in labels})), of_server)


def series_texts(
    samples: Iterable[AnySample], configured: ConfiguredLabels = NONE_CONFIGURED, *, with_times: bool = False
) -> SeriesTexts:
    """
    Write samples: no line depends on the samples of another call.

    Args:
        samples: The samples, of one server or of several.
        configured: The labels that samples of a server have besides those of their series.
        with_times: Whether each sample has the time of its value, in milliseconds: for values that are not current.

    Raises:
        TypeError: A sample has other labels than its series, a label is no text, or a value no number.
    """
    lines: dict[str, list[str]] = defaultdict(list)
    labels = _LabelTexts(configured)
    for sample in samples:
        time = f" {int(sample.at * 1000):d}" if with_times else ""
        if isinstance(sample, HistogramSample):
            lines[sample.name] += _histogram_lines(sample, labels, time)
        else:
            text = labels.of(sample.name, sample.labels)
            lines[sample.name].append(f"{PREFIX}{sample.name}{text} {_value_text(sample.value)}{time}\n")
    return {name: "".join(of_series) for name, of_series in lines.items()}


def prometheus_text(
    texts: Iterable[SeriesTexts], others: Iterable[Metric] = (), *, for_openmetrics: bool = False
) -> Iterator[bytes]:
    """
    Yield the families of a body in Prometheus' text format, or in OpenMetrics.

    Args:
        texts: What `series_texts` has made of the samples.
        others: Families of prometheus_client's, such as those of the process.
        for_openmetrics: Whether to write OpenMetrics.
    """
    parts = list(texts)
    for name, series in SERIES.items():
        found = [part[name] for part in parts if name in part]
        if found:
            head = _head(PREFIX + series.family, series.type, series.help, for_openmetrics=for_openmetrics)
            # A lone surrogate costs a letter, not the scrape.
            yield "".join([head, *found]).encode(errors="replace")
    for metric in others:
        head = _head(metric.name, metric.type, metric.documentation, for_openmetrics=for_openmetrics)
        lines = [
            f"{sample.name}{label_text(sorted(sample.labels.items()))} {_value_text(sample.value)}\n"
            for sample in metric.samples
        ]
        yield "".join([head, *lines]).encode(errors="replace")
    if for_openmetrics:
        yield b"# EOF\n"


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """Return label names and values in braces, in the order given; without labels nothing."""
    inner = ",".join([f'{name}="{escaped(value)}"' for name, value in labels])
    return f"{{{inner}}}" if inner else ""


def escaped(text: str) -> str:
    """Return a label's value, or in OpenMetrics a help text, as it is written between quotes."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class _Template(NamedTuple):
    """Labels in braces with places for the values behind the shared ones, and the order in which these values come."""

    text: str
    order: tuple[int, ...]


class _LabelTexts:
    """The labels of samples as they are written, in the order of their names; what many share is written once."""

    def __init__(self, configured: ConfiguredLabels) -> None:
        self._configured = configured
        self._templates: dict[tuple[tuple[str, ...], tuple[str, ...]], _Template] = {}
        """By the names of the labels, and the values that are shared."""
        self._around_bounds: dict[tuple[str, ...], tuple[str, str]] = {}

    def of(self, name: str, values: tuple[str, ...]) -> str:
        """Return the labels of a sample of the series `name`."""
        names = SERIES[name].labels
        count = len(_OF_ENGINE) if names[1:3] == _OF_ENGINE[1:] else 1
        template = self._templates.get((names, values[:count]))
        if template is None:
            template = self._templates[names, values[:count]] = self._template(names, values[:count])
        own = values[count:]
        joined = "".join(own)
        if '"' in joined or "\\" in joined or "\n" in joined:
            own = tuple(map(escaped, own))
        return template.text % (own if len(own) < 2 else tuple([own[place] for place in template.order]))

    def around_bound(self, values: tuple[str, ...]) -> tuple[str, str]:
        """Return the labels of the buckets of an engine's histograms, as they are before and behind the bound."""
        known = self._around_bounds.get(values)
        if known is None:
            pairs = sorted([*zip(_OF_ENGINE, values, strict=True), *self._configured_pairs(values[0])])
            before = "".join([f'{label}="{escaped(value)}",' for label, value in pairs if label < BUCKET_LABEL])
            behind = "".join([f',{label}="{escaped(value)}"' for label, value in pairs if label > BUCKET_LABEL])
            known = self._around_bounds[values] = f'{{{before}{BUCKET_LABEL}="', f'"{behind}}}'
        return known

    def _template(self, names: tuple[str, ...], shared: tuple[str, ...]) -> _Template:
        own = names[len(shared) :]
        pairs = list(zip(names, shared, strict=False))
        if names[:1] == _OF_ENGINE[:1]:
            pairs += self._configured_pairs(shared[0])
        written = [(name, escaped(value).replace("%", "%%")) for name, value in pairs]
        inner = ",".join([f'{name}="{value}"' for name, value in sorted([*written, *((name, "%s") for name in own)])])
        return _Template(f"{{{inner}}}" if inner else "", tuple(sorted(range(len(own)), key=own.__getitem__)))

    def _configured_pairs(self, server: str) -> list[tuple[str, str]]:
        own = self._configured.of_server.get(server, {})
        return [(name, own.get(name, "")) for name in self._configured.names]


def _histogram_lines(sample: HistogramSample, labels: _LabelTexts, time: str) -> list[str]:
    """Return the lines of a histogram: its buckets, its count and its sum."""
    name, histogram = PREFIX + sample.name, sample.histogram
    before, behind = labels.around_bound(sample.labels)
    text = labels.of(sample.name, sample.labels)
    counts = histogram.counts  # Cumulative: none is greater than the last one.
    written = list(map(repr, map(float, counts)) if counts[-1] < _AS_PYTHON else map(_value_text, counts))
    buckets = zip(_bound_texts(histogram.bounds), written, strict=True)
    return [
        *[f"{name}_bucket{before}{bound}{behind} {count}{time}\n" for bound, count in buckets],
        f"{name}_count{text} {written[-1]}{time}\n",
        f"{name}_sum{text} {_value_text(histogram.sum)}{time}\n",
    ]


@lru_cache(maxsize=256)
def _bound_texts(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(map(bound_text, bounds))


def _value_text(value: float) -> str:
    return repr(float(value)) if -_AS_PYTHON < value < _AS_PYTHON else _go_text(value)


def _head(name: str, metric_type: str, text: str, *, for_openmetrics: bool) -> str:
    if for_openmetrics:
        return f"# HELP {name} {escaped(text)}\n# TYPE {name} {metric_type}\n"
    name = f"{name}_total" if metric_type == "counter" else name
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {metric_type}\n"
