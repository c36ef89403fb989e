# SPDX-License-Identifier: Apache-2.0
r"""
Takes the access lines out of many lines at once: they are most of a log, and to look at each of them takes long.

The lines are those outside of records: each ends in ``\n``, none in ``\r\n``.
"""

from __future__ import annotations

import re

from collections import Counter
from typing import NamedTuple

from vllm_watch_parsers.access import ACCESS_START, PEER_END, parse_request
from vllm_watch_parsers.events import AccessRequest
from vllm_watch_parsers.prefilter import REQUEST_RECORD


# A literal start makes a search quick, and so does `[^ ]` instead of `[^ \n]`: that no match has a line end inside is
# checked afterwards, by the number of lines.
_PEER = rb"[^ ]*" + re.escape(PEER_END)
_NAME = rb"\([A-Za-z]\w{0,40} pid=\d{1,10}\) "
_NAMED = re.compile(_NAME + ACCESS_START)
_REQUEST_SIGN = re.compile(rb"\] (?:Received|Added) request ")
PART = 128 * 1024
"""So many bytes are taken at once: they stay in the processor's cache."""

_SAMPLE = 16 * 1024
"""So many bytes show whether the log has records of requests."""

NO_ACCESS = re.compile(
    rb"\n((?!INFO:     [^ \n]* - \"|\([^()\n]{1,80}\) INFO:     [^ \n]* - \"[^\]\n]*(?:\n|\Z))[^\n]+)"
)
"""Lines that may have an event, but for access lines."""

NOT_UVICORNS = re.compile(rb"\n((?!INFO:     |\([^()\n]{1,80}\) INFO:     )[^\n]+)")
"""The same but for all of uvicorn's lines, which is quicker to tell."""

SHORT_TEXT = 1024
"""Of so few bytes each line is looked at."""

_ESCAPE = b"\x1b"


class AccessForm(NamedTuple):
    """
    What is taken out of a text.

    Args:
        pattern: The start of an access line up to its request, or a whole record of a request.
        is_named: Whether access lines start with the name of a process, as in ``(APIServer pid=7) INFO:     ``.
    """

    pattern: re.Pattern[bytes]
    is_named: bool


class Separated(NamedTuple):
    """
    The lines of a text, by kind; records of single requests are dropped.

    Args:
        lines: How many they are.
        by_text: How often each text from the method on came in access lines that start with no name.
        requests: The same of access lines with names, as requests.
        others: All other lines, in order.
    """

    lines: int
    by_text: dict[bytes, int]
    requests: dict[AccessRequest, int]
    others: list[bytes]


def _access(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\n" + name + ACCESS_START + _PEER)


def _access_or_record(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"\n(?:" + name + ACCESS_START + _PEER + rb"|" + REQUEST_RECORD + rb"[^\n]*)")


_FORMS = {
    (False, False): AccessForm(_access(b""), is_named=False),
    (False, True): AccessForm(_access_or_record(b""), is_named=False),
    (True, False): AccessForm(_access(_NAME), is_named=True),
    (True, True): AccessForm(_access_or_record(_NAME), is_named=True),
}


def access_form(text: bytes) -> AccessForm:
    """Return the form of a text's first access line: what has another form is left among the other lines."""
    first = text.find(PEER_END)
    is_named = first >= 0 and _NAMED.match(text, text.rfind(b"\n", 0, first) + 1) is not None
    return _FORMS[is_named, _REQUEST_SIGN.search(text, 0, _SAMPLE) is not None]


def separate(text: bytes, start: int, end: int, form: AccessForm) -> Separated | None:
    r"""
    Separate the access lines of a part of a text from its other lines.

    Args:
        text: Many lines.
        start: Where the part starts: after a ``\n``.
        end: Where it ends: after a ``\n``.
        form: What is taken out.

    Returns:
        The lines, or `None` where only a look at each line shows which is which.
    """
    first, *pieces = form.pattern.split(memoryview(text)[start - 1 : end - 1])
    others = first.split(b"\n")[1:]
    counts = Counter(pieces)
    with_others = [piece for piece in counts if b"\n" in piece]
    if sum(counts[piece] for piece in with_others) > len(with_others):  # The same more than once: in their order.
        with_others = [piece for piece in pieces if b"\n" in piece]
    for piece in with_others:
        others += piece.split(b"\n")[1:]
    lines = text.count(b"\n", start, end)
    if len(pieces) + len(others) != lines:
        return None
    by_text: dict[bytes, int] = {}
    for piece, count in counts.items():
        request = piece.partition(b"\n")[0]
        if request:
            by_text[request] = by_text.get(request, 0) + count
    return _as_requests(lines, by_text, others) if form.is_named else Separated(lines, by_text, {}, others)


def _as_requests(lines: int, by_text: dict[bytes, int], others: list[bytes]) -> Separated | None:
    """Return lines that start with a name; `None` if one has colours or is no request: it may be anything."""
    requests: dict[AccessRequest, int] = {}
    for text, count in by_text.items():
        request = None if _ESCAPE in text else parse_request(text)
        if request is None:
            return None
        requests[request] = requests.get(request, 0) + count
    return Separated(lines, {}, requests, others)
