# SPDX-License-Identifier: Apache-2.0
"""The status page's files, read once from the package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePosixPath
from typing import NamedTuple

from vllm_watch.web.endpoints import Response, compressed


_INDEX = "index.html"
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
    folder = files("vllm_watch.web") / "static"
    return {_path_of(file.name): _asset(file.name, file.read_bytes()) for file in folder.iterdir()}


def _path_of(name: str) -> str:
    return "/" if name == _INDEX else f"/static/{name}"


def _asset(name: str, body: bytes) -> Asset:
    response = Response(body, _CONTENT_TYPES[PurePosixPath(name).suffix])
    return Asset(response, compressed(response))
