# SPDX-License-Identifier: Apache-2.0
"""
What is to be done with one dashboard: from what is wanted and what is there.

A dashboard is ours if it has our tag and a push of ours in its history. Whether somebody changed it since is seen by
comparing it with that push **as Grafana keeps it**: so nothing that Grafana itself adds, orders or migrates counts as a
change, nor does a move into another folder. Whether there is anything to push is seen by the digest in the push's
message, for the same reason.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from vllm_watch.cli.grafana.model import Dashboard, Model, content, digest
from vllm_watch.daemon.catalog.codes import TAG
from vllm_watch.daemon.support.printable import ReportLine


_WRONG = frozenset({"failed", "refused", "not done"})


class LastPush(NamedTuple):
    """
    The newest push of ours in a dashboard's history.

    Args:
        version: The dashboard's version that it made.
        digest: Of what was pushed.
        model: What Grafana made of it.
    """

    version: int
    digest: str
    model: Model


class Present(NamedTuple):
    """
    A dashboard as it is in Grafana.

    Args:
        model: Its JSON.
        version: Its present version.
        folder_uid: The folder that it is in, empty for none.
        file: The file that Grafana provisions it from, `None` if from none.
        changed_by: Who saved the present version.
        changed_at: When, as Grafana writes times.
        last_push: Of ours, `None` if its history has none.
    """

    model: Model
    version: int
    folder_uid: str = ""
    file: str | None = None
    changed_by: str = ""
    changed_at: str = ""
    last_push: LastPush | None = None


ActionKind = Literal["create", "update", "delete", "unchanged", "absent", "refuse"]


class Action(NamedTuple):
    """What is to be done, and why if nothing may be."""

    kind: ActionKind
    why: str = ""


def plan_push(wanted: Dashboard, present: Present | None, *, force: bool) -> Action:
    """Return whether a dashboard is to be created, updated, or left; `force` overwrites what others made of it."""
    if present is None:
        return Action("create")
    if content(present.model) == content(wanted.model):
        return Action("unchanged")
    if present.file is not None:
        return Action("refuse", _provisioned(present.file))
    foreign = _not_ours(present) or _changed(present)
    if foreign and not force:
        return Action("refuse", f"{foreign}; --force overwrites that")
    if not foreign and present.last_push is not None and present.last_push.digest == digest(wanted.model):
        return Action("unchanged")
    return Action("update")


def plan_delete(present: Present | None, *, force: bool) -> Action:
    """Return whether a dashboard is to be deleted; `force` also deletes what others changed, never what they made."""
    if present is None:
        return Action("absent")
    if present.file is not None:
        return Action("refuse", _provisioned(present.file))
    if foreign := _not_ours(present):
        return Action("refuse", foreign)
    if (changed := _changed(present)) and not force:
        return Action("refuse", f"{changed}; --force deletes it all the same")
    return Action("delete")


def _provisioned(file: str) -> str:
    return f"Grafana makes it from the file {file}: change or remove it there"


def _not_ours(present: Present) -> str:
    """Return why a dashboard is not ours; nothing if it is."""
    if TAG not in (present.model.get("tags") or []):
        return f"vllm-watch did not make it: it lacks the tag {TAG}"
    if present.last_push is None:
        return "vllm-watch did not make it: its history has no push by vllm-watch"
    return ""


def _changed(present: Present) -> str:
    """Return who changed a dashboard since our push; nothing if nobody did."""
    if present.last_push is None or content(present.model) == content(present.last_push.model):
        return ""
    who = present.changed_by or "somebody"
    when = f" on {present.changed_at.partition('T')[0]}" if present.changed_at else ""
    return f"{who} changed it in Grafana{when}, after the push that made version {present.last_push.version}"


def about(word: str, dashboard: Dashboard, url: str, why: str = "") -> ReportLine:
    """Return the line of a report on a dashboard: what became of it, its URL, and why."""
    place = f"{url}/d/{dashboard.uid}"
    facts = {"dashboard": dashboard.title, "uid": dashboard.uid, "url": place, "result": word}
    text = f"{word}: {dashboard.title} ({place}){why and f': {why}'}"
    return ReportLine(text, word in _WRONG, facts if not why else {**facts, "why": why})


def about_folder(word: str, title: str, why: str = "", *, is_wrong: bool = False) -> ReportLine:
    """Return the line of a report on the folder: what became of it, and why."""
    facts = {"folder": title, "result": word}
    return ReportLine(
        f"folder {title}: {word}{why}", is_wrong, facts if not why else {**facts, "why": why.lstrip(",: ")}
    )


def about_grafana(version: str, url: str) -> ReportLine:
    """Return the first line of a report: which Grafana this is."""
    return ReportLine(f"Grafana {version}".rstrip() + f" at {url}", facts={"grafana": url, "version": version})
