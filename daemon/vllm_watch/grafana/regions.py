# SPDX-License-Identifier: Apache-2.0
"""
Load tests as regions on all dashboards: annotations of Grafana's whole organization, found by their tags.

An annotation knows no labels of series, so server and run are tags. Its text is HTML for Grafana, and links to the
dashboard of load tests with the region's own time.
"""

from __future__ import annotations

import html

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import quote as quote_url
from urllib.parse import urlsplit

from vllm_watch.config.quoting import quote
from vllm_watch.config.texts import DEFAULT_NAME, as_name, check_name
from vllm_watch.config.times import TimeRange
from vllm_watch.grafana.model import TAG, Annotation
from vllm_watch.support.errors import UsageError


if TYPE_CHECKING:
    from vllm_watch.grafana.client import Grafana


DASHBOARD_UID = "vllm-watch-load-test"

MAX_RUN = 90
"""Characters of a run's id: some databases of Grafana's keep 100 of a tag's value."""

_MAX_SERVER = 100
_SCRAPED_AFTER = 20
"""Seconds after which the last requests of a test have been scraped by vllm-watch, and that by Prometheus."""


class Region(NamedTuple):
    """
    A load test.

    Args:
        start: When it began, in seconds since the epoch.
        end: When it ended.
        text: What came out of it, as one line of plain text.
        run: Its id: a second region of this id replaces the first.
        server: The server's name, if it is known.
        tags: More tags.
    """

    start: float
    end: float
    text: str
    run: str
    server: str | None = None
    tags: tuple[str, ...] = ()


def region_of_options(time: TimeRange, text: str, server: str | None, run: str | None, tags: Sequence[str]) -> Region:
    """
    Return the region that the options of a command say.

    A line break in the text becomes a space, as Grafana would show it: a region's text is HTML there.

    Raises:
        UsageError: One of them is not what it has to be.
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
    for tag in tags:
        if not tag.strip() or not tag.isprintable() or len(tag) > MAX_RUN:
            raise UsageError(f"--tag: expected 1 to {MAX_RUN} characters without line breaks, got {quote(tag)}")
    return Region(time.start, time.end, " ".join(text.split()), run or run_id(time.start, server), server, tuple(tags))


Outcome = Literal["marked", "replaced", "unchanged"]


def run_id(start: float, name: str | None = None) -> str:
    """Return an id for a run that was given none: its start in UTC, after the name of what was tested."""
    moment = datetime.fromtimestamp(start, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    return f"{as_name(name)[: MAX_RUN - len(moment) - 1]}-{moment}" if name else moment


def mark_region(grafana: Grafana, region: Region) -> Outcome:
    """
    Write a region into Grafana, in place of those of the same run.

    The new one is written before the old ones are deleted: whatever fails in between, one is there, and the next time
    sets it right.

    Raises:
        RejectedError: The token may not do that; the message names the right that it lacks.
        GrafanaError: There is no connection, no Grafana, or a wrong token.
    """
    wanted = annotation(region, grafana.url)
    present = grafana.annotations((TAG, _run_tag(region.run)))
    equal = [number for number, found in present.items() if _same(found, wanted)]
    if not equal:
        grafana.annotate(wanted)
    left = [number for number in present if number not in equal[:1]]
    for number in left:
        grafana.delete_annotation(number)
    return "replaced" if left else "unchanged" if equal else "marked"


def annotation(region: Region, url: str) -> Annotation:
    """Return what a region is in the Grafana at an address."""
    own = (TAG, "loadtest", *([f"server:{region.server[:_MAX_SERVER]}"] if region.server else []), _run_tag(region.run))
    return Annotation(
        round(region.start * 1000),
        round(region.end * 1000),
        f'{html.escape(region.text)}<br><a href="{html.escape(urlsplit(url).path + path(region))}">Load test</a>',
        (*own, *(tag for tag in dict.fromkeys(region.tags) if tag not in own)),
    )


def _run_tag(run: str) -> str:
    return f"run:{run}"


def path(region: Region) -> str:
    """Return where the dashboard of load tests shows a region, to where its last requests have been scraped."""
    end = round((region.end + _SCRAPED_AFTER) * 1000)
    server = f"&var-server={quote_url(region.server, safe='')}" if region.server else ""
    return f"/d/{DASHBOARD_UID}?from={round(region.start * 1000)}&to={end}{server}"


def _same(one: Annotation, other: Annotation) -> bool:
    """Return whether two annotations are equal; Grafana keeps tags in an order of its own."""
    return one._replace(tags=()) == other._replace(tags=()) and set(one.tags) == set(other.tags)
