# SPDX-License-Identifier: Apache-2.0
"""
How the lines of samples start, up to the value: made once for all servers and kept from scrape to scrape.

Of 200 servers there are 70,000 lines. From one scrape to the next only values differ, and from one server to the other
also the server's name, if they serve the same model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_watch.daemon.catalog.series import PREFIX, SERIES
from vllm_watch.daemon.exposition.sample_values import bound_text


BUCKET_LABEL = "le"
SERVER_LABEL = "server"

MAX_KEPT = 100_000
"""So many lines' starts are kept, some 25 MiB: 200 servers that all serve another model have fewer."""

SERVERS_SERIES = frozenset(name for name, series in SERIES.items() if series.labels[:1] == (SERVER_LABEL,))
"""The series of servers: all of them have that label first."""


class LineStart(NamedTuple):
    """The start of a line, before the server's name and after it; all is before it where a series has no server."""

    before: str
    after: str


class HistogramStarts(NamedTuple):
    """
    The starts of a histogram's lines: its buckets, its count and its sum.

    `first` is before the server's name in the first line. `nexts` are the end of each line together with the same of
    the line after it. `after` is what is after the server's name in every line.
    """

    first: str
    nexts: tuple[str, ...]
    after: str


class ConfiguredLabels(NamedTuple):
    """The names of the labels that are configured for any server, in their order, and each server's own, by name."""

    names: tuple[str, ...] = ()
    of_server: Mapping[str, Mapping[str, str]] = {}


NONE_CONFIGURED = ConfiguredLabels()


def configured_labels(of_server: Mapping[str, Mapping[str, str]]) -> ConfiguredLabels:
    """Return the labels of all servers; one that lacks a label of another has it with an empty value."""
    return ConfiguredLabels(tuple(sorted({name for labels in of_server.values() for name in labels})), of_server)


class LineStarts:
    """
    Finds how lines start, of servers with the same configured labels.

    Args:
        configured: Those labels.
    """

    def __init__(self, configured: Iterable[tuple[str, str]]) -> None:
        self._configured = tuple(configured)
        self.known: dict[tuple[str, tuple[str, ...]], LineStart] = {}
        """Those that `plain` has made, by its arguments."""
        self._histograms: dict[tuple[str, tuple[str, ...], tuple[float, ...]], HistogramStarts] = {}
        self._kept = 0

    def plain(self, name: str, own: tuple[str, ...]) -> LineStart:
        """
        Make the start of a line of the series `name`, and keep it in `known`.

        Args:
            name: The series' name without prefix.
            own: The values of its labels, without the server.

        Raises:
            TypeError: The series has other labels, or one is no text.
        """
        self._make_room(1)
        before, after = self._labels(name, own)
        made = self.known[name, own] = LineStart(f"{PREFIX}{name}{before}", f"{after} ")
        return made

    def histogram(self, name: str, own: tuple[str, ...], bounds: tuple[float, ...]) -> HistogramStarts:
        """Return the starts of a histogram's lines; the arguments are as for `plain`."""
        known = self._histograms.get((name, own, bounds))
        if known is None:
            self._make_room(len(bounds) + 2)
            known = self._histograms[name, own, bounds] = self._make_histogram(name, own, bounds)
        return known

    def _make_histogram(self, name: str, own: tuple[str, ...], bounds: tuple[float, ...]) -> HistogramStarts:
        before, after = self._labels(name, own)
        buckets = [self._labels(name, own, (BUCKET_LABEL, bound_text(bound)))[0] for bound in bounds]
        starts = [*(f"{PREFIX}{name}_bucket{labels}" for labels in buckets)]
        starts += [f"{PREFIX}{name}_count{before}", f"{PREFIX}{name}_sum{before}"]
        return HistogramStarts(starts[0], (*(f"\n{start}" for start in starts[1:]), "\n"), f"{after} ")

    def _labels(self, name: str, own: tuple[str, ...], *more: tuple[str, str]) -> tuple[str, str]:
        """Return the labels as they are written, in the order of their names: before the server's name and after it."""
        names = SERIES[name].labels
        if name not in SERVERS_SERIES:
            return label_text(sorted(_pairs(names, own))), ""
        pairs = sorted([*_pairs(names[1:], own), *self._configured, *more])
        before = "".join([f'{label}="{escaped(value)}",' for label, value in pairs if label < SERVER_LABEL])
        after = "".join([f',{label}="{escaped(value)}"' for label, value in pairs if label > SERVER_LABEL])
        return f'{{{before}{SERVER_LABEL}="', f'"{after}}}'

    def _make_room(self, lines: int) -> None:
        """Forget everything where there would be too much: most of it is of engines that are gone."""
        self._kept += lines
        if self._kept > MAX_KEPT:
            self.known.clear()
            self._histograms.clear()
            self._kept = lines


def label_text(labels: Iterable[tuple[str, str]]) -> str:
    """Return label names and values in braces, in the order given; without labels nothing."""
    inner = ",".join([f'{name}="{escaped(value)}"' for name, value in labels])
    return f"{{{inner}}}" if inner else ""


def escaped(text: str) -> str:
    """Return a label's value, or in OpenMetrics a help text, as it is written between quotes."""
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _pairs(names: tuple[str, ...], values: tuple[str, ...]) -> list[tuple[str, str]]:
    if len(names) != len(values) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"labels {names} with the values {values}")
    return list(zip(names, values, strict=True))
