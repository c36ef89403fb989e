# SPDX-License-Identifier: Apache-2.0
"""A running vllm-watch as a source of documents, over HTTP."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from vllm_watch.sources.http_client import TlsOptions
from vllm_watch.sources.http_reader import HttpLimits, HttpReader
from vllm_watch.support.errors import DaemonError


ANSWER_SECONDS = 5.0
"""How long a request may take in all: longer than a vllm-watch of 200 servers needs, and no longer than people wait."""

_PATH = "/api/v1/snapshot"
_OK = 200
_STATUSES: Mapping[int, str] = {
    401: "it asks for a user name and a password: give --username and --password-file",
    403: "something in front of it denies access (403)",
    404: f"it has no {_PATH}: this is not a vllm-watch, or its URL has a path that is missing here",
    421: "it does not answer to this host name (421): add it to allowed_hosts there, or use its address",
}
_DENIED = "it does not accept this user name and password (401)"


class DaemonTarget(NamedTuple):
    """
    Which vllm-watch.

    Args:
        url: Where it is, with its path if it is served below one.
        ca_file: The authorities to trust instead of the usual ones.
        authorization: The header that it, or what is in front of it, wants.
    """

    url: str
    ca_file: str | None = None
    authorization: str | None = None


class DaemonReader:
    """
    Reads the snapshot of a running vllm-watch.

    Args:
        target: Which one.
        seconds: How long a request may take.
    """

    is_settled = True

    def __init__(self, target: DaemonTarget, seconds: float = ANSWER_SECONDS) -> None:
        self.title = target.url
        self._has_password = target.authorization is not None
        self._http = HttpReader(
            target.url, target.authorization, TlsOptions(target.ca_file), HttpLimits(timeout=seconds)
        )

    def start(self) -> None:
        """Do nothing: the first `read` connects."""

    def read(self, hours: Collection[str] | None) -> bytes:
        """
        Return the snapshot.

        Raises:
            DaemonError: It cannot be reached, or answers something else.
        """
        query = "" if hours is None else "?" + urlencode([("history", name) for name in sorted(hours) or [""]])
        try:
            status, body = self._http.get(_PATH + query)
        except ValueError as error:
            raise DaemonError(str(error)) from None
        if status != _OK:
            raise DaemonError(self._meaning(status))
        return body

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _meaning(self, status: int) -> str:
        if status == 401 and self._has_password:
            return _DENIED
        return _STATUSES.get(status, f"it answers with the HTTP status {status}")
