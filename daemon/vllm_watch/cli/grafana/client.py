# SPDX-License-Identifier: Apache-2.0
"""The part of Grafana's HTTP API that is used here, through grafana-client; every failure becomes one sentence."""

from __future__ import annotations

import re
import socket

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from grafana_client import GrafanaApi
from grafana_client.client import GrafanaException, GrafanaTimeoutError
from niquests.exceptions import JSONDecodeError, RequestException, SSLError, TooManyRedirects

from vllm_watch import __version__
from vllm_watch.analysis.loadtest.region import Annotation
from vllm_watch.daemon.support.errors import GrafanaError, RejectedError, causes_of


FOLDER_UID = "vllm-watch"

_NOT_FOUND = 404
_FORBIDDEN = 403
_CONFLICTS = (409, 412)

_MOST_ANNOTATIONS = 1000
"""More regions of one run than there can be; without a limit Grafana tells of 100."""


T = TypeVar("T")


class Health(msgspec.Struct):
    """``/api/health``; the version may be hidden from anonymous clients."""

    database: str
    version: str = ""


class Folder(msgspec.Struct):
    """``/api/folders/:uid``."""

    uid: str
    title: str


class DataSource(msgspec.Struct, frozen=True):
    """One of ``/api/datasources``."""

    uid: str
    name: str
    type: str


class DashboardMeta(msgspec.Struct, rename="camel"):
    """The metadata of a dashboard: its folder, empty for none, and the file that Grafana provisions it from, if any."""

    folder_uid: str = ""
    provisioned: bool = False
    provisioned_external_id: str = ""


class Present(msgspec.Struct):
    """``/api/dashboards/uid/:uid``: a dashboard as it is in Grafana."""

    dashboard: dict[str, Any]
    meta: DashboardMeta

    @property
    def file(self) -> str:
        """The file that Grafana provisions it from; empty if from none."""
        return self.meta.provisioned_external_id or ("of its configuration" if self.meta.provisioned else "")


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


class Grafana:
    """
    One Grafana.

    Each method raises `RejectedError` for a request that Grafana rejects, and `GrafanaError` if further requests are
    pointless: no connection, no Grafana, a wrong token, an internal error of Grafana.

    Args:
        url: Its address, with its path if it is served below one, without a slash at the end.
        token: Of a service account.
        ca_file: Certificates of the authorities to trust; the system's if `None`.
        timeout: Seconds to wait for a connection, and for each part of an answer.
    """

    def __init__(self, url: str, token: str, ca_file: str | None = None, timeout: float = 10.0) -> None:
        self.url = url
        self._timeout = timeout
        parts = urlsplit(url)
        host, path = parts.hostname or "", parts.path.strip("/")
        self._api = GrafanaApi(
            auth=token,
            host=f"[{host}]" if ":" in host else host,
            port=parts.port,
            url_path_prefix=f"{path}/" if path else "",
            protocol=parts.scheme,
            verify=ca_file or True,
            timeout=timeout,
            user_agent=f"vllm-watch/{__version__}",
        )
        # No redirect is followed: a POST would become a GET, and look as if it had succeeded.
        self._api.client.s.max_redirects = 0

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

    def data_sources(self) -> list[DataSource]:
        """Return the data sources of type Prometheus that the token sees, by name."""
        every = self._ask(list[DataSource], "list data sources", self._api.datasource.list_datasources)
        return sorted((source for source in every if source.type == "prometheus"), key=attrgetter("name"))

    def dashboard(self, uid: str) -> Present | None:
        """Return a dashboard, or `None` if there is no such dashboard."""
        try:
            return self._ask(Present, f"read the dashboard {uid}", self._api.dashboard.get_dashboard, uid)
        except RejectedError as error:
            if error.status == _NOT_FOUND:
                return None
            raise

    def save(self, model: Mapping[str, Any], present: Present | None) -> None:
        """Save a dashboard where it is, or in our folder; Grafana rejects it over one newer than `present`."""
        body = {
            "dashboard": {**model, "id": None, "version": present.dashboard.get("version", 0) if present else 0},
            "folderUid": present.meta.folder_uid if present else FOLDER_UID,
            "message": f"vllm-watch {__version__}",
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
        found = self._ask(list[FoundAnnotation], "read annotations", find)
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
        self._ask(AddedAnnotation, "create an annotation", add)

    def delete_annotation(self, number: int) -> None:
        """Delete an annotation."""
        delete = partial(self._api.annotations.delete_annotations_by_id, number)
        self._ask(dict[str, Any], "delete an annotation", delete)

    def _ask(self, form: type[T], doing: str, call: Callable[..., object], *arguments: object) -> T:
        """Return the answer to a call, in this form."""
        try:
            return msgspec.convert(call(*arguments), form)
        except TooManyRedirects as error:
            raise GrafanaError(f"{self.url} redirects{_location(error)}: give the final URL") from error
        except (JSONDecodeError, msgspec.ValidationError) as error:
            raise GrafanaError(self._is_strange(doing)) from error
        except (TimeoutError, GrafanaTimeoutError) as error:
            raise GrafanaError(f"{self.url} did not answer within {self._timeout:g} s, asked to {doing}") from error
        except GrafanaException as error:
            raise self._refused(error, doing) from error
        except OSError as error:
            raise GrafanaError(f"{self.url}: {_no_answer(error)}") from error

    def _refused(self, error: GrafanaException, doing: str) -> GrafanaError:
        status, body = error.status_code, error.response
        if not is_grafanas(body):
            return GrafanaError(f"{self._is_strange(doing)} ({status})")
        sentence = rejection(status, body, doing)
        if status == 401 or status >= 500:
            return GrafanaError(f"{self.url}: {sentence}")
        return RejectedError(sentence, status)

    def _is_strange(self, doing: str) -> str:
        return (
            f"{self.url} does not answer as Grafana does, asked to {doing}: check the URL, and whether a proxy or a "
            "login page is in front of it"
        )


def _location(error: RequestException) -> str:
    location = error.response.headers.get("Location") if error.response is not None else None
    # Query and fragment may contain a secret of a login.
    return f" to {urlsplit(location)._replace(query='', fragment='').geturl()}" if location else ""


def _no_answer(error: OSError) -> str:
    causes = list(causes_of(error))
    if isinstance(error, SSLError):
        return f"TLS failed ({causes[-1]}): check the URL's scheme, or give the certificate's authority with --ca-file"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "the host's name is not known: check the URL"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "nothing listens at this address: is Grafana running, and is this its port?"
    return "the network is unreachable, or the connection broke"


_NEEDED = re.compile(r"Permissions needed: (.+)", re.DOTALL)


def rejection(status: int, body: object, doing: str) -> str:
    """
    Return what a refusal means, as a sentence.

    Args:
        status: The HTTP status, 400 or above.
        body: What came with it: a JSON document or text.
        doing: What was asked for, as in "read the folder".
    """
    said = _message(body)
    if status == 401:
        return f"the token is wrong, expired or revoked (401{said and f': {said}'})"
    if status == 403:
        needed = _NEEDED.search(said)
        need = f", or the permission {needed[1]}" if needed else f" (Grafana says: {said})" if said else ""
        return f"the token may not {doing} (403): give its service account the role Editor{need}"
    if status in _CONFLICTS and ("version-mismatch" in str(body) or "overwrite" in said):  # The second is Grafana 13's.
        return f"cannot {doing} ({status}): somebody changed it meanwhile; nothing was overwritten: push again"
    return f"cannot {doing} ({status}{said and f': {said}'})"


def is_grafanas(body: object) -> bool:
    """Whether an error has the form of Grafana's, rather than that of something before it."""
    return isinstance(body, dict) and "message" in body


def _message(body: object) -> str:
    """Return Grafana's own words; a page of something else is not repeated."""
    return str(body["message"]).strip() if isinstance(body, dict) and "message" in body else ""
