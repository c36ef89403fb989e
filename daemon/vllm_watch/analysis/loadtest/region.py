# SPDX-License-Identifier: Apache-2.0
"""
Load tests as regions on Grafana's dashboards: annotations of the whole organization, found by their tags.

An annotation knows no labels of series, so server and run are tags. Its text is HTML for Grafana, and links to the
dashboard of load tests with the region's own time.
"""

from __future__ import annotations

import hashlib
import html

from datetime import datetime, timezone
from typing import NamedTuple
from urllib.parse import quote

from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.daemon.catalog.codes import TAG
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.number_texts import MISSING, moment
from vllm_watch.daemon.config.texts import as_name


DASHBOARD_UID = "vllm-watch-load-test"

MAX_RUN = 90
"""Characters of a run's id: some databases of Grafana's keep 100 of a tag's value."""

_DIGITS = 8
_MAX_SERVER = 100
_SCRAPED_AFTER = 20
"""Seconds after which the last requests of a test have been scraped by vllm-watch, and that by Prometheus."""


class Region(NamedTuple):
    """A load test, in seconds since the epoch, and its result in a line; a second one of the same `run` replaces it."""

    start: float
    end: float
    text: str
    run: str
    server: str | None = None
    tags: tuple[str, ...] = ()


class Annotation(NamedTuple):
    """An annotation as Grafana keeps it: its text is HTML, and its times are milliseconds since the epoch."""

    start: int
    end: int
    text: str
    tags: tuple[str, ...]

    def has_same(self, other: Annotation) -> bool:
        """Return whether it is equal to another one; Grafana keeps tags in an order of its own."""
        return self._replace(tags=()) == other._replace(tags=()) and set(self.tags) == set(other.tags)


def region_of(run: Run, tags: tuple[str, ...] = ()) -> Region | None:
    """Return the region of a run; `None` if it is not known when it ran."""
    if run.start is None or run.end is None or run.end <= run.start or MISSING in {moment(run.start), moment(run.end)}:
        return None
    text = f"{run.name}: {listed(_result(run))}"
    return Region(run.start, run.end, text, run_id(run.start, run.name), run.server, tags)


def run_id(start: float, name: str | None = None) -> str:
    """Return an id for a run: its start in UTC after its name, of which a hash stands for what is long or no ASCII."""
    began = datetime.fromtimestamp(start, timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    if not name:
        return began
    room = MAX_RUN - len(began) - 1
    if name.isascii() and len(name) <= room:
        return f"{as_name(name)}-{began}"
    digits = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_DIGITS]
    return f"{as_name(name)[: room - _DIGITS - 1]}-{digits}-{began}"


def annotation(region: Region, prefix: str = "") -> Annotation:
    """Return what a region is in a Grafana that is served below a path."""
    own = (TAG, "loadtest", *([f"server:{region.server[:_MAX_SERVER]}"] if region.server else []), run_tag(region.run))
    return Annotation(
        round(region.start * 1000),
        round(region.end * 1000),
        f'{html.escape(region.text)}<br><a href="{html.escape(prefix + path(region))}">{_("Load test")}</a>',
        (*own, *(tag for tag in dict.fromkeys(region.tags) if tag not in own)),
    )


def run_tag(run: str) -> str:
    """Return the tag that the region of a run is found by."""
    return f"run:{run}"


def path(region: Region) -> str:
    """Return where the dashboard of load tests shows a region, to where its last requests have been scraped."""
    end = round((region.end + _SCRAPED_AFTER) * 1000)
    server = f"&var-server={quote(region.server, safe='')}" if region.server else ""
    return f"/d/{DASHBOARD_UID}?from={round(region.start * 1000)}&to={end}{server}"


def _result(run: Run) -> list[str]:
    result = run.result
    if result is None:
        return [_("no result")]
    ttft, tpot = result.ttft_ms, result.tpot_ms
    values = (
        (result.successful, N_("{value:d} requests ok")),
        (result.failed, N_("{value:d} failed")),
        (result.request_throughput, N_("{value:.4g} requests/s")),
        (result.output_throughput, N_("{value:.4g} tokens/s")),
        (ttft and ttft.mean, N_("TTFT mean {value:.4g} ms")),
        (tpot and tpot.mean, N_("TPOT mean {value:.4g} ms")),
    )
    return [_(text, value=value) for value, text in values if value is not None] or [_("no result")]
