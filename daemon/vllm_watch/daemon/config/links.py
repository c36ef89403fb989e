# SPDX-License-Identifier: Apache-2.0
"""
Links from a server to its logs and its GPUs: URLs with placeholders, of which the daemon fills those of the server.

Those of the time are left to who shows the link: a dashboard or the status page. A link ends in a label of a series, so
everybody who can read the series can read it. Grafana decodes the URL of a link before it opens it, as often as twice
(the package sanitize-url), and turns backslashes: what would not be the same afterwards is rejected here.
"""

from __future__ import annotations

import re

from collections.abc import Mapping
from urllib.parse import quote as percent_encoded

from vllm_watch.daemon.config.texts import quote, split_url


PLACES = ("server", "unit", "host")
"""Placeholders that the daemon fills: the server's name, the unit of its log, the host of its /metrics."""

TIMES = (("from", "to"), ("from_seconds", "to_seconds"))
"""Placeholders of the time, since the epoch: in milliseconds, as Grafana's URLs have it, or in seconds."""

MAX_LENGTH = 2000
"""Characters of a link: Grafana Mimir, for one, rejects labels of more than 2048."""

_KNOWN = (*PLACES, *(name for pair in TIMES for name in pair))
_PLACE = re.compile(r"\{([^{}]*)\}")
_CREDENTIAL = re.compile(
    r"[?&#;](token|access_token|auth_token|api_?key|password|passwd|secret)=", re.ASCII | re.IGNORECASE
)
_CHANGED_BY_GRAFANA = re.compile(r"%(?:5c|2[356b]|[01][0-9a-f]|7f)", re.IGNORECASE)
r"""``\ # % & +``, which mean something else once they are decoded, and control characters, which are left out."""


def parse_link(text: str) -> str:
    """
    Return a link as it is written.

    Raises:
        ValueError: It is none. No message repeats the URL, which may contain a secret.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"a link has at most {MAX_LENGTH} characters")
    if "@" in text:
        raise ValueError("a link must not contain a user name or password; write %40 for any other @")
    parts = split_url(text)
    if parts.scheme not in {"http", "https"} and (parts.scheme or parts.netloc or not text.startswith("/")):
        raise ValueError("expected a URL that starts with http:// or https://, or a path of Grafana that starts with /")
    if parts.scheme and not parts.hostname:
        raise ValueError("the URL has no host")
    _check_query(text)
    _check_places(text)
    return text


def _check_query(text: str) -> None:
    credential, changed = _CREDENTIAL.search(text), _CHANGED_BY_GRAFANA.search(text)
    if credential is not None:
        raise ValueError(f'a link must not contain a credential such as "{credential[1]}": it is shown to everybody')
    if changed is not None:
        raise ValueError(
            f"Grafana decodes {changed[0]} before it opens a link, so that the link would say something else; "
            "in LogQL write back quotes (%60) instead of escaped quotes"
        )


def _check_places(text: str) -> None:
    names = _PLACE.findall(text)
    for name in names:
        if name not in _KNOWN:
            known = ", ".join(f"{{{each}}}" for each in _KNOWN)
            raise ValueError(f"unknown placeholder {quote(f'{{{name}}}')}; known are {known}")
    if re.search(r"[{}]", _PLACE.sub("", text)):
        raise ValueError("write %7B and %7D for braces that are not around a placeholder")
    if tuple(name for name in names if name not in PLACES) not in {(), *TIMES}:
        raise ValueError("expected {from} and {to} or {from_seconds} and {to_seconds}, each once and in this order")


def place_values(values: Mapping[str, str | None]) -> Mapping[str, str]:
    """Return a server's values for placeholders, percent-encoded, without what Grafana would change in a link."""
    return {
        name: percent_encoded(value, safe="")
        for name, value in values.items()
        # The brackets around an IPv6 address are for a URL's host and for nothing else.
        if value is not None and "\\" not in value and not (name == "host" and ":" in value)
    }


def fill_link(link: str, places: Mapping[str, str]) -> str | None:
    """Return a link with only the placeholders of the time left, `None` if a server that has these cannot fill it."""
    if any(name in PLACES and name not in places for name in _PLACE.findall(link)):
        return None
    return _PLACE.sub(lambda place: places.get(place[1], place[0]), link)
