# SPDX-License-Identifier: Apache-2.0
"""What a running vllm-watch answers over HTTP: each failure is a sentence, without the address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

import requests

from vllm_watch.daemon.config.server_config import TlsConfig
from vllm_watch.daemon.sources.http_reader import LIMITS, HttpLimits, HttpReader
from vllm_watch.daemon.support.errors import DaemonError, WrongDaemonError


_SNAPSHOT = "/api/v1/snapshot"
_METRICS = "/metrics"
_PERMANENT: Mapping[int, str] = {
    403: "something in front of it denies access (403)",
    404: "it has no {path}: this is not a vllm-watch, or its URL has a path that is missing here",
    421: "it does not answer to this host name (421): add it to allowed_hosts there, or use its address",
}
"""What a status says that stays as long as nobody changes something."""
_DENIED = "it does not accept this user name and password (401)"


class DaemonTarget(NamedTuple):
    """
    Which vllm-watch.

    Args:
        url: Where it is, with its path if it is served below one.
        ca_file: The authorities to trust instead of the usual ones.
        authorization: The header that it, or what is in front of it, wants.
        if_unauthorized: What to do if it asks for a password and there is no `authorization`.
    """

    url: str
    ca_file: str | None = None
    authorization: str | None = None
    if_unauthorized: str = "give --username and --password-file"


class DaemonClient:
    """
    Asks one vllm-watch, one request after the other.

    Each method raises a `DaemonError` if it cannot be reached, or answers something else; what stays so is a
    `WrongDaemonError`.
    """

    def __init__(self, target: DaemonTarget, limits: HttpLimits = LIMITS) -> None:
        self._target = target
        self._http = HttpReader(target.url, target.authorization, TlsConfig(ca_file=target.ca_file), limits)
        self.url = self._http.url

    def close(self) -> None:
        """Close the connection; a request that runs ends."""
        self._http.close()

    def snapshot(self, hours: Collection[str] | None) -> bytes:
        """Return the snapshot, with the last hour of these servers; of all if `None`."""
        query = "" if hours is None else "?" + urlencode([("history", name) for name in sorted(hours) or [""]])
        return self._body(_SNAPSHOT, query)

    def metrics(self) -> bytes:
        """Return its own /metrics."""
        return self._body(_METRICS)

    def _body(self, path: str, query: str = "") -> bytes:
        try:
            status, body = self._http.get(path + query)
        except ValueError as error:
            raise DaemonError(str(error)) from None
        if status != requests.codes.ok:
            raise self._error(status, path)
        return body

    def _error(self, status: int, path: str) -> DaemonError:
        if status == requests.codes.unauthorized:
            asks = f"it asks for a user name and a password: {self._target.if_unauthorized}"
            return WrongDaemonError(asks if self._target.authorization is None else _DENIED)
        if status in _PERMANENT:
            return WrongDaemonError(_PERMANENT[status].format(path=path))
        return DaemonError(f"it answers with the HTTP status {status}")
