# SPDX-License-Identifier: Apache-2.0
"""GETs what a Prometheus or a vllm-watch answers: bounded in time and in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from vllm_watch.daemon.sources.http_client import (
    NO_HTTP,
    HttpClient,
    RequestError,
    body_pieces,
    refuse_encoded,
)


if TYPE_CHECKING:
    from vllm_watch.daemon.config.server_config import TlsConfig


_PIECE = 256 * 1024
_MEBIBYTE = 1024 * 1024
_SENTENCES: Mapping[str, str] = {
    "refused": "nothing listens at this address",
    "timeout": "no whole answer within {timeout:g} s",
    "unreachable": "the address cannot be reached, or the connection broke",
    "name_not_resolved": "the host name cannot be resolved",
    "tls_error": "TLS failed; check the certificate, its authority (--ca-file, tls.ca_file or PROMETHEUS_CA_FILE) "
    "and the URL's scheme",
    "too_large": "an answer is over {mebibytes} MiB: {too_large}",
    "incomplete": "an answer was cut off",
    "encoded": "an answer is compressed, which was not requested",
    NO_HTTP: "what answers there is not HTTP",
}


class HttpLimits(NamedTuple):
    """How much is waited for: seconds, the longest answer, and what to do about one that is longer."""

    timeout: float = 60.0
    mebibytes: int = 64
    too_large: str = "ask for a shorter time"


LIMITS = HttpLimits()
"""Those of answers about hours of many series."""


class HttpReader:
    """Reads from one server below a URL; `authorization` is the header of that name, if it wants one."""

    def __init__(
        self,
        url: str,
        authorization: str | None = None,
        tls: TlsConfig | None = None,
        limits: HttpLimits = LIMITS,
    ) -> None:
        self.url = url.rstrip("/")
        self._limits = limits
        self._client = HttpClient(limits.timeout, tls)
        self._headers = {"Accept": "application/json, text/plain", "Authorization": authorization}

    def close(self) -> None:
        """Close the connection; a request that is running ends."""
        self._client.close()

    def get(self, path: str) -> tuple[int, bytes]:
        """
        Return the status and the body of an answer.

        Raises:
            ValueError: There is no whole answer; the message says why.
        """
        try:
            with self._client.within_time(), self._client.send("GET", self.url + path, self._headers) as response:
                refuse_encoded(response)
                body = b"".join(body_pieces(response, _PIECE, self._limits.mebibytes * _MEBIBYTE))
                return response.status_code, body
        except RequestError as error:
            sentence = _SENTENCES.get(error.reason, error.reason)
            raise ValueError(sentence.format_map(self._limits._asdict())) from None
