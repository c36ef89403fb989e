# SPDX-License-Identifier: Apache-2.0
"""The status page's files: read once from the package, and those with lists and limits of the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import msgspec

from vllm_watch.daemon.catalog import gpu_texts
from vllm_watch.daemon.catalog.first_steps import first_steps
from vllm_watch.daemon.catalog.limits import SERVERS_WITH_HOUR
from vllm_watch.daemon.catalog.severities import SEVERITIES
from vllm_watch.daemon.catalog.states import BEST_TO_WORST, STATES
from vllm_watch.daemon.web.endpoints import Response, compressed


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


class Asset(NamedTuple):
    """A file's response, plain and compressed."""

    plain: Response
    gzipped: Response


def load_assets() -> Mapping[str, Asset]:
    """Return the files by the path that they are served at; the HTML is at ``/``."""
    folder = files("vllm_watch.daemon.web") / "static"
    read = {_path_of(file.name): _asset(file.name, file.read_bytes()) for file in folder.iterdir()}
    made = {
        "gpu_texts.js": _module({name: getattr(gpu_texts, name) for name in _GPU_TEXTS}),
        "limits.js": _module({"SERVERS_WITH_HOUR": SERVERS_WITH_HOUR}),
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
    """Return a module of JavaScript with constants."""
    encode = msgspec.json.encode
    return b"".join(b"export const %b = %b;\n" % (name.encode(), encode(value)) for name, value in exported.items())


def _path_of(name: str) -> str:
    return "/" if name == _INDEX else f"/static/{name}"


def _asset(name: str, body: bytes) -> Asset:
    response = Response(body, _CONTENT_TYPES[PurePosixPath(name).suffix])
    return Asset(response, compressed(response))
