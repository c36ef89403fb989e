# SPDX-License-Identifier: Apache-2.0
"""
Samples in Prometheus' text format and in OpenMetrics, byte for byte as prometheus_client's encoders write them.

Those check each label of each sample letter by letter, which takes more than a second for 200 servers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client.utils import floatToGoString

from vllm_watch.daemon.catalog.series import PREFIX, SERIES, Series
from vllm_watch.daemon.exposition.samples import SERVERS_SERIES, AnySample, HistogramSample, bound_text


_number: Callable[[float], str] = floatToGoString


class TextWriter:
    """
    Gathers the lines of samples by family.

    Args:
        configured: The labels of each server besides those of its series. A server that lacks a label of another one
            has it with an empty value.
        with_times: Whether each sample has the time of its value, in milliseconds: for values that are not current.
    """

    def __init__(
        self, configured: Mapping[str, Mapping[str, str]] = MappingProxyType({}), *, with_times: bool = False
    ) -> None:
        self._empty = {name: "" for labels in configured.values() for name in labels}
        self._configured = {server: {**self._empty, **labels} for server, labels in configured.items()}
        self._with_times = with_times
        self._lines: dict[str, list[str]] = {name: [] for name in SERIES}

    def add(self, samples: Iterable[AnySample]) -> None:
        """Take in samples: all of them, or none if one has other labels than its series or one that is not text."""
        lines = [(sample.name, self._written(sample)) for sample in samples]
        for name, text in lines:
            self._lines[name].append(text)

    def families(self, *, for_openmetrics: bool = False) -> Iterator[bytes]:
        """Yield the text of each family in the order of the catalogue; OpenMetrics' end is not among it."""
        for name, lines in self._lines.items():
            if lines:
                text = f"{_head(SERIES[name], for_openmetrics=for_openmetrics)}{''.join(lines)}"
                yield text.encode(errors="replace")  # A lone surrogate costs a letter, not the scrape.

    def _written(self, sample: AnySample) -> str:
        series = SERIES[sample.name]
        pairs = list(zip(series.labels, sample.labels, strict=True))
        if sample.name in SERVERS_SERIES:
            pairs += self._configured.get(sample.labels[0], self._empty).items()
        time = f" {int(sample.at * 1000)}" if self._with_times else ""
        if isinstance(sample, HistogramSample):
            return _histogram_text(series.full_name, sample, sorted(pairs), time)
        return f"{series.full_name}{label_text(sorted(pairs))} {_number(sample.value)}{time}\n"


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """Return label names and values in braces, in the order given; without labels nothing."""
    inner = ",".join([f'{name}="{escaped(value)}"' for name, value in labels])
    return f"{{{inner}}}" if inner else ""


def escaped(text: str) -> str:
    """Return a label's value, or in OpenMetrics a help text, as it is written between quotes."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _histogram_text(name: str, sample: HistogramSample, labels: list[tuple[str, str]], time: str) -> str:
    """Return the lines of a histogram: its buckets, its count and its sum."""
    bounds, counts, total, _ = sample.histogram
    before = "".join([f'{label}="{escaped(value)}",' for label, value in labels if label < "le"])
    after = "".join([f',{label}="{escaped(value)}"' for label, value in labels if label > "le"])
    written = [_number(count) for count in counts]
    lines = [
        f'{name}_bucket{{{before}le="{bound_text(bound)}"{after}}} {count}{time}\n'
        for bound, count in zip(bounds, written, strict=True)
    ]
    whole = label_text(labels)
    lines += [f"{name}_count{whole} {written[-1]}{time}\n", f"{name}_sum{whole} {_number(total)}{time}\n"]
    return "".join(lines)


def _head(series: Series, *, for_openmetrics: bool) -> str:
    name = PREFIX + series.family if for_openmetrics else series.full_name
    text = escaped(series.help) if for_openmetrics else series.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {text}\n# TYPE {name} {series.type}\n"
