# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch grafana delete``: takes away what a push made, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vllm_watch.cli.grafana.model import FOLDER_UID, Dashboard
from vllm_watch.cli.grafana.plan import Action, Present, about, about_folder, about_grafana, plan_delete
from vllm_watch.daemon.support.errors import GrafanaError, RejectedError
from vllm_watch.daemon.support.printable import ReportLine


if TYPE_CHECKING:
    from vllm_watch.cli.grafana.client import Grafana
    from vllm_watch.cli.grafana.push import Shown


class DeleteOptions(NamedTuple):
    """
    How to delete.

    Args:
        force: Delete also what others changed since the push.
        dry_run: Change nothing.
        confirm: Asked with the number of dashboards before the first is deleted; it raises to give up.
    """

    force: bool
    dry_run: bool
    confirm: Callable[[int], None]


class _Step(NamedTuple):
    dashboard: Dashboard
    present: Present | None
    action: Action


def delete(
    grafana: Grafana, dashboards: Sequence[Dashboard], options: DeleteOptions, shown: Shown
) -> Iterator[ReportLine]:
    """
    Delete our dashboards and the folder if it is empty then, and yield what was done, line by line.

    Raises:
        GrafanaError: Nothing more can be done; what was left undone has been yielded.
    """
    yield about_grafana(grafana.version(), grafana.url)
    folder = grafana.folder()
    steps = [_look(grafana, dashboard, force=options.force) for dashboard in shown(dashboards)]
    ours = [step for step in steps if step.action.kind == "delete"]
    if ours and not options.dry_run:
        options.confirm(len(ours))
    yield from _apply(grafana, steps, options)
    if folder is not None:
        here = sum(step.present is not None and step.present.folder_uid == FOLDER_UID for step in ours)
        yield _folder(grafana, folder.title, here if options.dry_run else 0, options)


def _look(grafana: Grafana, dashboard: Dashboard, *, force: bool) -> _Step:
    present = grafana.dashboard(dashboard.uid)
    return _Step(_as_present(dashboard, present), present, plan_delete(present, force=force))


def _as_present(dashboard: Dashboard, present: Present | None) -> Dashboard:
    """Return the dashboard under the title that it has in Grafana."""
    return dashboard if present is None else dashboard._replace(title=str(present.model.get("title", dashboard.title)))


def _apply(grafana: Grafana, steps: Sequence[_Step], options: DeleteOptions) -> Iterator[ReportLine]:
    for number, step in enumerate(steps):
        try:
            yield _apply_one(grafana, step, options)
        except RejectedError as error:
            yield about("failed", step.dashboard, grafana.url, f"{error}")
        except GrafanaError:
            yield from (about("not done", left.dashboard, grafana.url) for left in steps[number:])
            raise


def _apply_one(grafana: Grafana, step: _Step, options: DeleteOptions) -> ReportLine:
    if step.action.kind == "refuse":
        return about("refused", step.dashboard, grafana.url, step.action.why)
    if step.action.kind == "absent":
        return about("absent", step.dashboard, grafana.url)
    if options.dry_run:
        return about("would be deleted", step.dashboard, grafana.url)
    grafana.delete(step.dashboard.uid)
    return about("deleted", step.dashboard, grafana.url)


def _folder(grafana: Grafana, title: str, going: int, options: DeleteOptions) -> ReportLine:
    """
    Delete the folder if nothing is in it.

    Args:
        grafana: Where it is.
        title: The folder's.
        going: How many dashboards in it a dry run would have deleted.
        options: How to delete.
    """
    try:
        left = grafana.folder_contents() - going
        if left:
            return about_folder("left", title, f", for {left} thing{'s are' if left > 1 else ' is'} in it")
        if options.dry_run:
            return about_folder("would be deleted", title)
        grafana.delete_folder()
    except RejectedError as error:
        return about_folder("left", title, f": {error}", is_wrong=True)
    return about_folder("deleted", title)
