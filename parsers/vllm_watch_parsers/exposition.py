# SPDX-License-Identifier: Apache-2.0
"""
The Prometheus text format and OpenMetrics, as bounded, quick reading of a server's own page.

A general parser builds families of every sample with help and type, in time that grows with the square of a
hostile line's labels. Here only wanted names are kept, their lines and number are limited, and nothing is given out
unless all of them are well formed. What nobody wants is passed over, however much it is.
"""

from __future__ import annotations

import re

from collections.abc import Collection
from functools import lru_cache
from typing import Literal, NamedTuple


MAX_LINE = 16 * 1024
"""A longer line is none that anybody wants: the longest names and labels take a fraction of it."""

MAX_SAMPLES = 50_000
MAX_WANTED_BYTES = 4 * 1024 * 1024
"""Each engine behind a page has some 400 wanted samples of 100 bytes and more."""

MAX_FOREIGN_NAMES = 4096
"""vLLM has some hundreds of names that are not read."""

MAX_LINES = 1_000_000
"""So many lines are looked at one by one, empty ones and comments too: a page that is read has a fraction of it."""

BLOCK = 64 * 1024
"""So many bytes of a page are looked at together."""

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
_HEAD = re.compile(rb"[ \t]*(" + _NAME + rb")[{ \t]")
_SUFFIX = re.compile(rb"_(?:bucket|sum|count|total|created|info|max)$")
_END_MARK = b"# EOF"
_TYPE_MARK = b"# TYPE "
_ESCAPES = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}


class Sample(NamedTuple):
    """One sample: labels in the page's order, values unescaped."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Exposition(NamedTuple):
    """
    A page's wanted samples, or why there are none.

    `foreign_names` are those of samples that nobody wants, of each family the first one. `long_lines` counts the lines
    of such names that are over the limit: they are passed over. `is_openmetrics` tells whether the page has
    OpenMetrics' mark of the end.
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
    Takes a page in pieces of any size, and keeps no more of it than its wanted samples.

    A server may have label sets by the ten thousand under names that nobody wants, as vLLM has one for every set of
    LoRA adapters that ever ran together. Of such a family one line is looked at, and the rest is passed over by blocks.

    Args:
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._names, self._beginnings = _tables_of(wanted)
        self._samples: list[Sample] = []
        self._wanted_bytes = 0
        self._foreign: dict[bytes, bytes] = {}
        """Names that nobody wants, and what their families' lines begin with."""
        self._long_lines = 0
        self._lines = 0
        self._problem: Problem | None = None
        self._is_openmetrics = False
        self._tells_types = False
        self._rest = b""
        self._is_inside_long_line = False
        self._run: bytes | None = None
        """What the lines of the last unwanted family begin with, and those of no wanted one."""

    def feed(self, piece: bytes) -> None:
        """Take in the next bytes."""
        if len(piece) <= BLOCK:
            self._feed_block(piece)
            return
        for start in range(0, len(piece), BLOCK):
            self._feed_block(piece[start : start + BLOCK])

    def finish(self) -> Exposition:
        """Return what the page has; no samples at all if it is cut off or any wanted line is malformed."""
        if self._rest or self._is_inside_long_line:
            return Exposition((), "incomplete")
        if self._problem is not None:
            return Exposition((), self._problem)
        names = frozenset(name.decode("ascii") for name in self._foreign)
        return Exposition(tuple(self._samples), None, names, self._long_lines, self._is_openmetrics)

    def _feed_block(self, block: bytes) -> None:
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
            self._begin_long_line(self._rest)

    def _begin_long_line(self, beginning: bytes) -> None:
        """Pass over a comment, or a line that nobody wants, up to its end, which may be far away."""
        self._rest, self._is_inside_long_line = b"", True
        if beginning[0] != _HASH and self._problem is None:
            self._take_line(beginning)

    def _take_lines(self, block: bytes, end: int) -> None:
        """Take in the lines up to the last line's end."""
        if self._run is not None and _is_run(block, end, self._run, is_grouped=self._tells_types):
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
                self._tells_types |= line.startswith(_TYPE_MARK)
                self._is_openmetrics |= line.startswith(_END_MARK)
            else:
                self._take_line(line)
                if self._problem is not None:
                    return

    def _take_line(self, line: bytes) -> None:
        name = self._unwanted_name(line)
        if name is not None:
            self._problem = self._pass_over(name, line)
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

    def _pass_over(self, name: bytes, line: bytes) -> Problem | None:
        """Begin to pass over a family, if the first line of its name is a sample."""
        is_long = len(line) > MAX_LINE
        self._long_lines += is_long
        self._run = self._foreign.get(name)
        if self._run is not None:
            return None
        if len(self._foreign) >= MAX_FOREIGN_NAMES:
            return "too_many_samples"
        if not is_long and _parse_anew(line) is None:
            return "not_metrics"
        family = _SUFFIX.sub(b"", name)
        # With the character after it no name is the beginning of another.
        self._run = family if family not in self._beginnings else line.lstrip(b" \t")[: len(name) + 1]
        self._foreign[name] = self._run
        return None


def parse_exposition(body: bytes, wanted: Collection[str]) -> Exposition:
    r"""
    Parse a whole page.

    Args:
        body: The page, UTF-8. Line ends may be ``\r\n``.
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).

    Returns:
        The samples in the page's order, later duplicates included; no samples at all if any wanted line is malformed,
        or the first one of any other family.
    """
    reader = ExpositionParser(frozenset(wanted))
    reader.feed(body)
    return reader.finish()


_HASH = ord("#")


@lru_cache(maxsize=8)
def _tables_of(wanted: frozenset[str]) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Return the wanted names, and all that any of them begins with."""
    names = frozenset(name.encode("ascii") for name in wanted)
    return names, frozenset(name[:end] for name in names for end in range(1, len(name) + 1))


def _is_run(block: bytes, end: int, beginning: bytes, *, is_grouped: bool) -> bool:
    """
    Whether every line begins alike.

    On a page that tells types each family is one group behind its own comment: between two lines of one family, and
    no comment, there is nothing else. On any other page it is told by counting, which costs a hundredth of a look at
    each line, but about as much as receiving them.

    Args:
        block: Some lines.
        end: Where they end.
        beginning: What the lines of a family begin with.
        is_grouped: Whether the page tells its families' types.
    """
    if not (block.startswith(beginning) and block.startswith(beginning, block.rfind(b"\n", 0, end) + 1)):
        return False
    if is_grouped and block.find(b"#", 0, end) < 0:
        return True
    return block.count(b"\n" + beginning, 0, end) == block.count(b"\n", 0, end)


def _count_long(block: bytes, end: int) -> int:
    """Return how many lines are over the limit; where there is none that takes a look at every 16 KiB only."""
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
        return _parse_anew(line)
    return Sample(series.name, series.labels, value)


def _parse_anew(line: bytes) -> Sample | None:
    """Parse a sample of any form, and remember nothing of it."""
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
