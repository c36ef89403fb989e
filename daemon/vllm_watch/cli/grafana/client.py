# SPDX-License-Identifier: Apache-2.0
"""The part of Grafana's HTTP API that is used here, through grafana-client; every failure becomes one sentence."""

from __future__ import annotations

import math
import re
import socket

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from grafana_client import GrafanaApi
from grafana_client.client import GrafanaException, GrafanaTimeoutError
from niquests.exceptions import JSONDecodeError, RequestException, SSLError, TooManyRedirects

from vllm_watch import __version__
from vllm_watch.analysis.loadtest.region import Annotation
from vllm_watch.daemon.support.errors import GrafanaError, RejectedError, causes_of


_BUILD_INFO = "vllm_watch_build_info"

FOLDER_UID = "vllm-watch"

_NAME = attrgetter("name")
_NOT_FOUND = 404
_FORBIDDEN = 403
_CONFLICTS = (409, 412)

_MOST_ANNOTATIONS = 1000
"""More regions of one run than there can be; without a limit Grafana tells of 100."""


T = TypeVar("T")


class DataSource(NamedTuple):
    """A data source of type Prometheus."""

    uid: str
    name: str
    is_default: bool = False


class Present(NamedTuple):
    """
    A dashboard as it is in Grafana.

    Args:
        model: Its JSON.
        version: Its present version.
        message: That of who saved this version.
        folder_uid: The folder that it is in, empty for none.
        file: The file that Grafana provisions it from, `None` if from none.
        changed_by: Who saved the present version.
        changed_at: When, as Grafana writes times.
    """

    model: Mapping[str, Any]
    version: int
    message: str
    folder_uid: str
    file: str | None
    changed_by: str
    changed_at: str


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
    """One version of a dashboard; a list calls each first one "Initial save", whatever its message is."""

    version: int
    parent_version: int = 0
    message: str = ""


class Versions(msgspec.Struct):
    """``/api/dashboards/uid/:uid/versions`` of newer releases; older ones return the list alone."""

    versions: list[Version]


# The type of both forms at once; `X | Y` as a value is no type to mypy.
_HISTORY: Any = list[Version] | Versions


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


class Target(NamedTuple):
    """
    Which Grafana, and how to connect to it.

    Args:
        url: Its address, with its path if it is served below one, without a slash at the end.
        token: Of a service account.
        ca_file: Certificates of the authorities to trust; the system's if `None`.
        timeout: Seconds to wait for a connection, and for each part of an answer.
    """

    url: str
    token: str
    ca_file: str | None = None
    timeout: float = 10.0


class Grafana:
    """
    One Grafana.

    Each method raises `RejectedError` for a request that Grafana rejects, and `GrafanaError` if further requests are
    pointless: no connection, no Grafana, a wrong token, an internal error of Grafana.
    """

    def __init__(self, target: Target) -> None:
        self.url = target.url
        self._timeout = target.timeout
        self._api = _api(target)

    def close(self) -> None:
        """Close the connection."""
        self._api.client.s.close()

    def version(self) -> str:
        """Return Grafana's version, empty if it hides it; this needs no token."""
        try:
            return self._ask(Health, "read its health", self._api.client.GET, "/health").version
        except RejectedError as error:
            raise GrafanaError(f"{self.url}: there is no Grafana at this address: check its path ({error})") from error

    def folder(self) -> Folder | None:
        """
        Return our folder, or `None`.

        Grafana answers 403 for a folder that does not exist, unless the token is an administrator's. So 403 means
        `None`, too: `make_folder` finds out.
        """
        try:
            return self._ask(Folder, "read folders", self._api.folder.get_folder, FOLDER_UID)
        except RejectedError as error:
            if error.status in {_NOT_FOUND, _FORBIDDEN}:
                return None
            raise

    def make_folder(self, title: str) -> Folder:
        """Create our folder."""
        try:
            return self._ask(Folder, "create a folder", self._api.folder.create_folder, title, FOLDER_UID)
        except RejectedError as error:
            if error.status not in _CONFLICTS:
                raise
            raise RejectedError(
                f"the folder {FOLDER_UID} exists, and the token may not see it: let its service account edit it",
                error.status,
            ) from error

    def folder_contents(self) -> int:
        """Return how many things are in our folder: dashboards, folders, alert rules, library panels."""
        counts = self._ask(
            dict[str, int], "count what is in the folder", self._api.client.GET, f"/folders/{FOLDER_UID}/counts"
        )
        return sum(counts.values())

    def delete_folder(self) -> None:
        """Delete our folder with its contents; Grafana rejects that if it contains alert rules."""
        self._ask(dict[str, Any], "delete the folder", self._api.folder.delete_folder, FOLDER_UID)

    def data_sources(self) -> list[DataSource]:
        """Return the data sources of type Prometheus that the token sees, by name."""
        every = self._ask(list[ListedDataSource], "list data sources", self._api.datasource.list_datasources)
        sources = [source for source in every if source.type == "prometheus"]
        return sorted((DataSource(source.uid, source.name, source.is_default) for source in sources), key=_NAME)

    def daemons_seen(self, source: DataSource) -> int:
        """Return for how many daemons of vllm-watch a data source has series."""
        result = self._ask(
            QueryResult,
            f"query the data source {source.name}",
            partial(self._api.datasource.query, datasource_uid=source.uid, query=f"count({_BUILD_INFO})"),
        )
        counts = [_number(sample.value[1]) for sample in result.data.result]
        if not all(map(math.isfinite, counts)):
            raise GrafanaError(f"the data source {source.name} answers with something that is not a number")
        return int(sum(counts))

    def dashboard(self, uid: str) -> Present | None:
        """Return a dashboard with who saved it last, or `None` if there is no such dashboard."""
        try:
            found = self._ask(FoundDashboard, f"read the dashboard {uid}", self._api.dashboard.get_dashboard, uid)
        except RejectedError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        meta = found.meta
        is_provisioned = meta.provisioned or bool(meta.provisioned_external_id)
        return Present(
            model=found.dashboard,
            version=int(found.dashboard.get("version", 0)),
            message=self._last_message(uid),
            folder_uid=meta.folder_uid,
            file=(meta.provisioned_external_id or "of its configuration") if is_provisioned else None,
            changed_by=meta.updated_by,
            changed_at=meta.updated,
        )

    def save(self, model: Mapping[str, Any], present: Present | None, message: str) -> None:
        """
        Save a dashboard where it is, or in our folder.

        Args:
            model: What to save.
            present: What it replaces. Grafana rejects it if that has another version by now.
            message: For the history.
        """
        body = {
            "dashboard": {**model, "id": None, "version": present.version if present else 0},
            "folderUid": present.folder_uid if present else FOLDER_UID,
            "message": message,
            "overwrite": False,
        }
        self._ask(dict[str, Any], "save the dashboard", self._api.dashboard.update_dashboard, body)

    def delete(self, uid: str) -> None:
        """Delete a dashboard."""
        self._ask(dict[str, Any], "delete the dashboard", self._api.dashboard.delete_dashboard, uid)

    def annotations(self, tags: Sequence[str]) -> dict[int, Annotation]:
        """Return the annotations that have all of these tags, by their numbers."""
        find = partial(
            self._api.annotations.find_annotations, tags=tags, ann_type="annotation", limit=_MOST_ANNOTATIONS
        )
        found = self._ask(list[FoundAnnotation], "read annotations", find, permission=_permission("read"))
        return {each.id: Annotation(each.time, each.time_end, each.text, tuple(each.tags or ())) for each in found}

    def annotate(self, annotation: Annotation) -> None:
        """Write an annotation of the organization, which is of no dashboard."""
        add = partial(
            self._api.annotations.add_annotation,
            time_from=annotation.start,
            time_to=annotation.end,
            tags=list(annotation.tags),
            text=annotation.text,
        )
        self._ask(AddedAnnotation, "create an annotation", add, permission=_permission("create"))

    def delete_annotation(self, number: int) -> None:
        """Delete an annotation."""
        delete = partial(self._api.annotations.delete_annotations_by_id, number)
        self._ask(dict[str, Any], "delete an annotation", delete, permission=_permission("delete"))

    def _last_message(self, uid: str) -> str:
        """Return the message of the last save in a dashboard's history."""
        doing, versions = f"read the history of the dashboard {uid}", self._api.dashboard_versions
        history = self._ask(_HISTORY, doing, versions.get_dashboard_versions_by_uid, uid)
        listed: list[Version] = history.versions if isinstance(history, Versions) else history
        last = max(listed, key=lambda version: version.version, default=None)
        if last is None or last.parent_version:
            return last.message if last else ""
        return self._ask(Version, doing, versions.get_dashboard_version_by_uid, uid, last.version).message

    def _ask(
        self, form: type[T], doing: str, call: Callable[..., object], *arguments: object, permission: str = ""
    ) -> T:
        """Return the answer to a call, in this form; `permission` is what it takes, where Grafana does not say it."""
        try:
            return msgspec.convert(call(*arguments), form)
        except TooManyRedirects as error:
            raise GrafanaError(f"{self.url} redirects{_location(error)}: give the final URL") from error
        except (JSONDecodeError, msgspec.ValidationError) as error:
            raise GrafanaError(self._is_strange(doing)) from error
        except (TimeoutError, GrafanaTimeoutError) as error:
            raise GrafanaError(f"{self.url} did not answer within {self._timeout:g} s, asked to {doing}") from error
        except GrafanaException as error:
            raise self._refused(error, doing, permission) from error
        except OSError as error:
            raise GrafanaError(f"{self.url}: {_no_answer(error)}") from error

    def _refused(self, error: GrafanaException, doing: str, permission: str) -> GrafanaError:
        status, body = error.status_code, error.response
        if not is_grafanas(body):
            return GrafanaError(f"{self._is_strange(doing)} ({status})")
        sentence = rejection(status, body, doing, permission)
        if status == 401 or status >= 500:
            return GrafanaError(f"{self.url}: {sentence}")
        return RejectedError(sentence, status)

    def _is_strange(self, doing: str) -> str:
        return (
            f"{self.url} does not answer as Grafana does, asked to {doing}: check the URL, and whether a proxy or a "
            "login page is in front of it"
        )


def _permission(action: str) -> str:
    return f"annotations:{action} on annotations:type:organization"


def _api(target: Target) -> GrafanaApi:
    """Return the library's client for a Grafana; it follows no redirect."""
    url = urlsplit(target.url)
    host = url.hostname or ""
    path = url.path.strip("/")
    api = GrafanaApi(
        auth=target.token,
        host=f"[{host}]" if ":" in host else host,
        port=url.port,
        url_path_prefix=f"{path}/" if path else "",
        protocol=url.scheme,
        verify=target.ca_file or True,
        timeout=target.timeout,
        user_agent=f"vllm-watch/{__version__}",
    )
    # A redirected POST would become a GET, and look as if it had succeeded.
    api.client.s.max_redirects = 0
    return api


def _number(written: str) -> float:
    """Return a sample's value, in the notations of Prometheus and compatible servers: `2`, `1e+06`, `NaN`."""
    try:
        return float(written)
    except ValueError:
        return math.nan


def _location(error: RequestException) -> str:
    location = error.response.headers.get("Location") if error.response is not None else None
    # Query and fragment may contain a secret of a login.
    return f" to {urlsplit(location)._replace(query='', fragment='').geturl()}" if location else ""


def _no_answer(error: OSError) -> str:
    """Return why no answer came."""
    causes = list(causes_of(error))
    if isinstance(error, SSLError):
        return f"TLS failed ({causes[-1]}): check the URL's scheme, or give the certificate's authority with --ca-file"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "the host's name is not known: check the URL"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "nothing listens at this address: is Grafana running, and is this its port?"
    return "the network is unreachable, or the connection broke"


_NEEDED = re.compile(r"Permissions needed: (.+)", re.DOTALL)

_ROLE = "give its service account the role Editor"

_CONFLICT_WORDS = {
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
    return _CONFLICT_WORDS.get(str(status), "")
