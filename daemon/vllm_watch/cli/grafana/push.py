# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch grafana push``: dashboards into a running Grafana, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vllm_watch.cli.grafana.diff import json_changes, panel_changes
from vllm_watch.cli.grafana.model import FOLDER_UID, Dashboard, DataSource, with_data_source
from vllm_watch.cli.grafana.plan import Action, Present, about, about_folder, about_grafana, plan_push
from vllm_watch.daemon.support.errors import GrafanaError, RejectedError
from vllm_watch.daemon.support.printable import ReportLine


if TYPE_CHECKING:
    from vllm_watch.cli.grafana.client import Grafana


class PushOptions(NamedTuple):
    """
    How to push.

    Args:
        folder_title: Of the folder, if it has to be created.
        data_source: Name or uid of the one that the dashboards open with; Grafana's choice if `None`.
        force: Overwrite what others made or changed.
        dry_run: Change nothing.
        diff_lines: How many lines of JSON to show for each dashboard that differs.
    """

    folder_title: str = "vLLM"
    data_source: str | None = None
    force: bool = False
    dry_run: bool = False
    diff_lines: int = 20


Shown = Callable[[Sequence[Dashboard]], Iterable[Dashboard]]
"""Goes through dashboards and shows on a terminal how far it is."""


class _Step(NamedTuple):
    wanted: Dashboard
    present: Present | None
    action: Action


def push(grafana: Grafana, dashboards: Sequence[Dashboard], options: PushOptions, shown: Shown) -> Iterator[ReportLine]:
    """
    Push dashboards, and yield what was found and done, line by line.

    Raises:
        GrafanaError: Nothing more can be done; what was left undone has been yielded.
    """
    yield about_grafana(grafana.version(), grafana.url)
    folder = grafana.folder()
    chosen = yield from _data_source(grafana, options.data_source)
    if chosen is not None and options.data_source is not None:
        dashboards = [with_data_source(dashboard, chosen) for dashboard in dashboards]
    steps = [_look(grafana, dashboard, options) for dashboard in shown(dashboards)]
    if folder is not None:
        yield about_folder("found", folder.title)
    elif any(step.action.kind == "create" for step in steps):
        yield _make_folder(grafana, options)
    yield from _apply(grafana, steps, options)


def _data_source(grafana: Grafana, wanted: str | None) -> Generator[ReportLine, None, DataSource | None]:
    """Yield how the data source is; return it, or `None` if the token may not know."""
    try:
        found = grafana.data_sources()
    except RejectedError as error:
        if wanted is not None:
            raise
        warning = f"{error}; so they were not checked"
        yield ReportLine(f"warning: {warning}", facts={"warning": warning})
        return None
    source = choose(found, wanted)
    seen = _seen(grafana, source)
    facts = {"data_source": source.name, "uid": source.uid, "finding": seen}
    yield ReportLine(f"data source {source.name} ({source.uid}): {seen}", facts=facts)
    return source


def choose(found: Sequence[DataSource], wanted: str | None) -> DataSource:
    """
    Return the data source with this uid or name; without one, the one that Grafana would open a dashboard with.

    Raises:
        GrafanaError: There is none.
    """
    if not found:
        raise GrafanaError(
            "there is no data source of type Prometheus that the token sees: add the Prometheus that scrapes vllm-watch"
        )
    if wanted is None:
        return next((source for source in found if source.is_default), found[0])
    for source in found:
        if wanted in {source.uid, source.name}:
            return source
    names = ", ".join(f"{source.name} ({source.uid})" for source in found)
    raise GrafanaError(f"no data source of type Prometheus has the uid or name {wanted}; there are: {names}")


def _seen(grafana: Grafana, source: DataSource) -> str:
    try:
        daemons = grafana.daemons_seen(source)
    except GrafanaError as error:
        return f"warning: could not ask it for series of vllm-watch: {error}"
    if not daemons:
        return "warning: no series of vllm-watch in it; let this Prometheus scrape the daemon"
    return f"has the series of {daemons} daemon{'s' if daemons > 1 else ''}"


def _look(grafana: Grafana, wanted: Dashboard, options: PushOptions) -> _Step:
    present = grafana.dashboard(wanted.uid)
    return _Step(wanted, present, plan_push(wanted, present, force=options.force))


def _make_folder(grafana: Grafana, options: PushOptions) -> ReportLine:
    if options.dry_run:
        return about_folder("would be created", options.folder_title)
    return about_folder("created", grafana.make_folder(options.folder_title).title)


_WORDS = {"create": "created", "update": "updated"}


def _apply(grafana: Grafana, steps: Sequence[_Step], options: PushOptions) -> Iterator[ReportLine]:
    for number, step in enumerate(steps):
        try:
            yield from _apply_one(grafana, step, options)
        except RejectedError as error:
            yield about("failed", step.wanted, grafana.url, f"{error}")
        except GrafanaError:
            yield from (about("not done", left.wanted, grafana.url) for left in steps[number:])
            raise


def _apply_one(grafana: Grafana, step: _Step, options: PushOptions) -> Iterator[ReportLine]:
    """Save a dashboard if that is planned, and yield what became of it."""
    wanted, present, action = step
    if action.kind == "refuse":
        yield about("refused", wanted, grafana.url, action.why)
        return
    if action.kind == "unchanged":
        yield about("unchanged", wanted, grafana.url)
        return
    if not options.dry_run:
        _save(grafana, wanted, present)
    word = _WORDS[action.kind]
    yield about(f"would be {word}" if options.dry_run else word, wanted, grafana.url)
    if present is not None:
        yield from _differences(present, wanted, options.diff_lines)


def _save(grafana: Grafana, wanted: Dashboard, present: Present | None) -> None:
    # Who moved a dashboard into another folder finds it there again.
    grafana.save(
        wanted,
        version=present.version if present else 0,
        folder_uid=present.folder_uid if present else FOLDER_UID,
    )


def _differences(present: Present, wanted: Dashboard, limit: int) -> Iterator[ReportLine]:
    for line in panel_changes(present.model, wanted.model):
        yield ReportLine(f"  {line}")
    for line in json_changes(present.model, wanted.model, limit):
        yield ReportLine(f"    {line}")
