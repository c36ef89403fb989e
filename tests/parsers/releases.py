# SPDX-License-Identifier: Apache-2.0
"""The corpus: logs and pages of eight releases, and what a perfect reader finds in them."""

from __future__ import annotations

import json

from functools import cache
from typing import Any, NamedTuple

from tests.parsers.lines import read_line
from tests.support.corpus import CORPUS, bodies

from vllm_watch.daemon.reading.log_reader import LogReader, TimedEvent
from vllm_watch.daemon.reading.times import PrintedTimes
from vllm_watch_parsers.events import Event, KvTransfers, Notice, StartupDetail


RELEASES = ("0.5.5", "0.6.6", "0.7.3", "0.8.5", "0.10.2", "0.12.0", "0.20.2", "0.33.0")

PAGES = tuple(
    (file.parent.name, file.name.removesuffix("expected.json"))
    for release in RELEASES
    for file in sorted((CORPUS / release).glob("metrics*_expected.json"))
)
"""Release and file name prefix of each pair of /metrics pages."""

_KINDS = {
    "AccessRequest": "access",
    "EngineStats": "engine_stats",
    "Failure": "failure",
    "Lifecycle": "lifecycle",
    "SleepOrPause": "pause",
    "AdapterChange": "adapter_change",
    "AchievedWork": "achieved_work",
    "DiffusionDecoding": "diffusion_decoding",
    "SpecDecoding": "spec_decoding",
    "StartupFact": "startup_fact",
}


class Expected(NamedTuple):
    """One record of `expected.json`."""

    line: int
    kind: str
    engine: str | None
    fields: dict[str, Any]
    session: int
    extra: dict[str, Any]

    @property
    def is_optional(self) -> bool:
        """Whether a reader may leave it out."""
        return self.extra.get("optional", False)

    def stands_on(self, line: int) -> bool:
        """Tell whether a reader may find it on a line."""
        first, last = self.extra.get("accept_lines", (self.line, self.line))
        return first <= line <= last


class Found(NamedTuple):
    """An event, and the line on which the reader found it."""

    line: int
    event: Event

    @property
    def kind(self) -> str:
        """The kind of record that the event is."""
        return _KINDS[type(self.event).__name__]


def log_lines(release: str) -> list[bytes]:
    """Return a log's lines without their line ends."""
    return (CORPUS / release / "vllm.log").read_bytes().removesuffix(b"\n").split(b"\n")


@cache
def expected_records(release: str) -> tuple[Expected, ...]:
    """Return what is to be found in a release's log."""
    records = json.loads((CORPUS / release / "expected.json").read_text())
    return tuple(Expected(**{"extra": {}, **record}) for record in records)


@cache
def read_events(release: str) -> tuple[tuple[int, TimedEvent], ...]:
    """Return all that the reader finds in a release's log, with the number of its line."""
    reader, times = LogReader(), PrintedTimes("11-21 23:00:00", 1_795_302_000.0)
    lines = enumerate(log_lines(release), start=1)
    return tuple((number, timed) for number, line in lines for timed in read_line(reader, line, times))


@cache
def found_events(release: str) -> tuple[Found, ...]:
    """Return what the reader finds in a release's log, but for details of the start and notices on the log."""
    return tuple(
        Found(number, timed.event)
        for number, timed in read_events(release)
        if not isinstance(timed.event, Notice | StartupDetail | KvTransfers)
    )


def page(release: str, name: str) -> bytes:
    """Return a /metrics page."""
    return bodies(release)[name]


def expected_page(release: str, prefix: str) -> dict[str, Any]:
    """Return what a pair of pages says."""
    return json.loads((CORPUS / release / f"{prefix}expected.json").read_text())
