# SPDX-License-Identifier: Apache-2.0
"""
A Grafana on loopback: the part of its HTTP API that is used here, as strict as the real one.

Where each answer comes from, in the repository grafana/grafana unless another is named:

* 401 ``Invalid API key`` with messageId and statusCode: ``pkg/services/authn/clients/api_key.go``; ``/api/health``
  wants no token: ``apiHealthHandler`` in ``pkg/api/http_server.go``.
* 403 with "Permissions needed": ``deny`` in ``pkg/services/accesscontrol/middleware.go``. Of a folder that does not
  exist it says so to all but administrators, and a second folder of a uid is 412: measured on Grafana 13.0 in the pull
  request block/proto-fleet#830. 409 before and after: ``pkg/api/apierrors/folder.go``, documentation of the folder API.
* Saving: ``postDashboard``, in the newest sources ``saveDashboardViaK8s``, in ``pkg/api/dashboard.go``; errors in
  ``pkg/api/apierrors/dashboard.go`` (a folder that does not exist is 400) and ``pkg/services/dashboards/errors.go``
  (412 version-mismatch, empty-name, provisioned); 412 plugin-dashboard in the documentation of the dashboard API. The
  newest sources say 409 of a version that is not the present one.
* Deleting: ``deleteDashboard`` there.
* Annotations: ``PostAnnotation``, ``DeleteAnnotationByID`` and ``canCreateAnnotation`` in ``pkg/api/annotations.go``;
  everybody may write those of dashboards they may edit, and only who may write those of the organization gets past the
  second check (roles in ``pkg/api/accesscontrol.go``). Several tags are all of them; without a limit there are 100.
"""

from __future__ import annotations

import copy
import json
import re
import threading

from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import parse_qs

from tests.support.http_servers import HandlerServer


EDITOR = frozenset(
    {
        "folders:create",
        "folders:read",
        "dashboards:read",
        "dashboards:create",
        "dashboards:write",
        "dashboards:delete",
        "datasources:read",
        "annotations:read",
        "annotations:create",
        "annotations:create:organization",
        "annotations:delete",
    }
)
ADMIN = EDITOR | {"folders:*"}
VIEWER = frozenset({"folders:read", "dashboards:read", "annotations:read", "annotations:create"})

UID = r"([a-zA-Z0-9_-]{1,40})"


class Release(NamedTuple):
    """What differs between releases: what is said of a stale version, and of a folder that is there."""

    name: str
    stale: tuple[int, dict]
    folder_exists: tuple[int, dict]
    stored_id: bool = True


MISMATCH = {"message": "The dashboard has been changed by someone else", "status": "version-mismatch"}

OLD = Release("10.4.1", (412, MISMATCH), (409, {"message": "a folder/dashboard with the same uid already exists"}))
MIDDLE = Release(
    "13.0.1",
    (412, MISMATCH),
    (412, {"message": "the folder has been changed by someone else", "status": "version-mismatch"}),
)
NEWEST = Release(
    "main",
    (409, {"message": "Dashboard already exists. Use overwrite flag to update."}),
    (409, {"message": "a folder with the same UID already exists"}),
    stored_id=False,
)


@dataclass
class Kept:
    """A dashboard: its model, and how often it was saved."""

    number: int
    folder: str
    file: str | None = None
    version: int = 0
    model: dict = field(default_factory=dict)


class DeniedError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


class GrafanaStandIn(HandlerServer):
    """
    A Grafana that lives as long as the context.

    Args:
        release: How it answers.
        prefix: The path that it is served below, such as ``/grafana``.
    """

    def __init__(self, release: Release = MIDDLE, *, prefix: str = "", tls=None) -> None:
        self.release = release
        self.tokens: dict[str, tuple[str, frozenset]] = {
            "glsa_editor": ("sa-editor", EDITOR),
            "glsa_admin": ("sa-admin", ADMIN),
            "glsa_viewer": ("sa-viewer", VIEWER),
        }
        self.folders: dict[str, str] = {}
        self.dashboards: dict[str, Kept] = {}
        self.sources = [
            {"id": 1, "uid": "PBFA97CFB590B2093", "name": "Prometheus", "type": "prometheus", "isDefault": True},
            {"id": 2, "uid": "loki1", "name": "Loki", "type": "loki", "isDefault": False},
            {"id": 3, "uid": "mimir1", "name": "Mimir", "type": "prometheus", "isDefault": False},
        ]
        self.annotations: dict[int, dict] = {}
        self.requests: list[tuple[str, str]] = []
        self.bodies: list[tuple[str, object]] = []
        self.instead: dict[tuple[str, str], Callable[[BaseHTTPRequestHandler], None]] = {}
        self.before: dict[tuple[str, str], Callable[[], None]] = {}
        self._prefix = prefix
        self._lock = threading.Lock()
        super().__init__(_handler(self), tls)
        self.url = f"{self.origin}{prefix}"

    @property
    def writes(self) -> list[tuple[str, str]]:
        """Return the requests that would change something."""
        return [(method, path) for method, path in self.requests if method != "GET"]

    def edit(self, uid: str, /, **changes) -> None:
        """Save a dashboard as a person does in the browser."""
        kept = self.dashboards[uid]
        self._keep(kept, {**kept.model, **changes})

    def add(self, model: dict, *, folder: str = "", **more) -> None:
        """Have a dashboard that no push made."""
        kept = Kept(len(self.dashboards) + 1, folder, **more)
        self.dashboards[model["uid"]] = kept
        self._keep(kept, model)

    def _keep(self, kept: Kept, model: dict) -> None:
        kept.version += 1
        kept.model = {**copy.deepcopy(model), "version": kept.version}
        kept.model.pop("id", None)
        if self.release.stored_id:
            kept.model["id"] = kept.number

    def answer(self, method: str, path: str, token: str | None, body: object) -> object:
        """Return the document that is the answer, or raise `DeniedError`."""
        if not path.startswith(f"{self._prefix}/api/"):
            raise DeniedError(404, {"message": "Not found"})
        path = path.removeprefix(f"{self._prefix}/api")
        if (method, path) == ("GET", "/health"):
            return {"commit": "0123abc", "database": "ok", "version": self.release.name}
        who, may = self._authenticate(token)
        for known, pattern, needed, act in _ROUTES:
            found = re.fullmatch(pattern, path)
            if known == method and found:
                _require(may, needed)
                with self._lock:
                    return act(self, who, may, body, *found.groups())
        raise DeniedError(404, {"message": "Not found", "traceID": ""})

    def _authenticate(self, token: str | None) -> tuple[str, frozenset]:
        if token is None:
            raise DeniedError(401, {"message": "Unauthorized", "messageId": "auth.unauthorized", "statusCode": 401})
        if token not in self.tokens:
            invalid = {"message": "Invalid API key", "messageId": "api-key.invalid", "statusCode": 401, "traceID": ""}
            raise DeniedError(401, invalid)
        return self.tokens[token]

    def _list_sources(self, _who, _may, _body):
        return self.sources

    def _get_folder(self, _who, may, _body, uid):
        if uid not in self.folders:
            _require(may, "folders:*", named="folders:read")
            raise DeniedError(404, {"message": "folder not found", "status": "not-found"})
        return {"id": 1, "uid": uid, "title": self.folders[uid], "url": f"/dashboards/f/{uid}/x", "version": 1}

    def _make_folder(self, who, may, body, *_):
        uid, title = body.get("uid"), body.get("title")
        if not title:
            raise DeniedError(400, {"message": "folder title cannot be empty"})
        if uid in self.folders:
            raise DeniedError(*self.release.folder_exists)
        self.folders[uid] = title
        return self._get_folder(who, may, None, uid)

    def _find(self, uid) -> Kept:
        if uid not in self.dashboards:
            raise DeniedError(404, {"message": "Dashboard not found", "traceID": ""})
        return self.dashboards[uid]

    def _get_dashboard(self, _who, _may, _body, uid):
        kept = self._find(uid)
        meta = {
            "type": "db",
            "canSave": True,
            "slug": "x",
            "url": f"{self._prefix}/d/{uid}/x",
            "version": kept.version,
            "folderId": 0,
            "folderUid": kept.folder,
            "folderTitle": self.folders.get(kept.folder, "General"),
            "provisioned": kept.file is not None,
            "provisionedExternalId": kept.file or "",
        }
        return {"meta": meta, "dashboard": {**kept.model, "id": kept.number, "uid": uid, "version": kept.version}}

    def _save(self, _who, _may, body, *_):
        model = body.get("dashboard")
        if not isinstance(model, dict):
            raise DeniedError(400, {"message": "bad request data"})
        if not str(model.get("title", "")).strip():
            raise DeniedError(400, {"message": "Dashboard title cannot be empty", "status": "empty-name"})
        if len(body.get("message", "")) > 500:
            raise DeniedError(400, {"message": "message too long, max 500 characters"})
        folder = body.get("folderUid", "")
        if folder and folder not in self.folders:
            raise DeniedError(400, {"message": "folder not found"})
        uid = model["uid"]
        kept = self.dashboards.get(uid)
        if kept is None:
            kept = Kept(len(self.dashboards) + 1, folder)
        elif not body.get("overwrite"):
            self._check_writable(kept, model)
        self.dashboards[uid] = kept
        kept.folder = folder
        self._keep(kept, model)
        return {
            "status": "success",
            "slug": "x",
            "version": kept.version,
            "id": kept.number,
            "uid": uid,
            "url": f"{self._prefix}/d/{uid}/x",
            "folderUid": folder,
        }

    def _check_writable(self, kept: Kept, model: dict) -> None:
        if kept.file is not None:
            raise DeniedError(400, {"message": "Cannot save provisioned dashboard"})
        if model.get("version") != kept.version:
            raise DeniedError(*self.release.stale)

    def _delete(self, _who, _may, _body, uid):
        kept = self._find(uid)
        if kept.file is not None:
            raise DeniedError(400, {"message": "provisioned dashboard cannot be deleted"})
        del self.dashboards[uid]
        return {"title": kept.model["title"], "message": f"Dashboard {kept.model['title']} deleted", "uid": uid}

    def _find_annotations(self, _who, _may, _body, query):
        asked = parse_qs(query)
        wanted, limit = set(asked.get("tags", ())), int(asked.get("limit", ["100"])[0])
        return [each for each in self.annotations.values() if wanted <= set(each["tags"])][:limit]

    def _annotate(self, _who, may, body, *_):
        if "dashboardUID" not in body and "annotations:create:organization" not in may:
            raise DeniedError(403, {"message": "Access denied to save the annotation"})
        if not body.get("text"):
            raise DeniedError(400, {"message": "Failed to save annotation", "error": "text field should not be empty"})
        number = max(self.annotations, default=0) + 1
        self.annotations[number] = {
            "id": number,
            "dashboardId": 0,
            "dashboardUID": None,
            "panelId": body.get("panelId") or 0,
            "time": body["time"],
            "timeEnd": body.get("timeEnd", body["time"]),
            "text": body["text"],
            "tags": sorted(body["tags"]),
            "data": {},
        }
        return {"message": "Annotation added", "id": number}

    def _delete_annotation(self, _who, _may, _body, number):
        if int(number) not in self.annotations:
            raise DeniedError(404, {"message": "Could not find annotation to update"})
        del self.annotations[int(number)]
        return {"message": "Annotation deleted"}


_ROUTES = (
    ("GET", "/datasources", "datasources:read", GrafanaStandIn._list_sources),
    ("POST", "/folders", "folders:create", GrafanaStandIn._make_folder),
    ("GET", rf"/folders/{UID}", "folders:read", GrafanaStandIn._get_folder),
    ("GET", rf"/dashboards/uid/{UID}", "dashboards:read", GrafanaStandIn._get_dashboard),
    ("DELETE", rf"/dashboards/uid/{UID}", "dashboards:delete", GrafanaStandIn._delete),
    ("GET", r"/annotations\?(.*)", "annotations:read", GrafanaStandIn._find_annotations),
    ("POST", "/annotations", "annotations:create", GrafanaStandIn._annotate),
    ("DELETE", r"/annotations/(\d+)", "annotations:delete", GrafanaStandIn._delete_annotation),
    ("POST", "/dashboards/db", "dashboards:write", GrafanaStandIn._save),
)


def _require(may: frozenset, needed: str, named: str = "") -> None:
    if needed not in may:
        message = "You'll need additional permissions to perform this action. Permissions needed: "
        body = {"accessErrorId": "ACE0123456789", "message": message + (named or needed), "title": "Access denied"}
        raise DeniedError(403, body)


def page(status: int, body: bytes, **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return what answers so, whatever is asked; headers are named with underscores."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content_Type": "text/html", "Content_Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def _handler(grafana: GrafanaStandIn) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # An answer in one piece: else each waits for an acknowledgement.

        def _serve(self) -> None:
            body = self._body()
            grafana.requests.append((self.command, self.path))
            grafana.bodies.append((self.path, body))
            if before := grafana.before.pop((self.command, self.path), None):
                before()
            if instead := grafana.instead.get((self.command, self.path)):
                instead(self)
                return
            kind, _, token = self.headers.get("Authorization", "").partition(" ")
            try:
                status, answer = 200, grafana.answer(self.command, self.path, token if kind == "Bearer" else None, body)
            except DeniedError as denied:
                status, answer = denied.status, denied.body
            page(status, json.dumps(answer).encode(), Content_Type="application/json; charset=UTF-8")(self)

        def _body(self) -> object:
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            return json.loads(text) if "application/json" in self.headers.get("Content-Type", "") else text

        do_GET = do_POST = do_PUT = do_DELETE = _serve  # noqa: N815  # As the base class wants them.

        def log_message(self, *_):
            pass

    return Handler
