# SPDX-License-Identifier: Apache-2.0
"""What a program on loopback answers over HTTP."""

from __future__ import annotations

import http
import http.client

from deploy.stack.ports import HOST


def get(port: int, path: str) -> bytes | None:
    """Return the body of what loopback answers to a GET with status 200, or `None`; proxies are not asked."""
    connection = http.client.HTTPConnection(HOST, port, timeout=1)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return body if answer.status == http.HTTPStatus.OK else None
