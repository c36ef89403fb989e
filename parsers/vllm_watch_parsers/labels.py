# SPDX-License-Identifier: Apache-2.0
"""What the labels of a series say: looked up once for all scrapes, as the same labels come with each."""

from __future__ import annotations

import math

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple


DEFAULT_ENGINE = "0"
"""The engine where there is no such label: 0.5 to 0.8.2, and every V0 engine."""

_PROCESS_LABELS = frozenset({"WorkerId", "ReplicaId", "instance", "exported_instance", "pod", "exported_pod"})
"""Labels that tell one server's series from another's on a page of many."""

Pairs = tuple[tuple[str, str], ...]
"""Names and values of labels."""


class EngineKey(NamedTuple):
    """The labels that distinguish one engine's series from another's."""

    model_name: str
    engine: str


class Labels(tuple[tuple[str, str], ...]):  # noqa: SLOT001  # What was looked up is kept in its attributes.
    """A series' labels in the order of the line, with their values unescaped."""

    @cached_property
    def engine(self) -> EngineKey:
        """The engine that the series is about."""
        said = dict(self)
        return EngineKey(said.get("model_name", ""), said.get("engine", DEFAULT_ENGINE))

    @cached_property
    def process(self) -> Pairs:
        """The labels that tell whose the series is."""
        return tuple([(name, value) for name, value in self if name in _PROCESS_LABELS])

    @cached_property
    def bound(self) -> float:
        """The upper bound of a histogram's bucket; NaN if that is no number."""
        bound = real_number(dict(self).get("le", ""))
        return math.nan if bound is None else bound


SeriesByName = Mapping[str, Mapping[Labels, float]]


def real_number(text: str) -> float | None:
    """Return the number that a label's value is, if it is one."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isnan(value) else value
