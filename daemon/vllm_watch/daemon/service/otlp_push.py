# SPDX-License-Identifier: Apache-2.0
"""One export over OTLP: sent once, within one deadline, and how it ended as a code from a closed list."""

from __future__ import annotations

import gzip

from contextlib import suppress
from typing import Final, NamedTuple, get_args

import requests

from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from vllm_watch.daemon.catalog.codes import OtlpOutcome
from vllm_watch.daemon.config.model import OtlpConfig
from vllm_watch.daemon.sources.http_client import HttpClient, RequestError, body_pieces
from vllm_watch.daemon.sources.scraper import tls_options
from vllm_watch.daemon.support.printable import printable
from vllm_watch.daemon.support.secret_files import read_headers


MAX_WAIT = 3600.0
"""An endpoint that asks for more seconds without an export is asked again after these."""

MAX_ANSWER = 64 * 1024
"""Of a longer answer the status is enough."""

_PIECE = 16 * 1024
_MAX_REMARK = 200
_QUICKLY = 1
"""How much zlib tries."""

_HEADERS: Final = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
_OF_STATUS: dict[int, OtlpOutcome] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "not_found",
    429: "overloaded",
    503: "overloaded",
}

_ASK_TO_WAIT = frozenset[OtlpOutcome]({"overloaded", "server_error"})


class Sent(NamedTuple):
    """
    How an export ended.

    Args:
        outcome: The code.
        wait: For how many seconds the endpoint asks that there be no other one.
        remark: What the endpoint says of values that it rejects or of the request as a whole.
    """

    outcome: OtlpOutcome
    wait: float = 0.0
    remark: str = ""


class OtlpPush:
    """
    Sends requests to the configured endpoint; `close` may be called from any thread.

    Args:
        config: The endpoint.
    """

    def __init__(self, config: OtlpConfig) -> None:
        self._headers_file = config.headers_file
        self._endpoint = config.endpoint
        self._client = HttpClient(config.timeout, tls_options(config.tls))

    def close(self) -> None:
        """End an export that is running."""
        self._client.close()

    def send(self, body: bytes) -> Sent:
        """Send a request; return how that ended."""
        from vllm_watch.daemon.exposition.otlp import partial_success  # noqa: PLC0415 - Imports protobuf.

        headers = {} if self._headers_file is None else read_headers(self._headers_file)
        if headers is None:
            return Sent("headers_unreadable")
        packed = gzip.compress(body, _QUICKLY, mtime=0)
        try:
            with (
                self._client.within_time(),
                self._client.send("POST", self._endpoint, {**headers, **_HEADERS}, packed) as response,
            ):
                answer = _body(response)
        except RequestError as error:
            return Sent(_outcome(error.reason))
        status = response.status_code
        if 200 <= status < 300:
            rejected, remark = partial_success(answer)
            return Sent("partial" if rejected else "ok", remark=printable(remark)[:_MAX_REMARK])
        outcome = _OF_STATUS.get(status, _outcome_of_class(status))
        wait = _seconds(response.headers.get("Retry-After", ""))
        return Sent(outcome, min(wait, MAX_WAIT) if outcome in _ASK_TO_WAIT else 0.0)


def _body(response: requests.Response) -> bytes:
    try:
        return b"".join(body_pieces(response, _PIECE, MAX_ANSWER))
    except RequestError as error:
        if error.reason != "too_large":
            raise
        return b""


def _seconds(retry_after: str) -> float:
    """Return the seconds until the time of a header, which is a number or a date; 0 for any other text."""
    with suppress(InvalidHeader):
        return Retry().parse_retry_after(retry_after)
    return 0.0


def _outcome_of_class(status: int) -> OtlpOutcome:
    if 300 <= status < 400:
        return "redirect"
    return "rejected" if status < 500 else "server_error"


def _outcome(reason: str) -> OtlpOutcome:
    known: OtlpOutcome | None = next((each for each in get_args(OtlpOutcome) if each == reason), None)
    return known or "unreachable"
