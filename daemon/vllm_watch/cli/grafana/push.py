# SPDX-License-Identifier: Apache-2.0
"""
``vllm-watch grafana push`` and ``delete``: the package's dashboards into a running Grafana, and out of it.

A dashboard is ours if it has our uid and our tag. What a push overwrites stays in Grafana's own history of it.
"""

from __future__ import annotations

import json

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

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


class PushOptions(NamedTuple):
    """
    How to push.

    Args:
        folder_title: Of the folder, if it has to be created.
        data_source: Name or uid of the one that the dashboards open with; Grafana's choice if `None`.
        force: Overwrite what lacks our tag.
        dry_run: Change nothing.
    """

    folder_title: str = "vLLM"
    data_source: str | None = None
    force: bool = False
    dry_run: bool = False


def packaged(language: Language) -> list[Model]:
    """Return the package's dashboards with texts in a language, in the order of their uids."""
    folder = files("vllm_watch.cli.grafana") / "dashboards" / language
    # The folder is a symbolic link in the source tree; a checkout without links has a file in its place.
    if not folder.is_dir():
        raise GrafanaError("this installation has no dashboards: reinstall the package vllm-watch")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    return [json.loads((folder / name).read_text(encoding="utf-8")) for name in names]


def push(grafana: Grafana, dashboards: Sequence[Model], options: PushOptions) -> Iterator[ReportLine]:
    """
    Push dashboards, and yield what was found and done, line by line.

    Raises:
        GrafanaError: Nothing more can be done; what was left undone has been yielded.
    """
    yield _about_grafana(grafana)
    folder = grafana.folder()
    source = yield from _data_source(grafana, options.data_source)
    if source is not None and options.data_source is not None:
        dashboards = [_with_data_source(wanted, source) for wanted in dashboards]
    present = {wanted["uid"]: grafana.dashboard(wanted["uid"]) for wanted in dashboards}
    if folder is not None:
        yield _about_folder("found", folder.title)
    elif options.dry_run and not all(present.values()):
        yield _about_folder("would be created", options.folder_title)
    elif not all(present.values()):
        yield _about_folder("created", grafana.make_folder(options.folder_title).title)
    yield from _each(grafana, dashboards, lambda wanted: _push_one(grafana, wanted, present[wanted["uid"]], options))


def delete(
    grafana: Grafana, dashboards: Sequence[Model], confirm: Callable[[int], None], *, force: bool, dry_run: bool
) -> Iterator[ReportLine]:
    """
    Delete our dashboards and the folder if it is empty then, and yield what was done, line by line.

    Args:
        grafana: Where from.
        dashboards: Those that a push may have put there.
        confirm: Asked with the number of dashboards before the first is deleted; it raises to give up.
        force: Delete also what lacks our tag.
        dry_run: Change nothing.

    Raises:
        GrafanaError: Nothing more can be done; what was left undone has been yielded.
    """
    yield _about_grafana(grafana)
    folder = grafana.folder()
    present = {wanted["uid"]: grafana.dashboard(wanted["uid"]) for wanted in dashboards}
    going = [found for found in present.values() if found and not _why_not(found, force=force)]
    if going and not dry_run:
        confirm(len(going))

    def act(wanted: Model) -> ReportLine:
        found = present[wanted["uid"]]
        if found is None:
            return _about("absent", wanted, grafana)
        shown = {**wanted, "title": str(found.dashboard.get("title", wanted["title"]))}  # As it is called in Grafana.
        if why := _why_not(found, force=force):
            return _about("refused", shown, grafana, why)
        if not dry_run:
            grafana.delete(wanted["uid"])
        return _about("would be deleted" if dry_run else "deleted", shown, grafana)

    yield from _each(grafana, dashboards, act)
    if folder is not None:
        inside = sum(found.meta.folder_uid == folder.uid for found in going) if dry_run else 0
        yield _delete_folder(grafana, folder.title, inside, dry_run=dry_run)


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


def _push_one(grafana: Grafana, wanted: Model, present: Present | None, options: PushOptions) -> ReportLine:
    if present is not None:
        if _content(present.dashboard) == _content(wanted):
            return _about("unchanged", wanted, grafana)
        if why := _why_not(present, force=options.force):
            return _about("refused", wanted, grafana, why)
    if not options.dry_run:
        grafana.save({**_content(wanted), "uid": wanted["uid"]}, present)
    word = "created" if present is None else "updated"
    return _about(f"would be {word}" if options.dry_run else word, wanted, grafana)


def _why_not(present: Present, *, force: bool) -> str:
    """Return why a dashboard stays as it is; empty if it may be changed."""
    if present.file:
        return f"Grafana makes it from the file {present.file}: change or remove it there"
    if TAG not in (present.dashboard.get("tags") or []) and not force:
        return f"vllm-watch did not make it: it lacks the tag {TAG}; --force takes it for ours"
    return ""


def _delete_folder(grafana: Grafana, title: str, going: int, *, dry_run: bool) -> ReportLine:
    """Delete the folder if nothing is in it; `going` is how many dashboards in it a dry run would have deleted."""
    try:
        left = grafana.folder_contents() - going
        if left:
            return _about_folder("left", title, f", for {left} thing{'s are' if left > 1 else ' is'} in it")
        if dry_run:
            return _about_folder("would be deleted", title)
        grafana.delete_folder()
    except RejectedError as error:
        return _about_folder("left", title, f": {error}", is_wrong=True)
    return _about_folder("deleted", title)


def _data_source(grafana: Grafana, wanted: str | None) -> Generator[ReportLine, None, DataSource | None]:
    """Yield how the data source is; return it, or `None` if the token may not know."""
    try:
        sources = grafana.data_sources()
    except RejectedError as error:
        if wanted is not None:
            raise
        warning = f"{error}; so they were not checked"
        yield ReportLine(f"warning: {warning}", facts={"warning": warning})
        return None
    source = _choose(sources, wanted)
    finding = _series_in(grafana, source)
    facts = {"data_source": source.name, "uid": source.uid, "finding": finding}
    yield ReportLine(f"data source {source.name} ({source.uid}): {finding}", facts=facts)
    return source


def _choose(sources: Sequence[DataSource], wanted: str | None) -> DataSource:
    """Return the data source with this uid or name; without one, the one that Grafana would open a dashboard with."""
    if not sources:
        raise GrafanaError(
            "there is no data source of type Prometheus that the token sees: add the Prometheus that scrapes vllm-watch"
        )
    if wanted is None:
        return next((source for source in sources if source.is_default), sources[0])
    for source in sources:
        if wanted in {source.uid, source.name}:
            return source
    names = ", ".join(f"{source.name} ({source.uid})" for source in sources)
    raise GrafanaError(f"no data source of type Prometheus has the uid or name {wanted}; there are: {names}")


def _series_in(grafana: Grafana, source: DataSource) -> str:
    try:
        daemons = grafana.daemons_seen(source)
    except GrafanaError as error:
        return f"warning: could not ask it for series of vllm-watch: {error}"
    if not daemons:
        return "warning: no series of vllm-watch in it; let this Prometheus scrape the daemon"
    return f"has the series of {daemons} daemon{'s' if daemons > 1 else ''}"


def _with_data_source(wanted: Model, source: DataSource) -> Model:
    """Return the dashboard opening with this data source."""
    templating = wanted.get("templating", {})
    current = {"selected": True, "text": source.name, "value": source.uid}
    variables = [
        {**variable, "current": current} if variable.get("type") == "datasource" else variable
        for variable in templating.get("list", [])
    ]
    return {**wanted, "templating": {**templating, "list": variables}}


def _content(model: Model) -> dict[str, Any]:
    """Return what somebody made of a dashboard, without what Grafana adds to every one."""
    return {key: value for key, value in model.items() if key not in _GRAFANAS_OWN}


def _about(word: str, wanted: Model, grafana: Grafana, why: str = "") -> ReportLine:
    """Return the line of a report on a dashboard: what became of it, its URL, and why."""
    title, uid = wanted["title"], wanted["uid"]
    place = f"{grafana.url}/d/{uid}"
    facts = {"dashboard": title, "uid": uid, "url": place, "result": word, **({"why": why} if why else {})}
    return ReportLine(f"{word}: {title} ({place}){why and f': {why}'}", word in _WRONG, facts)


def _about_folder(word: str, title: str, why: str = "", *, is_wrong: bool = False) -> ReportLine:
    facts = {"folder": title, "result": word, **({"why": why.lstrip(",: ")} if why else {})}
    return ReportLine(f"folder {title}: {word}{why}", is_wrong, facts)


def _about_grafana(grafana: Grafana) -> ReportLine:
    version, url = grafana.version(), grafana.url
    return ReportLine(f"Grafana {version}".rstrip() + f" at {url}", facts={"grafana": url, "version": version})
