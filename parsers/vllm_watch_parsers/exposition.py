# SPDX-License-Identifier: Apache-2.0
"""
A bounded and quick parser of the Prometheus text format and OpenMetrics.

A general parser keeps every sample with its help and type, and a hostile line with many labels takes it time that grows
with the square of their number. This parser keeps only wanted names and limits the length and number of their lines.
If one of these lines is malformed, there is no result. All other lines are skipped, however many there are.
"""

from __future__ import annotations

import re

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from vllm_watch_parsers.lora import LoraRequests, LoraScan


MAX_LINE = 16 * 1024
"""No wanted line is longer: the longest names and labels take a fraction of this."""

MAX_SAMPLES = 50_000
MAX_WANTED_BYTES = 4 * 1024 * 1024
"""Each engine has some 400 wanted samples of 100 bytes and more."""

MAX_FOREIGN_NAMES = 4096
"""vLLM has some hundreds of names that are not read."""

MAX_LINES = 100_000
"""So many lines are parsed one by one, with empty ones and comments: a real body has a fraction of this."""

BLOCK = 64 * 1024
"""So many bytes are parsed together."""

MAX_FAMILIES = 512
"""A block with more comments about families than this is parsed line by line: that is no real body."""

MAX_LAYOUT = 64 * 1024
"""The lines of longer families are parsed anew each time."""

MAX_KNOWN_BYTES = 1024 * 1024
"""Of the first so many bytes of a body the series are kept."""

MAX_SHARED = 8 * 1024
"""The layout of lines with so many bytes before their values is kept for all servers; of more each has its own."""

MAX_LABELS = 64
MAX_CACHED = 1024
MAX_CACHED_LABELS = 8
"""Longer series, and those with more labels, are not cached: the cache must stay small."""

Problem = Literal["not_metrics", "too_many_samples", "incomplete"]

_NAME = rb"[a-zA-Z_:][a-zA-Z0-9_:]{0,255}"
_FULL_NAME = re.compile(_NAME + rb"\Z")
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
_HELP_MARK = b"# HELP "
_TYPE_MARK = b"# TYPE "
_ESCAPES = {b"\\\\": b"\\", b'\\"': b'"', b"\\n": b"\n"}


class Series(NamedTuple):
    """One series: labels in the order of the line, values unescaped."""

    name: str
    labels: tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One sample: a series and its value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Layout:
    """
    The series of some lines, without their values: the same object for as long as a body has the same series.

    Args:
        heads: What is before the value in each line.
        series: The series of each line.
    """

    __slots__ = ("__weakref__", "heads", "names", "series")

    def __init__(self, heads: tuple[bytes, ...], series: tuple[Series, ...]) -> None:
        self.heads = heads
        self.series = series
        self.names = frozenset(each.name.encode("ascii") for each in series)
        """The names of the series."""


class Group(NamedTuple):
    """Samples that come together: their series, and their values in the same order."""

    layout: Layout
    values: Sequence[float]


class Exposition(NamedTuple):
    """
    The wanted samples of a body, in groups, or why there are none.

    `foreign_names` are the names of other samples, the first of each family. `long_lines` counts their lines over the
    limit, which are skipped. `is_openmetrics` is whether the body has OpenMetrics' mark of the end. `lora` is what the
    newest series of LoRA adapters says.
    """

    groups: tuple[Group, ...]
    problem: Problem | None = None
    foreign_names: frozenset[str] = frozenset()
    long_lines: int = 0
    is_openmetrics: bool = False
    lora: LoraRequests | None = None

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples one by one."""
        return tuple(
            Sample(series.name, series.labels, value)
            for layout, values in self.groups
            for series, value in zip(layout.series, values, strict=True)
        )


class ExpositionParser:
    """
    Takes in a body in pieces of any size, and keeps no more than its wanted samples.

    A server may have tens of thousands of label sets under unwanted names: vLLM has one for every set of LoRA adapters
    that ever ran together. One line of such a family is parsed, and the rest is skipped in blocks.

    From one scrape to the next a server's series rarely change: where they are those of the last body, only the values
    are parsed.

    Args:
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).
        known: The `layouts` of the server's last body.
    """

    def __init__(self, wanted: frozenset[str], known: Mapping[bytes, Layout] = MappingProxyType({})) -> None:
        self._names, self._sorted_names = _tables_of(wanted)
        self._known = known
        self.layouts: dict[bytes, Layout] = {}
        """The layouts of this body's wanted families, by the names in their help."""
        self._groups: list[Group] = []
        self._singles: list[Sample] = []
        """The last samples that came one by one."""
        self._count = 0
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
        last = self._rest.rfind(b"\n")
        if last >= 0 and self._problem is None:
            self._take_lines(self._rest, last)
        if len(self._rest) > last + 1 or self._is_inside_long_line:
            return Exposition((), "incomplete")
        if self._problem is not None:
            return Exposition((), self._problem)
        self._end_singles()
        names = frozenset(name.decode("ascii") for name in self._foreign)
        return Exposition(tuple(self._groups), None, names, self._long_lines, self._is_openmetrics)

    def _feed_block(self, block: bytes) -> None:
        """Take in the families that a block completes, and keep the start of the next; of a long one the last line."""
        if self._is_inside_long_line:
            _, end, block = block.partition(b"\n")
            if not end:
                return
            self._is_inside_long_line = False
        block = self._rest + block
        last = block.rfind(b"\n" + _HELP_MARK) if b"#" in block else -1  # One letter is found in a tenth of the time.
        if last < 0 or len(block) - last > MAX_LAYOUT:
            last = block.rfind(b"\n")
        self._rest = block[last + 1 :]
        if last >= 0 and self._problem is None:
            self._take_lines(block, last)
        if len(self._rest) > MAX_LINE and b"\n" not in self._rest:
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
        first, *families = block[:end].split(b"\n" + _HELP_MARK)
        if len(families) > MAX_FAMILIES:
            first, families = block[:end], []
            self._take_one_by_one(first)
        elif first.startswith(_HELP_MARK):
            families.insert(0, first[len(_HELP_MARK) :])
        elif self._run is not None and _is_run(first, len(first), self._run, is_grouped=False):
            self._long_lines += _count_long(first, len(first))
        else:
            self._take_one_by_one(first)
        for family in families:
            if self._problem is not None:
                return
            if not self._take_family(family):
                self._take_one_by_one(_HELP_MARK + family)

    def _take_family(self, family: bytes) -> bool:
        """
        Take in a family at once; return whether that could be done.

        Args:
            family: Its lines, from the name in its help on.
        """
        about, _, samples = family.partition(b"\n" + _TYPE_MARK)
        name, (_, _, samples) = about.partition(b" ")[0], samples.partition(b"\n")
        if not samples or b"\n" in about or _has_comment(samples):
            return False
        self._has_types = True
        if name in self._known and self._take_known(name, samples):
            return True
        if self._run is not None and _is_run(samples, len(samples), self._run, is_grouped=False):
            self._long_lines += _count_long(samples, len(samples))
            return True
        first, _, _ = samples.partition(b"\n")
        unwanted = self._unwanted_name(first)
        if unwanted is None:
            return self._take_known(name, samples)
        if len(first) > MAX_LINE:
            return False
        self._problem = self._skip_family(unwanted, first)
        if self._run is None or not _is_run(samples, len(samples), self._run, is_grouped=False):
            return False
        self._long_lines += _count_long(samples, len(samples))
        return True

    def _take_known(self, name: bytes, samples: bytes) -> bool:
        """Take in the lines of a wanted family of which only the values are new."""
        lines = samples.split(b"\n")
        parts = [line.rpartition(b" ") for line in lines]
        heads = tuple([head for head, _, _ in parts])
        if len(samples) > MAX_LAYOUT or (len(samples) > MAX_LINE and len(max(lines, key=len)) > MAX_LINE):
            return False
        layout = self._known.get(name)
        if layout is None or layout.heads != heads:
            layout = _layout_of(heads)
            if layout is None or not layout.names <= self._names:
                return False
        values = numbers([written for _, _, written in parts])
        if values is None:
            return False
        self._wanted_bytes += len(samples)
        self._count += len(lines)
        self._lines += len(lines)
        if self._count > MAX_SAMPLES or self._wanted_bytes > MAX_WANTED_BYTES or self._lines > MAX_LINES:
            self._problem = "too_many_samples"
        if self._wanted_bytes <= MAX_KNOWN_BYTES:
            self.layouts[name] = layout
        self._end_singles()
        self._groups.append(Group(layout, values))
        return True

    def _end_singles(self) -> None:
        """Make a group of the samples that came one by one."""
        if self._singles:
            series = tuple(Series(name, labels) for name, labels, _ in self._singles)
            self._groups.append(Group(Layout((), series), [value for _, _, value in self._singles]))
            self._singles = []

    def _take_one_by_one(self, block: bytes) -> None:
        """Take in lines of any kind."""
        lines = block.split(b"\n")
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
        elif self._count >= MAX_SAMPLES or self._wanted_bytes > MAX_WANTED_BYTES:
            self._problem = "too_many_samples"
        else:
            self._count += 1
            self._wanted_bytes += len(line)
            sample = _parse_sample(line)
            if sample is None:
                self._problem = "not_metrics"
            else:
                self._singles.append(sample)

    def _unwanted_name(self, line: bytes) -> bytes | None:
        name, brace, _ = line.partition(b"{")
        if brace and name in self._names:
            return None
        if brace and _is_name(name):
            return name
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
        if not is_long and _parse_sample(line) is None:
            return "not_metrics"
        family = _family_of(name)
        # With the character after it no name is the start of another.
        is_beginning = _is_beginning(family, self._sorted_names)
        self._run = line.lstrip(b" \t")[: len(name) + 1] if is_beginning else family
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
    parser, lora = ExpositionParser(frozenset(wanted)), LoraScan()
    parser.feed(body)
    lora.feed(body)
    found = parser.finish()
    return found if found.problem is not None else found._replace(lora=lora.finish())


def numbers(texts: list[bytes]) -> tuple[float, ...] | None:
    """Return the numbers that some texts are, or `None` if any is none: most are, so all are tried together."""
    # Many are equal, above all the counts of a histogram's last buckets: equal ones are one object.
    different = set(texts)
    try:
        known = None if b"_" in b"".join(different) else {text: float(text) for text in different}
    except ValueError:
        return None
    return None if known is None else tuple([known[text] for text in texts])


_HASH = ord("#")


@lru_cache(maxsize=8)
def _tables_of(wanted: frozenset[str]) -> tuple[frozenset[bytes], list[bytes]]:
    """Return the wanted names, and the same in order."""
    names = frozenset(name.encode("ascii") for name in wanted)
    return names, sorted(names)


def _is_beginning(text: bytes, ordered: list[bytes]) -> bool:
    """Return whether one of some names, which are in order, begins with a text."""
    place = bisect_left(ordered, text)
    return place < len(ordered) and ordered[place].startswith(text)


@lru_cache(maxsize=1024)
def _is_name(text: bytes) -> bool:
    return _FULL_NAME.match(text) is not None


@lru_cache(maxsize=1024)
def _family_of(name: bytes) -> bytes:
    return _SUFFIX.sub(b"", name) or name  # A name may be a suffix and nothing else.


def _has_comment(lines: bytes) -> bool:
    return b"#" in lines and (lines[0] == _HASH or b"\n#" in lines)  # One letter is found in a fifth of the time.


def _is_run(block: bytes, end: int, start: bytes, *, is_grouped: bool) -> bool:
    """
    Return whether every line has the same start.

    In a body with types each family is one group after its own comment: between two lines of one family, and without a
    comment, there is nothing else. So the middle of a very long family is not looked at. All other lines are counted,
    which costs a hundredth of parsing each line, but about as much as receiving them.

    Args:
        block: Some lines.
        end: Where they end.
        start: How the lines of a family start.
        is_grouped: Whether the body has the types of its families.
    """
    if not block.startswith(start):
        return False
    last = block.rfind(b"\n", 0, end) + 1
    if not block.startswith(start, last):
        return False
    if not last or (is_grouped and block.find(b"#", 0, end) < 0):
        return True
    return block.count(b"\n" + start, 0, end) == block.count(b"\n", 0, end)


def _count_long(block: bytes, end: int) -> int:
    """Return how many lines are over the limit; if none is, only every 16 KiB is searched."""
    count = start = 0
    while end - start > MAX_LINE:
        last = block.rfind(b"\n", start, start + MAX_LINE + 1)
        if last < 0:
            last = block.find(b"\n", start, end)
            last = end if last < 0 else last
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


def _find_series(text: bytes) -> Series | None:
    is_small = len(text) <= MAX_CACHED and text.count(b"=") <= MAX_CACHED_LABELS
    return _cached_series(text) if is_small else _parse_series(text)


def _parse_series(text: bytes) -> Series | None:
    """Parse ``name{label="value"}``."""
    found = _SERIES.match(text)
    if found is None:
        return None
    labels = _parse_labels(found[2]) if found[2] else ()
    return None if labels is None else Series(found[1].decode("ascii"), labels)


_cached_series = lru_cache(maxsize=16_384)(_parse_series)  # The same few thousand come with every scrape.


def _layout_of(heads: tuple[bytes, ...]) -> Layout | None:
    """Return the layout of some lines, the same one for the same few series; `None` if a line is malformed."""
    return _shared_layout(heads) if sum(map(len, heads)) <= MAX_SHARED else _make_layout(heads)


def _make_layout(heads: tuple[bytes, ...]) -> Layout | None:
    series = [_find_series(head) if head else None for head in heads]
    known = tuple(each for each in series if each is not None)
    return Layout(heads, known) if len(known) == len(heads) else None


_shared_layout = lru_cache(maxsize=512)(_make_layout)


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
