# SPDX-License-Identifier: Apache-2.0
"""
A bounded and quick parser of the Prometheus text format and OpenMetrics.

A general parser keeps every sample with its help and type, and a hostile line with many labels takes it time that grows
with the square of their number. This parser keeps only wanted names and limits the length and number of their lines.
If one of these lines is malformed, there is no result. All other lines are skipped, however many there are.
"""

from __future__ import annotations

import re

from collections.abc import Collection
from functools import lru_cache
from typing import Literal, NamedTuple


MAX_LINE = 16 * 1024
"""No wanted line is longer: the longest names and labels take a fraction of this."""

MAX_SAMPLES = 50_000
MAX_WANTED_BYTES = 4 * 1024 * 1024
"""Each engine has some 400 wanted samples of 100 bytes and more."""

MAX_FOREIGN_NAMES = 4096
"""vLLM has some hundreds of names that are not read."""

MAX_LINES = 1_000_000
"""So many lines are parsed one by one, with empty ones and comments: a real body has a fraction of this."""

BLOCK = 64 * 1024
"""So many bytes are parsed together."""

MAX_LABELS = 64
MAX_CACHED = 1024
MAX_CACHED_LABELS = 8
"""Longer series, and those with more labels, are not cached: the cache must stay small."""

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
_SUFFIX = re.compile(rb"_(?:bucket|sum|count|total|created|info|max)$")
_END_MARK = b"# EOF"
_TYPE_MARK = b"# TYPE "
_ESCAPES = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}


class Sample(NamedTuple):
    """One sample: labels in the order of the line, values unescaped."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Exposition(NamedTuple):
    """
    The wanted samples of a body, or why there are none.

    `foreign_names` are the names of other samples, the first of each family. `long_lines` counts their lines over the
    limit, which are skipped. `is_openmetrics` is whether the body has OpenMetrics' mark of the end.
    """

    samples: tuple[Sample, ...]
    problem: Problem | None = None
    foreign_names: frozenset[str] = frozenset()
    long_lines: int = 0
    is_openmetrics: bool = False


class _Series(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]


class ExpositionParser:
    """
    Takes in a body in pieces of any size, and keeps no more than its wanted samples.

    A server may have tens of thousands of label sets under unwanted names: vLLM has one for every set of LoRA adapters
    that ever ran together. One line of such a family is parsed, and the rest is skipped in blocks.

    Args:
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._names, self._beginnings = _tables_of(wanted)
        self._samples: list[Sample] = []
        self._wanted_bytes = 0
        self._foreign: dict[bytes, bytes] = {}
        """Unwanted names, and how the lines of their families start."""
        self._long_lines = 0
        self._lines = 0
        self._problem: Problem | None = None
        self._is_openmetrics = False
        self._has_types = False
        self._rest = b""
        self._is_inside_long_line = False
        self._run: bytes | None = None
        """How the lines of the last unwanted family start, and none of a wanted one."""

    def feed(self, piece: bytes) -> None:
        """Take in the next bytes."""
        if len(piece) <= BLOCK:
            self._feed_block(piece)
            return
        for start in range(0, len(piece), BLOCK):
            self._feed_block(piece[start : start + BLOCK])

    def finish(self) -> Exposition:
        """Return the samples; none at all if the body is cut off or any wanted line is malformed."""
        if self._rest or self._is_inside_long_line:
            return Exposition((), "incomplete")
        if self._problem is not None:
            return Exposition((), self._problem)
        names = frozenset(name.decode("ascii") for name in self._foreign)
        return Exposition(tuple(self._samples), None, names, self._long_lines, self._is_openmetrics)

    def _feed_block(self, block: bytes) -> None:
        """Take in the lines that a block completes, and keep the start of the next."""
        if self._is_inside_long_line:
            _, end, block = block.partition(b"\n")
            if not end:
                return
            self._is_inside_long_line = False
        block = self._rest + block
        last = block.rfind(b"\n")
        self._rest = block[last + 1 :]
        if last >= 0 and self._problem is None:
            self._take_lines(block, last)
        if len(self._rest) > MAX_LINE:
            self._start_long_line(self._rest)

    def _start_long_line(self, start: bytes) -> None:
        """Skip a comment, or an unwanted line, up to its end, which may be far away."""
        self._rest, self._is_inside_long_line = b"", True
        if start[0] != _HASH and self._problem is None:
            self._take_line(start)

    def _take_lines(self, block: bytes, end: int) -> None:
        """Take in the lines up to the last line's end."""
        if self._run is not None and _is_run(block, end, self._run, is_grouped=self._has_types):
            self._long_lines += _count_long(block, end)
            return
        lines = block[:end].split(b"\n")
        self._lines += len(lines)
        if self._lines > MAX_LINES:
            self._problem = "too_many_samples"
            return
        for line in lines:
            if self._run is not None and line.startswith(self._run):
                self._long_lines += len(line) > MAX_LINE
            elif not line or line == b"\r":
                continue
            elif line[0] == _HASH:
                self._has_types |= line.startswith(_TYPE_MARK)
                self._is_openmetrics |= line.startswith(_END_MARK)
            else:
                self._take_line(line)
                if self._problem is not None:
                    return

    def _take_line(self, line: bytes) -> None:
        """Keep a wanted sample, skip an unwanted one; a malformed line or one over a limit is a problem."""
        name = self._unwanted_name(line)
        if name is not None:
            self._problem = self._skip_family(name, line)
        elif len(line) > MAX_LINE:
            self._problem = "not_metrics"
        elif len(self._samples) >= MAX_SAMPLES or self._wanted_bytes > MAX_WANTED_BYTES:
            self._problem = "too_many_samples"
        else:
            self._wanted_bytes += len(line)
            sample = _parse_sample(line)
            if sample is None:
                self._problem = "not_metrics"
            else:
                self._samples.append(sample)

    def _unwanted_name(self, line: bytes) -> bytes | None:
        name, brace, _ = line.partition(b"{")
        if brace and name in self._names:
            return None
        head = _HEAD.match(line)
        return None if head is None or head[1] in self._names else head[1]

    def _skip_family(self, name: bytes, line: bytes) -> Problem | None:
        """Start to skip a family, if the first line of its name is a sample."""
        is_long = len(line) > MAX_LINE
        self._long_lines += is_long
        self._run = self._foreign.get(name)
        if self._run is not None:
            return None
        if len(self._foreign) >= MAX_FOREIGN_NAMES:
            return "too_many_samples"
        if not is_long and _parse_in_full(line) is None:
            return "not_metrics"
        family = _SUFFIX.sub(b"", name) or name  # A name may be a suffix and nothing else.
        # With the character after it no name is the start of another.
        self._run = family if family not in self._beginnings else line.lstrip(b" \t")[: len(name) + 1]
        self._foreign[name] = self._run
        return None


def parse_exposition(body: bytes, wanted: Collection[str]) -> Exposition:
    r"""
    Parse a whole body.

    Args:
        body: The body, UTF-8. Line ends may be ``\r\n``.
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).

    Returns:
        The samples in order, later duplicates included; no samples at all if any wanted line is malformed,
        or the first one of any other family.
    """
    parser = ExpositionParser(frozenset(wanted))
    parser.feed(body)
    return parser.finish()


_HASH = ord("#")


@lru_cache(maxsize=8)
def _tables_of(wanted: frozenset[str]) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Return the wanted names, and all their prefixes."""
    names = frozenset(name.encode("ascii") for name in wanted)
    return names, frozenset(name[:end] for name in names for end in range(1, len(name) + 1))


def _is_run(block: bytes, end: int, start: bytes, *, is_grouped: bool) -> bool:
    """
    Return whether every line has the same start.

    In a body with types each family is one group after its own comment: between two lines of one family, and without a
    comment, there is nothing else. In any other body the lines are counted, which costs a hundredth of parsing each
    line, but about as much as receiving them.

    Args:
        block: Some lines.
        end: Where they end.
        start: How the lines of a family start.
        is_grouped: Whether the body has the types of its families.
    """
    if not (block.startswith(start) and block.startswith(start, block.rfind(b"\n", 0, end) + 1)):
        return False
    if is_grouped and block.find(b"#", 0, end) < 0:
        return True
    return block.count(b"\n" + start, 0, end) == block.count(b"\n", 0, end)


def _count_long(block: bytes, end: int) -> int:
    """Return how many lines are over the limit; if none is, only every 16 KiB is searched."""
    count = start = 0
    while end - start > MAX_LINE:
        last = block.rfind(b"\n", start, start + MAX_LINE + 1)
        if last < 0:
            last = block.index(b"\n", start)
            count += 1
        start = last + 1
    return count


def _parse_sample(line: bytes) -> Sample | None:
    # The quick way for what nearly every line is: a series seen before, a blank, a number.
    text, _, written = line.rpartition(b" ")
    series = _find_series(text) if text else None
    value = _number(written) if series else None
    if series is None or value is None:
        return _parse_in_full(line)
    return Sample(series.name, series.labels, value)


def _parse_in_full(line: bytes) -> Sample | None:
    """Parse a sample of any form, without the cache."""
    found = _SAMPLE.match(line.strip(b" \t\r"))
    if found is None:
        return None
    series, value = _parse_series(found[1]), _number(found[2])
    return None if series is None or value is None else Sample(series.name, series.labels, value)


def _number(text: bytes) -> float | None:
    """Return a value; an underscore between digits is Python's, not the format's."""
    try:
        return None if b"_" in text else float(text)
    except ValueError:
        return None


def _find_series(text: bytes) -> _Series | None:
    is_small = len(text) <= MAX_CACHED and text.count(b"=") <= MAX_CACHED_LABELS
    return _cached_series(text) if is_small else _parse_series(text)


def _parse_series(text: bytes) -> _Series | None:
    """Parse ``name{label="value"}``."""
    found = _SERIES.match(text)
    if found is None:
        return None
    labels = _parse_labels(found[2]) if found[2] else ()
    return None if labels is None else _Series(found[1].decode("ascii"), labels)


_cached_series = lru_cache(maxsize=16_384)(_parse_series)  # The same few thousand come with every scrape.


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
