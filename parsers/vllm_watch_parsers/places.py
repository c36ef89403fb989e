# SPDX-License-Identifier: Apache-2.0
"""
Where each value of a reading stands in a body: found once for all bodies with the same series.

A server has the same some hundred series in every scrape. To find out anew each time which engine, histogram and bucket
each of them is costs more than to read the values.
"""

from __future__ import annotations

import math

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from vllm_watch_parsers.exposition import Layout
from vllm_watch_parsers.front_ends import OWN_PREFIX, Indexes, Labels, page_of
from vllm_watch_parsers.metric_names import HISTOGRAM_PARTS, HISTOGRAMS
from vllm_watch_parsers.server_families import SERVER_HISTOGRAMS, SERVER_VALUES, ServerSeries


DEFAULT_ENGINE = "0"
"""The engine where there is no such label: 0.5 to 0.8.2, and every V0 engine."""

MAX_KEPT = 4096
"""The places of so many series in several layouts are kept, for bodies that are read once each, as in a recording."""

Key = TypeVar("Key")

_BUCKET, _SUM, _ = HISTOGRAM_PARTS
_OF_SERVER = frozenset([*SERVER_VALUES, *(name + part for name in SERVER_HISTOGRAMS for part in HISTOGRAM_PARTS)])
_OF_HISTOGRAMS = frozenset(
    name + part for names in (*HISTOGRAMS.values(), SERVER_HISTOGRAMS) for name in names for part in HISTOGRAM_PARTS
)


class EngineKey(NamedTuple):
    """The labels that distinguish one engine's series from another's."""

    model_name: str
    engine: str


class HistogramPlace(NamedTuple):
    """
    Where the values of one engine's histogram are.

    Args:
        bounds: The upper bounds of the buckets, ascending and ending in infinity.
        counts: The places of the counts of each bucket, which are added up: several processes have one each.
        sums: The places of the sums, which are added up as well.
        lone_counts: Returns the counts of all buckets, where there is one of each: nearly always.
    """

    bounds: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]
    sums: tuple[int, ...]
    lone_counts: Callable[[Sequence[float]], tuple[float, ...]] | None = None


class Places:
    """
    The places of all wanted series of a body.

    Args:
        layouts: The body's layouts, in the order of its groups.
    """

    def __init__(self, layouts: Iterable[Layout]) -> None:
        found: dict[str, dict[Labels, int]] = defaultdict(dict)
        for index, (name, labels) in enumerate(series for layout in layouts for series in layout.series):
            found[name][labels] = index  # Of a series that is there twice the last value counts.
        page = page_of(found)
        self.page = page._replace(found={})
        """Whose names the series bore, and whether they can be read."""
        self.label_sets: Mapping[str, Sequence[Labels]] = {name: tuple(each) for name, each in page.found.items()}
        """The label sets of each of vLLM's names."""
        self.has_engines = any(name.startswith(OWN_PREFIX) and name not in _OF_SERVER for name in page.found)
        """Whether there is any series of an engine; those of an API server are there without statistics, too."""
        self.histograms = tuple(_histograms(page.found))
        """The histograms by quantity and engine; `None` for one whose buckets or sum are not sound."""
        self.server_histograms = tuple(_server_histograms(page.found))
        """Those of the whole server."""
        self._others = {name: indexes for name, indexes in page.found.items() if name not in _OF_HISTOGRAMS}

    def series(self, values: Sequence[float]) -> dict[str, dict[Labels, float]]:
        """Return the values of all series but those of histograms, by name and labels."""
        return {
            name: {labels: values[index] for labels, index in indexes.items()} for name, indexes in self._others.items()
        }


def places_of(layouts: tuple[Layout, ...]) -> Places:
    """Return the places of the series in these layouts; those of a lone layout are kept for as long as it is used."""
    if len(layouts) == 1:
        places = _of_layout.get(layouts[0])
        if places is None:
            places = _of_layout[layouts[0]] = Places(layouts)
        return places
    is_kept = all(layout.heads for layout in layouts) and sum(len(layout.series) for layout in layouts) <= MAX_KEPT
    return _kept_places(layouts) if is_kept else Places(layouts)


_of_layout: WeakKeyDictionary[Layout, Places] = WeakKeyDictionary()
_kept_places = lru_cache(maxsize=8)(Places)


def engine_key(labels: Labels) -> EngineKey:
    """Return the engine that a series is about."""
    model, engine = "", DEFAULT_ENGINE
    for name, value in labels:
        if name == "model_name":
            model = value
        elif name == "engine":
            engine = value
    return EngineKey(model, engine)


def real_number(text: str) -> float | None:
    """Return the number that a label's value is, if it is one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value


def _histograms(found: Mapping[str, Indexes]) -> Iterator[tuple[str, EngineKey, HistogramPlace | None]]:
    """Yield each quantity's histograms by the newest name that there is."""
    for quantity, names in HISTOGRAMS.items():
        name = next((name for name in names if name + _BUCKET in found), None)
        if name is not None:
            for key, place in _places_of(found, name, engine_key):
                yield quantity, key, place


def _server_histograms(found: Mapping[str, Indexes]) -> Iterator[tuple[ServerSeries, HistogramPlace | None]]:
    """Yield the histograms of the whole server."""
    for name, family in SERVER_HISTOGRAMS.items():
        if name + _BUCKET in found:
            yield from _places_of(found, name, family.series)


def _places_of(
    found: Mapping[str, Indexes], name: str, key_of: Callable[[Labels], Key]
) -> Iterator[tuple[Key, HistogramPlace | None]]:
    """Yield the histograms of one family by what their labels say they are about."""
    sums: dict[Key, list[int]] = defaultdict(list)
    for labels, index in found.get(name + _SUM, {}).items():
        sums[key_of(labels)].append(index)
    for key, by_bound in _buckets(found[name + _BUCKET], key_of).items():
        yield key, _histogram_place(by_bound, sums[key])


def _buckets(indexes: Indexes, key_of: Callable[[Labels], Key]) -> dict[Key, dict[float, list[int]]]:
    """Return the places of the buckets by key and bound; a bound that is no number is NaN."""
    buckets: dict[Key, dict[float, list[int]]] = defaultdict(lambda: defaultdict(list))
    for labels, index in indexes.items():
        bound = real_number(next((text for name, text in labels if name == "le"), ""))
        buckets[key_of(labels)][math.nan if bound is None else bound].append(index)
    return buckets


def _histogram_place(by_bound: Mapping[float, Sequence[int]], sums: Sequence[int]) -> HistogramPlace | None:
    if any(math.isnan(bound) for bound in by_bound) or math.inf not in by_bound or not sums:
        return None
    bounds = tuple(sorted(by_bound))
    if bounds[0] < 0:
        return None
    counts = tuple([tuple(by_bound[bound]) for bound in bounds])
    is_lone = len(counts) > 1 and all(len(indexes) == 1 for indexes in counts)
    lone_counts = itemgetter(*(indexes[0] for indexes in counts)) if is_lone else None
    return HistogramPlace(bounds, counts, tuple(sums), lone_counts)
