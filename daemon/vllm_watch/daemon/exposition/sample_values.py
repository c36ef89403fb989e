# SPDX-License-Identifier: Apache-2.0
"""What a sample is, and samples that change together."""

from __future__ import annotations

import math

from collections.abc import Callable, Iterator
from typing import NamedTuple

from vllm_watch_parsers.scrape import Histogram


class PlainSample(NamedTuple):
    """
    One sample of a gauge or counter.

    Args:
        name: The series' name without prefix.
        labels: Label values, in the order of the series' labels.
        value: The value.
        at: When it was so, in seconds since the epoch.
    """

    name: str
    labels: tuple[str, ...]
    value: float
    at: float


class HistogramSample(NamedTuple):
    """One histogram."""

    name: str
    labels: tuple[str, ...]
    histogram: Histogram
    at: float


AnySample = PlainSample | HistogramSample


def bound_text(bound: float) -> str:
    """Return a bucket's bound as Prometheus writes it."""
    return "+Inf" if math.isinf(bound) else repr(bound)


class SamplePart(NamedTuple):
    """
    Samples that change together.

    Args:
        name: Which part it is of which server, and of which engine.
        depends_on: What its samples depend on: where that is equal, they are, but for times that are the snapshot's.
        samples: Returns them.
    """

    name: tuple[object, ...]
    depends_on: object
    samples: Callable[[], Iterator[AnySample]]
