# SPDX-License-Identifier: Apache-2.0
"""Uvicorn's lines without the addresses of clients, and without targets that no handler of vLLM has."""

from __future__ import annotations

import re

from vllm_watch.analysis.recorder.private_text import REMOVED, PrivateText
from vllm_watch.daemon.state.http_source import HANDLERS
from vllm_watch_parsers.access import PEER_END


UVICORN_START = re.compile(r"(?:TRACE|DEBUG|INFO|WARNING|ERROR|CRITICAL): +")

_PEER = "0.0.0.0:0"
"""An address as parsers expect one, and of nobody."""

_PATH = f"/{REMOVED}"

_READ_QUERIES = frozenset({"level", "mode", "tags"})
"""What is read of ``/sleep?level=1`` and ``/pause?mode=keep``."""


def redact_access(private: PrivateText, text: str) -> str:
    """Return one of uvicorn's lines without what is private: of the access log, or any other."""
    peer, sign, request = text.partition(PEER_END.decode())
    if not sign:
        return private.clean(text)
    level = UVICORN_START.match(peer)
    start = level[0] if level else ""
    client = peer[len(start) :]
    if client not in {"", "None"} and private.remove("addresses", client) != client:
        client = _PEER
    return start + client + sign + _request(private, request)


def _request(private: PrivateText, request: str) -> str:
    """Return a request line whose target is known; others are what any client thinks up."""
    method, blank, rest = request.partition(" ")
    at = rest.rfind(" HTTP/")
    target, version = (rest, "") if at < 0 else (rest[:at], rest[at:])
    path, query, values = target.partition("?")
    if path not in HANDLERS and path != "/" and private.remove("prompts", path) != path:
        path = _PATH
    if query:
        values = "&".join(_query_value(private, each) for each in values.split("&"))
    return method + blank + path + query + values + version


def _query_value(private: PrivateText, item: str) -> str:
    name, _, value = item.partition("=")
    if name in _READ_QUERIES and value.isalnum():
        return item
    return private.remove("keys", item)
