# SPDX-License-Identifier: Apache-2.0
"""What the web server serves: responses, and the endpoints that make them."""

from __future__ import annotations

import gzip
import re

from collections.abc import Collection
from typing import NamedTuple, Protocol


PLAIN_TEXT = "text/plain; charset=utf-8"

_GZIP_FROM = 1024
"""From how many bytes on compressing a body is worth it."""
_ZERO_WEIGHT = re.compile(r"q=0(?:\.0{0,3})?")


class Response(NamedTuple):
    """A response; `encoding` is the content coding that `body` already has."""

    body: bytes
    content_type: str
    status: int = 200
    encoding: str | None = None


class Endpoints(Protocol):
    """The endpoints about the watched servers; called in the web server's threads."""

    def metrics(self, accept: str, accept_encoding: str) -> Response:
        """Return all series in the format that the client accepts, compressed if it accepts that."""

    def snapshot(self, histories: Collection[str] | None = None) -> Response:
        """
        Return everything that is known now as JSON, with the last hour of every server, or of these.

        A name that is not watched is skipped and is no error: the status page asks for a server that has just been
        removed, and learns that from the response.
        """

    def targets(self) -> Response:
        """Return the watched servers as targets for Prometheus' HTTP service discovery."""

    def healthy(self) -> Response:
        """Return 200 while the daemon's threads are alive, else 503."""

    def ready(self) -> Response:
        """Return 200 once every source has been read, else 503."""


def plain_text(sentence: str, status: int) -> Response:
    """Return one line of text."""
    return Response(f"{sentence}\n".encode(), PLAIN_TEXT, status)


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip."""
    return any(_names_gzip(coding) for coding in accept_encoding.lower().split(","))


def _names_gzip(coding: str) -> bool:
    name, _, weight = coding.partition(";")
    return name.strip() == "gzip" and not _ZERO_WEIGHT.fullmatch(weight.strip())


def compressed(response: Response) -> Response:
    """Return the response compressed, or itself if it is compressed already or too small to gain."""
    if response.encoding is not None or len(response.body) < _GZIP_FROM:
        return response
    # mtime=0 keeps the time of day out of the body: the same content gives the same bytes.
    return response._replace(body=gzip.compress(response.body, compresslevel=6, mtime=0), encoding="gzip")
