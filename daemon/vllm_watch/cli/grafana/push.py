# SPDX-License-Identifier: Apache-2.0
"""
``vllm-watch grafana push`` and ``delete``: the package's dashboards into a running Grafana, and out of it.

A dashboard is ours if it has our uid and our tag. What a push overwrites stays in Grafana's own history of it.
"""

from __future__ import annotations

import json

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from vllm_watch.daemon.catalog.codes import TAG
from vllm_watch.daemon.support.errors import GrafanaError, RejectedError
from vllm_watch.daemon.support.printable import ReportLine


if TYPE_CHECKING:
    from vllm_watch.cli.grafana.client import DataSource, Grafana, Present


Language = Literal["en", "zh"]
Model = Mapping[str, Any]
"""A dashboard in Grafana's JSON (schema v1)."""

_GRAFANAS_OWN = frozenset({"id", "uid", "version", "iteration"})
"""Keys of a model that Grafana sets; the uid is the name under which all is compared."""

_WRONG = frozenset({"failed", "refused", "not done"})


def packaged(language: Language) -> list[Model]:
    """Return the package's dashboards with texts in a language, in the order of their uids."""
    folder = files("vllm_watch.cli.grafana") / "dashboards" / language
    # The folder is a symbolic link in the source tree; a checkout without links has a file in its place.
    if not folder.is_dir():
        raise GrafanaError("this installation has no dashboards: reinstall the package vllm-watch")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    return [json.loads((folder / name).read_text(encoding="utf-8")) for name in names]


def push(
    grafana: Grafana, dashboards: Sequence[Model], folder_title: str, data_source: str | None, *, force: bool
) -> Iterator[ReportLine]:
    """
    Push dashboards, and yield what was done, line by line.

    Args:
        grafana: Where to.
        dashboards: What to push.
        folder_title: Of our folder, if it has to be created.
        data_source: Name or uid of the one that the dashboards open with; Grafana's choice if `None`.
        force: Overwrite what lacks our tag.

    Raises:
        GrafanaError: Nothing more can be done; what was left undone has been yielded.
    """
    yield _about_grafana(grafana)
    if data_source is not None:
        source = _choose(grafana.data_sources(), data_source)
        dashboards = [_with_data_source(wanted, source) for wanted in dashboards]
    folder = grafana.folder()
    present = {wanted["uid"]: grafana.dashboard(wanted["uid"]) for wanted in dashboards}
    if folder is None:
        yield _about_folder("created", grafana.make_folder(folder_title).title)
    else:
        yield _about_folder("found", folder.title)

    def act(wanted: Model) -> ReportLine:
        before = present[wanted["uid"]]
        if before is not None and _content(before.dashboard) == _content(wanted):
            return _about("unchanged", wanted, grafana)
        if before is not None and (why := _why_not(before, force=force)):
            return _about("refused", wanted, grafana, why)
        grafana.save({**_content(wanted), "uid": wanted["uid"]}, before)
        return _about("created" if before is None else "updated", wanted, grafana)

    yield from _each(grafana, dashboards, act)


def delete(grafana: Grafana, dashboards: Sequence[Model]) -> Iterator[ReportLine]:
    """
    Delete our dashboards, and yield what was done, line by line; their folder stays.

    Args:
        grafana: Where from.
        dashboards: Those that a push may have put there.

    Raises:
        GrafanaError: Nothing more can be done; what was left undone has been yielded.
    """
    yield _about_grafana(grafana)
    present = {wanted["uid"]: grafana.dashboard(wanted["uid"]) for wanted in dashboards}

    def act(wanted: Model) -> ReportLine:
        before = present[wanted["uid"]]
        if before is None:
            return _about("absent", wanted, grafana)
        if why := _why_not(before):
            return _about("refused", wanted, grafana, why)
        grafana.delete(wanted["uid"])
        return _about("deleted", wanted, grafana)

    yield from _each(grafana, dashboards, act)


def _each(grafana: Grafana, dashboards: Sequence[Model], act: Callable[[Model], ReportLine]) -> Iterator[ReportLine]:
    """Yield what became of each dashboard; one that Grafana rejects is left, and after another error all others are."""
    for number, wanted in enumerate(dashboards):
        try:
            yield act(wanted)
        except RejectedError as error:
            yield _about("failed", wanted, grafana, f"{error}")
        except GrafanaError:
            yield from (_about("not done", left, grafana) for left in dashboards[number:])
            raise


def _why_not(present: Present, *, force: bool = False) -> str:
    """Return why a dashboard stays as it is; empty if it may be changed."""
    if present.file:
        return f"Grafana makes it from the file {present.file}: change or remove it there"
    if TAG not in (present.dashboard.get("tags") or []) and not force:
        return f"vllm-watch did not make it: it lacks the tag {TAG}; push --force takes it for ours"
    return ""


def _choose(sources: Sequence[DataSource], wanted: str) -> DataSource:
    for source in sources:
        if wanted in {source.uid, source.name}:
            return source
    names = ", ".join(f"{source.name} ({source.uid})" for source in sources)
    raise GrafanaError(f"no data source of type Prometheus has the uid or name {wanted}; there are: {names or 'none'}")


def _with_data_source(wanted: Model, source: DataSource) -> Model:
    templating = wanted.get("templating", {})
    current = {"selected": True, "text": source.name, "value": source.uid}
    variables = [
        {**variable, "current": current} if variable.get("type") == "datasource" else variable
        for variable in templating.get("list", [])
    ]
    return {**wanted, "templating": {**templating, "list": variables}}


def _content(model: Model) -> dict[str, Any]:
    return {key: value for key, value in model.items() if key not in _GRAFANAS_OWN}


def _about(word: str, wanted: Model, grafana: Grafana, why: str = "") -> ReportLine:
    """Return the line of a report on a dashboard: what became of it, its URL, and why."""
    title, uid = wanted["title"], wanted["uid"]
    place = f"{grafana.url}/d/{uid}"
    facts = {"dashboard": title, "uid": uid, "url": place, "result": word, **({"why": why} if why else {})}
    return ReportLine(f"{word}: {title} ({place}){why and f': {why}'}", word in _WRONG, facts)


def _about_folder(word: str, title: str) -> ReportLine:
    return ReportLine(f"folder {title}: {word}", facts={"folder": title, "result": word})


def _about_grafana(grafana: Grafana) -> ReportLine:
    version, url = grafana.version(), grafana.url
    return ReportLine(f"Grafana {version}".rstrip() + f" at {url}", facts={"grafana": url, "version": version})
