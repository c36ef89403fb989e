# SPDX-License-Identifier: Apache-2.0
"""Lines of uvicorn's access log."""

from __future__ import annotations

import re

from vllm_watch_parsers.events import AccessRequest


ACCESS_START = b"INFO:     "
PEER_END = b' - "'
"""The text between the peer, which has no blank, and the request."""

ACCESS_HEAD = re.compile(
    rb"(?:(?:\x1b\[[0-9;]*m)?\([A-Za-z][^()\s]{0,80} pid=\d{1,10}\)(?:\x1b\[[0-9;]*m)? )?"
    rb"(?:\x1b\[32m)?INFO(?:\x1b\[0m)?:     [^ ]*" + re.escape(PEER_END)
)
"""
An access line up to its request: with the name of the process from 0.10.2 to 0.20.2, coloured up to 0.15, without it
before and since. A terminal's lines have colours in the rest, too.
"""

# The target may hold quotes and whole fake log lines, percent-encoded or not: it ends at the last
# ` HTTP/x.y" ` of the line, and holds no blank.
_REQUEST = re.compile(rb"([A-Z]{1,16}) (\S{1,8192}) HTTP/\d(?:\.\d)?\" (\d{3})(?: [A-Za-z' -]{0,60})?$")


def request_text(line: bytes) -> bytes:
    """
    Return the request and status in ``INFO:     127.0.0.1:60214 - "GET /health HTTP/1.1" 200 OK``.

    Peers are IPv4 and IPv6 addresses, ``x:0`` (forwarded), ``None``, or empty (unix socket): without a blank.

    Returns:
        The text from the method on, or nothing if it is no access line.
    """
    head = ACCESS_HEAD.match(line)
    return b"" if head is None else line[head.end() :]


def parse_request(text: bytes) -> AccessRequest | None:
    """Parse ``GET /health HTTP/1.1" 200 OK``."""
    found = _REQUEST.match(text)
    if found is None:
        return None
    target = found[2].decode("utf-8", "backslashreplace")
    return AccessRequest(found[1].decode(), target.partition("?")[0], int(found[3]), target)
