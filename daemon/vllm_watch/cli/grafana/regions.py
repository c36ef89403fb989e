# SPDX-License-Identifier: Apache-2.0
"""Writes regions of load tests into a Grafana."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from vllm_watch.analysis.loadtest.region import MAX_RUN, Annotation, Region, annotation, run_id, run_tag
from vllm_watch.daemon.catalog.codes import TAG
from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.config.texts import DEFAULT_NAME, check_name, quote
from vllm_watch.daemon.support.errors import UsageError


if TYPE_CHECKING:
    from vllm_watch.cli.grafana.client import Grafana


def region_of_options(time: TimeRange, text: str, server: str | None, run: str | None, tags: Sequence[str]) -> Region:
    """
    Return the region that the options of a command say.

    A line break in the text becomes a space, as Grafana would show it: a region's text is HTML there.
    """
    if not text.strip():
        raise UsageError("--text: expected a line that says what was tested")
    if run is not None and len(run) > MAX_RUN:
        raise UsageError(f"--run: expected at most {MAX_RUN} characters, got {len(run)}")
    for option, name in (("--server", server), ("--run", run)):
        try:
            check_name(name or DEFAULT_NAME)
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from error
    check_tags(tags)
    return Region(time.start, time.end, " ".join(text.split()), run or run_id(time.start, server), server, tuple(tags))


def check_tags(tags: Sequence[str]) -> None:
    """Check tags as the command line has them; raise `UsageError` if one is none."""
    for tag in tags:
        if not tag.strip() or not tag.isprintable() or len(tag) > MAX_RUN:
            raise UsageError(f"--tag: expected 1 to {MAX_RUN} characters without line breaks, got {quote(tag)}")


Outcome = Literal["marked", "replaced", "unchanged"]


def mark_region(grafana: Grafana, region: Region) -> Outcome:
    """
    Write a region into Grafana, in place of those of the same run.

    The new one is written before the old ones are deleted: whatever fails in between, one is there, and the next time
    sets it right.

    Raises:
        RejectedError: The token may not do that; the message names the right that it lacks.
        GrafanaError: There is no connection, no Grafana, or a wrong token.
    """
    wanted = annotation(region, urlsplit(grafana.url).path)
    present = grafana.annotations((TAG, run_tag(region.run)))
    equal = [number for number, found in present.items() if _same(found, wanted)]
    if not equal:
        grafana.annotate(wanted)
    left = [number for number in present if number not in equal[:1]]
    for number in left:
        grafana.delete_annotation(number)
    return "replaced" if left else "unchanged" if equal else "marked"


def _same(one: Annotation, other: Annotation) -> bool:
    """Return whether two annotations are equal; Grafana keeps tags in an order of its own."""
    return one._replace(tags=()) == other._replace(tags=()) and set(one.tags) == set(other.tags)
