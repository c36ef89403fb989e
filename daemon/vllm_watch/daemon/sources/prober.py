# SPDX-License-Identifier: Apache-2.0
"""
Asks a server for one token, as a user would, and measures how long that takes.

This module handles servers that hang while they are idle: they listen, /health and /metrics answer, and no value
changes, as in a healthy idle server. Only a request shows the difference.
"""

from __future__ import annotations

import time

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
import requests

from vllm_watch.daemon.catalog.reasons import ProbeReason
from vllm_watch.daemon.config.server_config import ProbeConfig, TlsConfig
from vllm_watch.daemon.sources.http_client import (
    NO_HTTP,
    HttpClient,
    RequestError,
    body_pieces,
    check_answer,
)
from vllm_watch.daemon.state.probe_source import ProbeResult
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.secret_files import read_token


MODELS_PATH = "/v1/models"

MAX_STREAM = 64 * 1024
"""Bytes of the stream that are read for its one token; vLLM sends about 400."""

MAX_MODELS = 1024 * 1024
"""Bytes of the list of models that are read; an adapter takes about 500."""

MAX_MODEL_NAME = 1024

_PIECE = 64 * 1024
_STATUS_REASONS: dict[int, ProbeReason] = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    429: "overloaded",
    503: "overloaded",
}
_DATA = b"data:"
_END = b"[DONE]"
_EVENT_STREAM = "text/event-stream"


class _Choice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None
    object: str | None = None


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class Prober:
    """
    Probes one server, with a key that is read every time; `probe` is for one thread at a time, `close` for any.

    `url` is where completions are; without a model in `config` it is the one that the caller knows, else the first that
    the server lists.
    """

    def __init__(self, url: str, config: ProbeConfig, clock: Clock, tls: TlsConfig | None = None) -> None:
        self._url = url
        self._config = config
        self._clock = clock
        self._client = HttpClient(config.timeout, tls)
        self._is_name_doubted = False

    def probe(self, known_model: str = "") -> ProbeResult:
        """Ask once, for a model that the server's /metrics or log has named or for its first; never raises."""
        headers = self._headers()
        if headers is None:
            return ProbeResult(self._clock.now(), "key_unreadable")
        name = self._config.model or ("" if self._is_name_doubted else known_model)
        try:
            with self._client.within_time():
                seconds = self._ask(headers, name)
        except RequestError as error:
            reason = cast("ProbeReason", "not_a_stream" if error.reason == NO_HTTP else error.reason)
            # The log may know the model by another name than clients do: the next probe asks the server for it.
            self._is_name_doubted = reason == "not_found" and bool(name)
            return ProbeResult(self._clock.now(), reason)
        return ProbeResult(self._clock.now(), "ok", seconds)

    def close(self) -> None:
        """End a probe that is running, and close the connection."""
        self._client.close()

    def _headers(self) -> dict[str, str] | None:
        headers = {"Accept-Encoding": "identity", "Connection": "close"}
        if self._config.api_key_file is None:
            return headers
        key = read_token(self._config.api_key_file)
        return None if key is None else {**headers, "Authorization": f"Bearer {key}"}

    def _ask(self, headers: dict[str, str], name: str) -> float:
        """Ask for one token; return the seconds until it came, without those that finding the model's name took."""
        model = name or self._first_model(headers)
        wanted = {"model": model, "prompt": "Hello", "max_tokens": 1, "temperature": 0, "stream": True}
        headers = {**headers, "Content-Type": "application/json", "Accept": _EVENT_STREAM}
        start = time.monotonic()
        with self._client.send("POST", self._url, headers, msgspec.json.encode(wanted)) as response:
            check_answer(response, _STATUS_REASONS)
            if not response.headers.get("Content-Type", "").strip().lower().startswith(_EVENT_STREAM):
                raise RequestError("not_a_stream")
            return _first_token_at(response) - start

    def _first_model(self, headers: dict[str, str]) -> str:
        """Return the first name that the server lists."""
        url = urlsplit(self._url)._replace(path=MODELS_PATH, query="", fragment="").geturl()
        with self._client.send("GET", url, headers) as response:
            check_answer(response, _STATUS_REASONS)
            body = b"".join(body_pieces(response, _PIECE, MAX_MODELS))
        try:
            models = msgspec.json.decode(body, type=_Models).data
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RequestError("model_unknown") from None
        if not models or not 0 < len(models[0].id) <= MAX_MODEL_NAME:
            raise RequestError("model_unknown")
        return models[0].id


def _first_token_at(response: requests.Response) -> float:
    """Return when the first token came, by the monotonic clock; the stream must also be complete."""
    first: float | None = None
    for data in _events(response):
        if data == _END:
            if first is None:
                raise RequestError("failed")
            return first
        if _has_token(data) and first is None:
            first = time.monotonic()
    raise RequestError("incomplete")


def _events(response: requests.Response) -> Iterator[bytes]:
    line = bytearray()
    # Byte by byte: a longer read would wait for bytes that come after the token.
    for byte in body_pieces(response, 1, MAX_STREAM):
        if byte != b"\n":
            line += byte
            continue
        if line.startswith(_DATA):
            yield bytes(line[len(_DATA) :]).strip()
        line.clear()


def _has_token(data: bytes) -> bool:
    """Tell whether an event has a token; an end-of-sequence token is an empty text with a reason to finish."""
    try:
        event = msgspec.json.decode(data, type=_Event)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise RequestError("not_a_stream") from None
    if event.error is not None or event.object == "error":
        raise RequestError("failed")
    return any(choice.text or choice.finish_reason for choice in event.choices)
