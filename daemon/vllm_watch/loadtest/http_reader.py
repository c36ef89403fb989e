# SPDX-License-Identifier: Apache-2.0
"""GETs what a Prometheus or a vllm-watch answers: bounded in time and in bytes."""

from __future__ import annotations

from collections.abc import Mapping

import requests

from vllm_watch import __version__
from vllm_watch.sources.http_client import NO_HTTP, BoundedClient, RequestError, TlsOptions, body_pieces, is_encoded


MAX_BODY = 64 * 1024 * 1024
_PIECE = 256 * 1024
_LONG_SECONDS = 60.0
"""Enough for a Prometheus that evaluates a day."""
_REASONS: Mapping[str, str] = {
    "refused": "nothing listens at this address",
    "unreachable": "the address cannot be reached, or the connection broke",
    "name_not_resolved": "the host name cannot be resolved",
    "tls_error": "TLS failed; check the certificate, its certificate authority and the URL's scheme",
    "too_large": "an answer is over 64 MiB: ask for a shorter time",
    "incomplete": "an answer was cut off",
    "encoded": "an answer is compressed, which was not requested",
    NO_HTTP: "what answers there is not HTTP",
}


class HttpReader:
    """
    Reads from one server.

    Args:
        url: Where it is, with its path if it is served below one.
        ca_file: The authorities to trust instead of the usual ones.
        authorization: The header of that name, if it wants one.
        seconds: How long a request may take in all.
    """

    def __init__(
        self,
        url: str,
        ca_file: str | None = None,
        authorization: str | None = None,
        seconds: float = _LONG_SECONDS,
    ) -> None:
        self.url = url.rstrip("/")
        self._reasons = {**_REASONS, "timeout": f"no whole answer within {seconds:g} s"}
        self._client = BoundedClient(seconds, TlsOptions(ca_file=ca_file))
        self._headers = {"Accept": "application/json, text/plain", "User-Agent": f"vllm-watch/{__version__}"}
        if authorization is not None:
            self._headers["Authorization"] = authorization

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """
        Return the status and the body of an answer.

        Raises:
            ValueError: There is no whole answer; the message says why.
        """
        request = requests.Request("GET", self.url + path, headers=self._headers).prepare()

        def ask() -> tuple[int, bytes]:
            with self._client.send(request) as response:
                if is_encoded(response):
                    raise RequestError("encoded")
                body = b"".join(body_pieces(response, _PIECE, MAX_BODY))
                self._client.keep(response)
                return response.status, body

        try:
            return self._client.run(ask)
        except RequestError as error:
            raise ValueError(self._reasons.get(error.reason, error.reason)) from None
