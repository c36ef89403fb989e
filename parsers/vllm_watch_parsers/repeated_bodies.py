# SPDX-License-Identifier: Apache-2.0
"""
The bodies of one server, one after the other: what each has in common with the one before it is not parsed again.

A server sends the same some hundred lines in every scrape, half of them comments or samples that are not wanted, and
only values are new. To compare the lines takes a third of the time of parsing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from operator import itemgetter
from weakref import WeakValueDictionary

from vllm_watch_parsers.exposition import Exposition, ExpositionParser, Group, Layout, numbers
from vllm_watch_parsers.lora import LoraScan


MAX_BODY = 1024 * 1024
"""A longer body is parsed in pieces and never held whole: most of it are label sets that come and go."""


class BodyForm:
    """
    A body without its values; the same object for all servers that send the same lines.

    Args:
        comments: The comments and empty lines, with their places among all lines.
        heads: What is before the value in each other line.
        layouts: The layouts of the wanted samples, in order.
        rest: What was found in the body, without its samples.
        families: The layouts of its families, by the names in their help.
    """

    def __init__(
        self,
        comments: tuple[tuple[int, bytes], ...],
        heads: tuple[bytes, ...],
        layouts: tuple[Layout, ...],
        rest: Exposition,
        families: Mapping[bytes, Layout],
    ) -> None:
        self.families = families
        self._size = len(comments) + len(heads)
        places = dict(comments)
        self._comments = _kept_comments(tuple(places.values()))
        self._comments_of = itemgetter(*places)
        self._samples_of = itemgetter(*(place for place in range(self._size) if place not in places))
        wanted = {head: head for layout in layouts for head in layout.heads}
        self._heads = tuple([wanted.get(head, head) for head in heads])  # The layouts' own are not kept twice.
        self._wanted_of = itemgetter(*(place for place, head in enumerate(heads) if head in wanted))
        series = [series for layout in layouts for series in layout.series]
        self._layout = Layout(self._wanted_of(self._heads), tuple(series))
        self._rest = rest

    def read(self, body: bytes) -> Exposition | None:
        """Return a body's samples in one group; `None` if more than values differs, or a value is no number."""
        lines = body.split(b"\n")
        if len(lines) != self._size or self._comments_of(lines) != self._comments:
            return None
        parts = [line.rpartition(b" ") for line in self._samples_of(lines)]
        if tuple([head for head, _, _ in parts]) != self._heads:
            return None
        values = numbers([written for _, _, written in parts])
        return None if values is None else self._rest._replace(groups=(Group(self._layout, self._wanted_of(values)),))


class RepeatedBodies:
    """
    Parses the bodies of one server, each in pieces of any size: `start`, `feed` for each piece, `finish`.

    Args:
        wanted: The sample names to keep (with ``_total``, ``_bucket`` …).
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._wanted = wanted
        self._layouts: Mapping[bytes, Layout] = {}
        self._form: BodyForm | None = None
        self._parser: ExpositionParser | None = None
        """Parses the present body, if that is long."""
        self._body = b""
        """The present body, if it is not."""
        self._lora = LoraScan()

    def start(self) -> None:
        """Begin with the next body, whatever has come of the last one."""
        self._parser, self._body = None, b""
        self._lora = LoraScan()

    def feed(self, piece: bytes) -> None:
        """Take in the next bytes."""
        self._lora.feed(piece)
        if self._parser is None and len(self._body) + len(piece) <= MAX_BODY:
            self._body += piece
        else:
            self._parse(piece)

    def finish(self) -> Exposition:
        """Return the samples; none at all if the body is cut off or any wanted line is malformed."""
        found = self._samples()
        lora = self._lora.finish()
        self.start()
        return found if lora is None or found.problem is not None else found._replace(lora=lora)

    def _samples(self) -> Exposition:
        if self._parser is None and self._form is not None:
            found = self._form.read(self._body)
            if found is not None:
                return found
        body = self._body
        parser = self._parse(b"")
        found = parser.finish()
        self._form = _form_of(body, found, parser.layouts)
        self._layouts = parser.layouts if self._form is None else self._form.families
        return found

    def _parse(self, piece: bytes) -> ExpositionParser:
        if self._parser is None:
            self._parser = ExpositionParser(self._wanted, self._layouts)
            self._parser.feed(self._body)
            self._body = b""
        self._parser.feed(piece)
        return self._parser


def _form_of(body: bytes, found: Exposition, families: Mapping[bytes, Layout]) -> BodyForm | None:
    """
    Return the form of a body, given what was found in it and the layouts of its families.

    It is `None` if the body has none that is likely to come again.
    """
    layouts = tuple([group.layout for group in found.groups])
    if not body or found.problem is not None or found.long_lines or not all(layout.heads for layout in layouts):
        return None
    lines = body.split(b"\n")
    comments = tuple([(place, line) for place, line in enumerate(lines) if line[:1] in {b"#", b""}])
    heads = tuple([line.rpartition(b" ")[0] for line in lines if line[:1] not in {b"#", b""}])
    wanted = [head for layout in layouts for head in layout.heads]
    known = set(wanted)
    if len(comments) < 2 or len(wanted) < 2 or wanted != [head for head in heads if head in known]:
        return None
    key = (comments, heads, layouts, found._replace(groups=()))
    form = _forms.get(key)
    if form is None:
        form = _forms[key] = BodyForm(*key, families)
    return form


_forms: WeakValueDictionary[tuple[object, ...], BodyForm] = WeakValueDictionary()
"""The forms that servers have now: each may hold a megabyte, and a server can send another one each time."""


@lru_cache(maxsize=64)
def _kept_comments(comments: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return comments that are those of other servers as the same object: models differ, and help texts do not."""
    return comments
