# SPDX-License-Identifier: Apache-2.0
"""
What is served at which path: the endpoints about the watched servers, and the status page's files.

Nothing that a client sends is sent back: responses are those of the endpoints, the files, and fixed sentences.
"""

from __future__ import annotations

import gzip
import re

from collections.abc import Callable, Collection, Mapping
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs

import msgspec
import structlog

from vllm_watch.daemon.catalog import gpu_texts
from vllm_watch.daemon.catalog.codes import KV_FULL_RATIO, SERVERS_WITH_HOUR, SEVERITIES
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, STATES, first_steps
from vllm_watch.daemon.support.own_health import InternalErrors


ALLOWED_METHODS = ("GET", "HEAD")

LONG_PATHS = frozenset({"/metrics", "/api/v1/snapshot"})
"""Responses about all servers, which take longer to make than others may wait."""

PLAIN_TEXT = "text/plain; charset=utf-8"

_GZIP_FROM = 1024
"""From how many bytes on compressing a body is worth it."""
_QUICKLY = 1
"""How much zlib tries: harder, it takes twice as long for an eighth less."""
_ZERO_WEIGHT = re.compile(r"q=0(?:\.0{0,3})?")

_INDEX = "index.html"
_GPU_TEXTS = (
    "STATE_PROBLEMS", "ACTION_PROBLEMS", "REMAP_FAILED", "NOT_SHOWN", "STATE_WORDS", "ACTION_WORDS",
    "REMAP_FAILED_WORD", "OK_WORD", "NOT_READ_WORD", "THROTTLING_WORDS", "NORMAL_THROTTLING",
)  # fmt: skip
"""What the page says of a GPU."""

_CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

log = structlog.get_logger("vllm_watch.web")


class Response(NamedTuple):
    """A response; `encoding` is the content coding that `body` has, if any."""

    body: bytes
    content_type: str
    status: int = 200
    encoding: str | None = None


Headers = Mapping[str, str]
Route = Callable[[Headers, str], Response]


class Endpoints(Protocol):
    """The endpoints about the watched servers; called in the web server's threads."""

    def metrics(self, accept: str) -> Response:
        """Return all series in the format that the client accepts."""

    def snapshot(self, histories: Collection[str] | None = None) -> Response:
        """Return all as JSON, with the last hour of every server, or of these; what is not watched is skipped."""

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


_NO_CONTENT = Response(b"", PLAIN_TEXT, 204)
_NOT_FOUND = plain_text("Nothing here: see / for the status page and /metrics for Prometheus.", 404)
_METHOD_NOT_ALLOWED = plain_text("Only GET and HEAD are answered.", 405)
_FAILED = plain_text("This request failed: see the log of vllm-watch.", 500)


class Router:
    """
    Finds the response to a request.

    Args:
        endpoints: What to serve besides the status page's files.
        errors: Counts endpoints that fail.
    """

    def __init__(self, endpoints: Endpoints, errors: InternalErrors) -> None:
        self._errors = errors
        self._routes: dict[str, Route] = {
            "/metrics": lambda headers, _: endpoints.metrics(headers.get("Accept", "")),
            "/api/v1/snapshot": lambda _, query: endpoints.snapshot(_histories(query)),
            "/api/v1/targets": lambda *_: endpoints.targets(),
            "/-/healthy": lambda *_: endpoints.healthy(),
            "/-/ready": lambda *_: endpoints.ready(),
            "/favicon.ico": _fixed(_NO_CONTENT),
            **{path: _fixed(asset) for path, asset in load_assets().items()},
        }

    def respond(self, method: str, path: str, query: str, headers: Headers) -> Response:
        """Return the response, whatever the request is and however its endpoint fails."""
        route = self._routes.get(path)
        if route is None:
            return _NOT_FOUND
        if method not in ALLOWED_METHODS:
            return _METHOD_NOT_ALLOWED
        try:
            response = route(headers, query)
        except Exception:  # One request that fails must not end the others.
            log.exception("web.request_failed", path=path)
            self._errors.count("web")
            return _FAILED
        if len(response.body) < _GZIP_FROM or not accepts_gzip(headers.get("Accept-Encoding", "")):
            return response
        # mtime=0 keeps the time of day out of the body: the same content gives the same bytes.
        return response._replace(body=gzip.compress(response.body, _QUICKLY, mtime=0), encoding="gzip")


def _fixed(response: Response) -> Route:
    return lambda *_: response


def _histories(query: str) -> Collection[str] | None:
    """Return the servers whose last hour is asked for, `None` for all."""
    named = parse_qs(query, keep_blank_values=True).get("history")
    return None if named is None else frozenset(named)


def load_assets() -> Mapping[str, Response]:
    """Return the files by the path that they are served at; the HTML is at ``/``."""
    folder = files("vllm_watch.daemon.web") / "static"
    read = {_path_of(file.name): _asset(file.name, file.read_bytes()) for file in folder.iterdir()}
    made = {
        "gpu_texts.js": _module({name: getattr(gpu_texts, name) for name in _GPU_TEXTS}),
        "limits.js": _module({"SERVERS_WITH_HOUR": SERVERS_WITH_HOUR, "KV_FULL_RATIO": KV_FULL_RATIO}),
        "severities.js": _module({"SEVERITIES": SEVERITIES}),
        "states.js": _module(_states()),
    }
    return {**read, **{_path_of(name): _asset(name, body) for name, body in made.items()}}


def _states() -> Mapping[str, Any]:
    """Return the states from worst to best, what they mean, and what to do first."""
    states = list(reversed(BEST_TO_WORST))
    meanings = {state: STATES[state].text for state in states if STATES[state].text}
    return {"STATES": states, "MEANINGS": meanings, "FIRST_STEPS": first_steps()}


def _module(exported: Mapping[str, Any]) -> bytes:
    encode = msgspec.json.encode
    return b"".join(b"export const %b = %b;\n" % (name.encode(), encode(value)) for name, value in exported.items())


def _path_of(name: str) -> str:
    return "/" if name == _INDEX else f"/static/{name}"


def _asset(name: str, body: bytes) -> Response:
    return Response(body, _CONTENT_TYPES[PurePosixPath(name).suffix])
