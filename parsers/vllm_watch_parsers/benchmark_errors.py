# SPDX-License-Identifier: Apache-2.0
"""
Why a request failed, in a few words that hold nothing private.

Clients write a reason of HTTP, a server's answer, or a whole traceback, with addresses and with parts of prompts. Of
that only what is known here is kept: a status of HTTP, or the name of an exception.
"""

from __future__ import annotations

import re

from collections import Counter
from collections.abc import Iterable, Mapping
from http import HTTPStatus


NO_REASON = "no reason given"
OTHER = "another reason"

_PHRASES = {status.phrase.lower(): status.value for status in HTTPStatus if status.value >= 400}
_STATUS = re.compile(
    r"(?:\bHTTP(?:/[\d.]+| Error)?|\bstatus(?:[ _]code)?|\bcode|\A)[\"'\s:=(]{0,4}([45]\d\d)\b", re.IGNORECASE
)
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_]\w{0,60}\.){0,8}([A-Z]\w{2,59}(?:Error|Exception|Timeout|Refused|Disconnected))\b", re.MULTILINE
)
_TIMEOUT = re.compile(r"time[d ]?[ -]?out", re.IGNORECASE)
_KNOWN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"connect\w* (?:was )?refused|cannot connect to host", re.IGNORECASE), "connection refused"),
    (
        re.compile(r"connection (?:was )?(?:reset|closed)|server disconnected", re.IGNORECASE),
        "connection closed",
    ),
    (re.compile(r"maximum context length|context window", re.IGNORECASE), "longer than the context"),
    (re.compile(r"never received a valid chunk", re.IGNORECASE), "no token in the answer"),
    (re.compile(r"cancel+ed", re.IGNORECASE), "cancelled"),
)
_MOST = 100_000
"""Of a text so many characters are looked at, from its end: the exception is in its last line."""


def reason_of(text: str) -> str:
    """Return why a request failed: ``HTTP 503``, ``timeout``, the name of an exception, or that it is none of these."""
    shown = text[-_MOST:].strip()
    if not shown:
        return NO_REASON
    status = _STATUS.search(shown)
    code = int(status[1]) if status else _PHRASES.get(shown.lower())
    if code is not None:
        return f"HTTP {code}"
    exceptions = _EXCEPTION.findall(shown)
    if _TIMEOUT.search(exceptions[-1] if exceptions else shown):
        return "timeout"
    known = next((reason for form, reason in _KNOWN if form.search(shown)), None)
    return known or (exceptions[-1] if exceptions else OTHER)


def counted(texts: Iterable[str]) -> Mapping[str, int]:
    """Return how many failed for each reason, the most frequent first."""
    return dict(Counter(map(reason_of, texts)).most_common())
