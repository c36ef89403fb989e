# SPDX-License-Identifier: Apache-2.0
"""POSTs bodies to one address: bounded in time and in bytes, without retries."""

from __future__ import annotations

from collections.abc import Mapping

import requests

from vllm_watch import __version__
from vllm_watch.sources.http_client import BoundedClient, RequestError, TlsOptions, body_pieces


MAX_ANSWER = 64 * 1024
_PIECE = 16 * 1024


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

    def post(self, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """
        Return the status and the body of the answer; a redirect is an answer.

        Raises:
            RequestError: There is no whole answer.
        """
        sent = {"User-Agent": f"vllm-watch/{__version__}", **headers}
        request = requests.Request("POST", self._url, headers=sent, data=body).prepare()

        def ask() -> tuple[int, bytes]:
            with self._client.send(request) as response:
                try:
                    answer = b"".join(body_pieces(response, _PIECE, MAX_ANSWER))
                except RequestError as error:
                    if error.reason != "too_large":
                        raise
                    return response.status, b""  # The status is known, and no long answer is needed.
                self._client.keep(response)
                return response.status, answer

        return self._client.run(ask)
