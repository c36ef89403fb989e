# SPDX-License-Identifier: Apache-2.0
"""POSTs bodies to one address: bounded in time and in bytes, without retries."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import requests

from urllib3.exceptions import InvalidHeader
from urllib3.util import Retry

from vllm_watch import __version__
from vllm_watch.daemon.sources.http_client import BoundedClient, RequestError, TlsOptions, body_pieces


MAX_ANSWER = 64 * 1024
_PIECE = 16 * 1024


class Answer(NamedTuple):
    """An answer, and for how many seconds it asks to be left alone (``Retry-After``)."""

    status: int
    body: bytes
    retry_after: float


class HttpPoster:
    """
    Sends to one address, one body after the other; `close` may be called from any thread.

    Args:
        url: Where to.
        timeout: Seconds for one whole exchange.
        tls: Whom to trust instead of the usual authorities, and what to present.
    """

    def __init__(self, url: str, timeout: float, tls: TlsOptions) -> None:
        self._url = url
        self._client = BoundedClient(timeout, tls)

    def close(self) -> None:
        """End an exchange that is running, and close the connection."""
        self._client.close()

    def post(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """
        Return the answer; a redirect is one.

        Raises:
            RequestError: There is no whole answer.
        """
        sent = {"User-Agent": f"vllm-watch/{__version__}", **headers}
        request = requests.Request("POST", self._url, headers=sent, data=body).prepare()

        def ask() -> Answer:
            with self._client.send(request) as response:
                wait = _seconds(response.headers.get("Retry-After", ""))
                try:
                    answer = b"".join(body_pieces(response, _PIECE, MAX_ANSWER))
                except RequestError as error:
                    if error.reason != "too_large":
                        raise
                    return Answer(response.status, b"", wait)  # The status is known, and no long answer is needed.
                self._client.keep(response)
                return Answer(response.status, answer, wait)

        return self._client.run(ask)


def _seconds(retry_after: str) -> float:
    """Return the seconds until the time of a header, which is a number or a date; 0 for any other text."""
    with suppress(InvalidHeader):
        return Retry().parse_retry_after(retry_after)
    return 0.0
