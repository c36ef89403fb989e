# SPDX-License-Identifier: Apache-2.0
"""
The Prometheus text format and OpenMetrics, as bounded, quick reading of a server's own page.

A general parser builds families of every sample with help and type, in time that grows with the square of a
hostile line's labels. Here only wanted names are kept, every line and the number of samples are limited, and
nothing is given out unless the whole body is well formed.
"""

from __future__ import annotations

import re

from collections.abc import Collection
from functools import lru_cache
from typing import Literal, NamedTuple


MAX_LINE = 16 * 1024
MAX_SAMPLES = 50_000
"""Each engine behind a page has some 400 samples of 100 bytes and more."""

MAX_LABELS = 64
MAX_REMEMBERED = 1024
MAX_REMEMBERED_LABELS = 8
"""Longer series, and those with more labels, are parsed anew on each page: what is remembered must stay small."""

Problem = Literal["not_metrics", "too_many_samples", "incomplete"]

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]{0,255}"
_SERIES = re.compile(rb"(" + _NAME + rb")(?:\{(.*)\})?$", re.DOTALL)
_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]{0,127})="((?:[^"\\\n]|\\.)*)"(?:,\s*|$)')
# Value, then in the text format a timestamp in milliseconds, in OpenMetrics one in seconds and an exemplar.
_SAMPLE = re.compile(
    rb"(" + _NAME + rb'(?:\{(?:[^"\n{}]|"(?:[^"\\\n]|\\.)*")*\})?)'
    rb"[ \t]+([+-]?(?:\d[\d.eE+-]{0,40}|Inf|NaN|inf|nan|\.\d{1,40}))"
    rb"(?:[ \t]+-?\d[\d.eE+-]{0,30})?(?:[ \t]+#[ \t].*)?$"
)
_ESCAPES = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}


class Sample(NamedTuple):
    """One sample: labels in the page's order, values unescaped."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Exposition(NamedTuple):
    """
    A page's wanted samples, or why there are none.

    `foreign_samples` counts the well-formed samples of names that nobody wants.
    """

    samples: tuple[Sample, ...]
    problem: Problem | None = None
    foreign_samples: int = 0


class _Series(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]


def parse_exposition(body: bytes, wanted: Collection[str]) -> Exposition:
    r"""
    Parse a page.

    Args:
        body: The page, UTF-8. Line ends may be ``\r\n``.
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).

    Returns:
        The samples in the page's order, later duplicates included; no samples at all if any line is malformed.
    """
    if body and not body.endswith(b"\n"):
        return Exposition((), "incomplete")
    samples: list[Sample] = []
    foreign = 0
    for line in body.split(b"\n"):
        if not line or line[0] == _HASH or line == b"\r":
            continue
        if len(line) > MAX_LINE:
            return Exposition((), "not_metrics")
        sample = _parse_sample(line)
        if sample is None:
            return Exposition((), "not_metrics")
        if len(samples) + foreign >= MAX_SAMPLES:
            return Exposition((), "too_many_samples")
        if sample.name in wanted:
            samples.append(sample)
        else:
            foreign += 1
    return Exposition(tuple(samples), None, foreign)


_HASH = ord("#")


def _parse_sample(line: bytes) -> Sample | None:
    # The quick way for what nearly every line is: a series seen before, a blank, a number.
    text, _, written = line.rpartition(b" ")
    series = _find_series(text) if text else None
    value = _number(written) if series else None
    if series is None or value is None:
        found = _SAMPLE.match(line.strip(b" \t\r"))
        if found is None:
            return None
        series, value = _find_series(found[1]), _number(found[2])
    return None if series is None or value is None else Sample(series.name, series.labels, value)


def _number(text: bytes) -> float | None:
    """Return a value; an underscore between digits is Python's, not the format's."""
    try:
        return None if b"_" in text else float(text)
    except ValueError:
        return None


def _find_series(text: bytes) -> _Series | None:
    is_small = len(text) <= MAX_REMEMBERED and text.count(b"=") <= MAX_REMEMBERED_LABELS
    return _remember_series(text) if is_small else _parse_series(text)


def _parse_series(text: bytes) -> _Series | None:
    """Parse ``name{label="value"}``."""
    found = _SERIES.match(text)
    if found is None:
        return None
    labels = _parse_labels(found[2]) if found[2] else ()
    return None if labels is None else _Series(found[1].decode("ascii"), labels)


_remember_series = lru_cache(maxsize=16_384)(_parse_series)  # The same few thousand come with every scrape.


def _parse_labels(text: bytes) -> tuple[tuple[str, str], ...] | None:
    labels: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if found is None or len(labels) >= MAX_LABELS:
            return None
        labels.append((found[1].decode("ascii"), _unescape(found[2]).decode("utf-8", "replace")))
        position = found.end()
    return tuple(labels)


def _unescape(value: bytes) -> bytes:
    if b"\\" not in value:
        return value
    return re.sub(rb"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value)
