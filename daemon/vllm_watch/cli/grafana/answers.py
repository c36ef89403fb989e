# SPDX-License-Identifier: Apache-2.0
"""The parts of Grafana's answers that are used, and what its refusals mean, as a sentence."""

from __future__ import annotations

import re

from typing import Any

import msgspec


class Health(msgspec.Struct):
    """``/api/health``; the version may be hidden from anonymous clients."""

    database: str
    version: str = ""


class Folder(msgspec.Struct):
    """``/api/folders/:uid``."""

    uid: str
    title: str


class ListedDataSource(msgspec.Struct, rename="camel"):
    """One of ``/api/datasources``."""

    uid: str
    name: str
    type: str
    is_default: bool = False


class DashboardMeta(msgspec.Struct, rename="camel"):
    """The metadata of a dashboard."""

    folder_uid: str = ""
    provisioned: bool = False
    provisioned_external_id: str = ""
    updated: str = ""
    updated_by: str = ""


class FoundDashboard(msgspec.Struct):
    """``/api/dashboards/uid/:uid``."""

    dashboard: dict[str, Any]
    meta: DashboardMeta


class Version(msgspec.Struct, rename="camel"):
    """One version of a dashboard; a list may leave the model out, and calls each first one "Initial save"."""

    version: int
    parent_version: int = 0
    message: str = ""
    data: dict[str, Any] | None = None


class Versions(msgspec.Struct):
    """``/api/dashboards/uid/:uid/versions`` of newer releases; older ones return the list alone."""

    versions: list[Version]


class Saved(msgspec.Struct):
    """What a saved dashboard became."""

    version: int


class FoundAnnotation(msgspec.Struct, rename="camel"):
    """One of ``/api/annotations``; times are milliseconds since the epoch."""

    id: int
    time: int
    text: str
    time_end: int = 0
    tags: list[str] | None = None


class AddedAnnotation(msgspec.Struct):
    """What a new annotation became."""

    id: int


class VectorSample(msgspec.Struct):
    """One of a vector: when, and the value as Prometheus writes it."""

    value: tuple[float, str]


class Vector(msgspec.Struct):
    """What an expression came to."""

    result: list[VectorSample]


class QueryResult(msgspec.Struct):
    """Prometheus' answer to an instant query, through Grafana."""

    data: Vector


_NEEDED = re.compile(r"Permissions needed: (.+)", re.DOTALL)

_ROLE = "give its service account the role Editor"

_CONFLICTS = {
    "version-mismatch": "somebody changed it meanwhile; nothing was overwritten: push again",
    "name-exists": "another dashboard has its title in this folder: rename that one",
    "plugin-dashboard": "it belongs to a plugin of Grafana: remove the plugin's dashboard",
}


def rejection(status: int, body: object, doing: str, permission: str = "") -> str:
    """
    Return what a refusal means, as a sentence.

    Args:
        status: The HTTP status, 400 or above.
        body: What came with it: a JSON document or text.
        doing: What was asked for, as in "read the folder".
        permission: What it takes, where Grafana does not say it.
    """
    said = _message(body)
    if status == 401:
        return f"the token is wrong, expired or revoked (401{said and f': {said}'})"
    if status == 403:
        needed = _NEEDED.search(said)
        permission = permission or (needed[1] if needed else "")
        need = f"{_ROLE}, or the permission {permission}" if permission else _ROLE
        need += f" (Grafana says: {said})" if said and not needed else ""
        return f"the token may not {doing} (403): {need}"
    if status in {409, 412}:
        return f"cannot {doing} ({status}): {_conflict(body) or said or 'it conflicts with what is there'}"
    return f"cannot {doing} ({status}{said and f': {said}'})"


def is_grafanas(body: object) -> bool:
    """Whether an error has the form of Grafana's, rather than that of something before it."""
    return isinstance(body, dict) and "message" in body


def _message(body: object) -> str:
    """Return Grafana's own words; a page of something else is not repeated."""
    return str(body["message"]).strip() if isinstance(body, dict) and "message" in body else ""


def _conflict(body: object) -> str:
    status = body.get("status") if isinstance(body, dict) else None
    # Grafana 13 has the old version-mismatch as 409 without a status.
    if status is None and "overwrite" in _message(body):
        status = "version-mismatch"
    return _CONFLICTS.get(str(status), "")
