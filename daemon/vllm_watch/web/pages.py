# SPDX-License-Identifier: Apache-2.0
"""What the web server serves: answers, and who gives them."""

from __future__ import annotations

import gzip
import re

from collections.abc import Collection
from typing import NamedTuple, Protocol


PLAIN_TEXT = "text/plain; charset=utf-8"

_GZIP_FROM = 1024
"""Smaller bodies are not worth compressing."""
_REFUSED = re.compile(r"q=0(?:\.0{0,3})?")


class Answer(NamedTuple):
    """A page as it goes out: `encoding` is the content coding that `body` already has."""

    body: bytes
    content_type: str
    status: int = 200
    encoding: str | None = None


class Pages(Protocol):
    """The pages that say something about the watched servers; called in the web server's thread."""

    def metrics(self, accept: str, accept_encoding: str) -> Answer:
        """Return the series as the client asks for them, compressed if it asks for that."""

    def snapshot(self, histories: Collection[str] | None = None) -> Answer:
        """Return all that is known now, as JSON, with the last hour of every server, or of those with these names."""

    def targets(self) -> Answer:
        """Return the watched servers as Prometheus finds targets, as JSON."""

    def healthy(self) -> Answer:
        """Return 200 while the daemon's threads are alive, else 503."""

    def ready(self) -> Answer:
        """Return 200 once every source has been looked at, else 503."""


def plain_text(sentence: str, status: int) -> Answer:
    """Return one line of text."""
    return Answer(f"{sentence}\n".encode(), PLAIN_TEXT, status)


def accepts_gzip(accept_encoding: str) -> bool:
    """Tell whether an Accept-Encoding header asks for gzip."""
    return any(_names_gzip(coding) for coding in accept_encoding.lower().split(","))


def _names_gzip(coding: str) -> bool:
    name, _, weight = coding.partition(";")
    return name.strip() == "gzip" and not _REFUSED.fullmatch(weight.strip())


def compressed(answer: Answer) -> Answer:
    """Return the answer compressed, or itself if it is already or is too small to gain."""
    if answer.encoding is not None or len(answer.body) < _GZIP_FROM:
        return answer
    # mtime=0 keeps the time of day out of the body: the same page gives the same bytes.
    return answer._replace(body=gzip.compress(answer.body, compresslevel=6, mtime=0), encoding="gzip")
