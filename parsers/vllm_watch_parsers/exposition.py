# SPDX-License-Identifier: Apache-2.0
"""
A bounded and quick parser of the Prometheus text format and OpenMetrics.

A general parser keeps every sample with its help and type, and a hostile line with many labels takes it time that grows
with the square of their number. This parser keeps only wanted names and limits the length and number of their lines.
If one of these lines is malformed, there is no result. Of an unwanted name only the first line is parsed: a server may
have tens of thousands of its label sets.
"""

from __future__ import annotations

import math
import re

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from vllm_watch_parsers.lora import LORA_START, LoraRequests, NewestLora


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


MAX_LINE = 64 * 1024
"""No line that is read is longer: the longest names and labels take a fraction of this."""

MAX_SAMPLES = 50_000
MAX_WANTED_BYTES = 4 * 1024 * 1024
"""Each engine has some 400 wanted samples of 100 bytes and more."""

MAX_FOREIGN_NAMES = 4096
"""vLLM has some hundreds of names that are not read."""

MAX_LINES = 500_000
"""The most lines of a body, with empty ones and comments: ten times those of a server of many LoRA adapters."""

MAX_LABELS = 64
MAX_CACHED = 1024
MAX_CACHED_LABELS = 8
"""Longer lines, and series with more labels, are not cached: the caches must stay small."""

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
_HEAD = re.compile(rb"[ \t]*(" + _NAME + rb")[{ \t]")
_END_MARK = b"# EOF"
_ESCAPES = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}
_NO_LINE = b"\n"
"""No line starts with it."""


class Series(NamedTuple):
    """One series."""

    name: str
    labels: Labels


class Exposition(NamedTuple):
    """
    The wanted samples of a body by name and labels, or why there are none.

    Of a series that is there twice the last value counts. `foreign_names` are the names of other samples, each once.
    `long_lines` counts their lines over the limit, which are skipped. `is_openmetrics` is whether the body
    has OpenMetrics' mark of the end. `lora` is what the newest series of LoRA adapters says.
    """

    series: SeriesByName = MappingProxyType({})
    problem: Problem | None = None
    foreign_names: frozenset[str] = frozenset()
    long_lines: int = 0
    is_openmetrics: bool = False
    lora: LoraRequests | None = None


class ExpositionParser:
    """
    Takes in a body in pieces of any size, and keeps no more than its wanted samples.

    Args:
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._series: defaultdict[str, dict[Labels, float]] = defaultdict(dict)
        self._count = 0
        self._wanted_bytes = 0
        self._foreign: set[str] = set()
        self._skipped = _NO_LINE
        """How the lines of the last unwanted name start, and of no other one."""
        self._long_lines = 0
        self._lines = 0
        self._problem: Problem | None = None
        self._is_openmetrics = False
        self._rest = b""
        """The start of a line whose end has not come."""
        self._is_inside_long_line = False
        self._lora = NewestLora()

    def feed(self, piece: bytes) -> None:
        """Take in the next bytes."""
        if self._is_inside_long_line:
            _, end, piece = piece.partition(b"\n")
            if not end:
                return
            self._is_inside_long_line = False
        *lines, self._rest = (self._rest + piece).split(b"\n")
        self._take_lines(lines)
        if len(self._rest) > MAX_LINE:
            # A comment or an unwanted line is skipped up to its end, which may be far away.
            start, self._rest, self._is_inside_long_line = self._rest, b"", True
            self._take_lines([start])

    def finish(self) -> Exposition:
        """Return the samples; none at all if the body is cut off or any wanted line is malformed."""
        if self._rest or self._is_inside_long_line:
            return Exposition(problem="incomplete")
        if self._problem is not None:
            return Exposition(problem=self._problem)
        return Exposition(
            dict(self._series),
            foreign_names=frozenset(self._foreign),
            long_lines=self._long_lines,
            is_openmetrics=self._is_openmetrics,
            lora=self._lora.finish(),
        )

    def _take_lines(self, lines: Sequence[bytes]) -> None:
        """Take in whole lines, or the start of one that is too long."""
        self._lines += len(lines)
        if self._lines > MAX_LINES:
            self._problem = self._problem or "too_many_samples"
        for line in lines if self._problem is None else ():
            if line.startswith(b"#"):
                self._is_openmetrics = self._is_openmetrics or line.startswith(_END_MARK)
                continue
            if line.startswith(LORA_START):
                self._lora.take(line, is_whole=len(line) <= MAX_LINE)
            if line.startswith(self._skipped):
                self._long_lines += len(line) > MAX_LINE
            elif line and line != b"\r":
                self._take_line(line)
                if self._problem is not None:
                    return

    def _take_line(self, line: bytes) -> None:
        """Keep a wanted sample, skip an unwanted one; a malformed line or one over a limit is a problem."""
        # The quick way for what nearly every line is: a series seen before, a blank, a number.
        head, _, written = line.rpartition(b" ")
        series = _known_series(head) if len(line) <= MAX_CACHED else None
        value = None if series is None else _known_number(written)
        if (series is None or value is None) and len(line) <= MAX_LINE:
            series, value = _parse_sample(line)
        name = _name_of(line) if series is None else series.name
        if name is not None and name not in self._wanted:
            self._skip(name, line, is_sample=series is not None and value is not None)
        elif series is None or value is None:
            self._problem = "not_metrics"
        else:
            self._count += 1
            self._wanted_bytes += len(line)
            if self._count > MAX_SAMPLES or self._wanted_bytes > MAX_WANTED_BYTES:
                self._problem = "too_many_samples"
            self._series[series.name][series.labels] = value

    def _skip(self, name: str, line: bytes, *, is_sample: bool) -> None:
        """Start to skip the lines of an unwanted name, if the first one is a sample."""
        is_long = len(line) > MAX_LINE
        self._long_lines += is_long
        # With the character after it no name is the start of another.
        self._skipped = line.lstrip(b" \t")[: len(name) + 1]
        if name not in self._foreign:
            if len(self._foreign) >= MAX_FOREIGN_NAMES:
                self._problem = "too_many_samples"
            elif not is_long and not is_sample:
                self._problem = "not_metrics"
            self._foreign.add(name)


def parse_exposition(body: bytes, wanted: Collection[str]) -> Exposition:
    r"""
    Parse a whole body.

    Args:
        body: The body, UTF-8. Line ends may be ``\r\n``.
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).

    Returns:
        The samples; none at all if any wanted line is malformed, or the first one of any other name.
    """
    parser = ExpositionParser(frozenset(wanted))
    parser.feed(body)
    return parser.finish()


def _parse_sample(line: bytes) -> tuple[Series | None, float | None]:
    """Parse a sample of any form; of a line that is none, the series or the value is missing."""
    head, _, written = line.rpartition(b" ")
    series, value = _parse_series(head), _number(written)
    if series is None or value is None:
        found = _SAMPLE.match(line.strip(b" \t\r"))
        return (None, None) if found is None else (_parse_series(found[1]), _number(found[2]))
    return series, value


def _name_of(line: bytes) -> str | None:
    """Return the name with which a line begins that is no sample."""
    found = _HEAD.match(line)
    return None if found is None else found[1].decode("ascii")


def _number(text: bytes) -> float | None:
    """Return a value; an underscore between digits is Python's, not the format's."""
    try:
        return None if b"_" in text else float(text)
    except ValueError:
        return None


def _parse_series(text: bytes) -> Series | None:
    """Parse ``name{label="value"}``."""
    found = _SERIES.match(text)
    if found is None:
        return None
    labels = _parse_labels(found[2]) if found[2] else Labels()
    return None if labels is None else Series(found[1].decode("ascii"), labels)


@lru_cache(maxsize=16_384)  # The same few thousand come with every scrape.
def _known_series(text: bytes) -> Series | None:
    """Return a series that has few labels."""
    return _parse_series(text) if text.count(b"=") <= MAX_CACHED_LABELS else None


_known_number = lru_cache(maxsize=4096)(_number)  # Many are equal, above all the counts of a histogram's last buckets.


def _parse_labels(text: bytes) -> Labels | None:
    labels: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        found = _LABEL.match(text, position)
        if found is None or len(labels) >= MAX_LABELS:
            return None
        labels.append((found[1].decode("ascii"), _unescape(found[2]).decode("utf-8", "replace")))
        position = found.end()
    return Labels(labels)


def _unescape(value: bytes) -> bytes:
    if b"\\" not in value:
        return value
    return re.sub(rb"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value)
