# SPDX-License-Identifier: Apache-2.0
"""
Twenty minutes of what a daemon lives through in months: logs that are rotated every second, scrapes without end.

Ten servers, each with a log that is written and rotated every second (three generations are kept) and a page that is
read every second; now and then the server answers 503 for a while. The daemon itself is scraped ten times a second,
and it keeps a checkpoint. What is measured is what may grow, and whether every line was read.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import Server, daemon, descriptors, threads
from tests.support.http_servers import StandIn, answer
from tests.support.logs import stats_line
from tests.support.recordings import bodies_of


MINUTES = float(os.environ.get("VLLM_WATCH_SOAK_MINUTES", "20"))
SERVERS = 10
ROTATE_EVERY = 1.0
OWN_SCRAPE_EVERY = 0.1
SAMPLE_EVERY = 5.0
AWAY_EVERY = 60.0
AWAY_SECONDS = 5.0
KEPT = 3
LINES = 20
WARM_UP_SHARE = 0.25


class Sample(NamedTuple):
    """The daemon at one moment."""

    resident: float
    descriptors: int
    threads: int


class RotatedLog:
    """A log that is rotated by renaming, as logrotate does it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        path.touch()

    def write(self) -> None:
        """Append some lines."""
        with self.path.open("ab") as file:
            file.writelines(stats_line(self.lines + number) for number in range(LINES))
        self.lines += LINES

    def rotate(self) -> None:
        """Rename the file and its older generations."""
        for number in range(KEPT - 1, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            if older.exists():
                older.replace(older.with_name(f"{self.path.name}.{number + 1}"))
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self.path.touch()


class Page:
    """The servers' page, or, while they are away, an error."""

    def __init__(self) -> None:
        self._body = bodies_of("day")[0]
        self.is_away = False

    def __call__(self, _request: str) -> list[bytes]:
        """Return the answer in pieces."""
        return [answer(status="503 Service Unavailable") if self.is_away else answer(self._body)]


def measure() -> Iterator[Figure]:
    """Yield what may grow, after warming up and at the end, and what was read of what was written."""
    with tempfile.TemporaryDirectory() as folder:
        logs = [RotatedLog(Path(folder) / f"vllm-{number}.log") for number in range(SERVERS)]
        page = Page()
        with StandIn(page) as server:
            config = _configure(Path(folder), logs, server.port)
            with daemon("--config", str(config)) as watching:
                watching.until_ready()
                samples, rotations, own_scrapes = _run(watching, logs, page)
                time.sleep(2)
                values = _values(watching.get().body.decode())
            scrapes = len(server.requests)
    yield from _report(samples)
    yield Figure("rotations", rotations, "")
    yield Figure("scrapes of servers", scrapes, "")
    yield Figure("scrapes of the daemon", own_scrapes, "")
    written = sum(log.lines for log in logs)
    yield Figure("lines written", written, "")
    yield Figure("lines lost", written - values["vllm_watch_log_lines_total"], "", "lower", 0)
    yield Figure("generations lost", values["vllm_watch_log_files_lost_total"], "", "lower", 0)


def _report(samples: list[Sample]) -> Iterator[Figure]:
    quarter = max(int(len(samples) * WARM_UP_SHARE), 1)
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    for name in Sample._fields:
        before = statistics.median(getattr(sample, name) for sample in early)
        after = statistics.median(getattr(sample, name) for sample in late)
        most = max(getattr(sample, name) for sample in samples)
        unit = "MiB" if name == "resident" else ""
        yield Figure(name, after, unit, "lower", note=f"last quarter; the second {before:.1f}, most {most:.1f}")


def _configure(folder: Path, logs: list[RotatedLog], port: int) -> Path:
    servers = "".join(
        f"  - name: s{number}\n    log: {log.path}\n"
        f"    metrics: {{url: 'http://127.0.0.1:{port}/metrics', interval: 1s}}\n"
        for number, log in enumerate(logs)
    )
    config = folder / "vllm-watch.yml"
    config.write_text(f"checkpoint: {folder}/checkpoint.json\nservers:\n{servers}")
    return config


def _run(watching: Server, logs: list[RotatedLog], page: Page) -> tuple[list[Sample], int, int]:
    samples: list[Sample] = []
    rotations = own_scrapes = 0
    start = time.monotonic()
    for step in itertools.count():
        at = step * OWN_SCRAPE_EVERY
        if at >= MINUTES * 60:
            break
        time.sleep(max(start + at - time.monotonic(), 0))
        for index, log in enumerate(logs):
            if step % round(ROTATE_EVERY / OWN_SCRAPE_EVERY) == index:
                log.write()
                log.rotate()
                log.write()
                rotations += 1
        page.is_away = at % AWAY_EVERY < AWAY_SECONDS
        watching.get()
        own_scrapes += 1
        if step % round(SAMPLE_EVERY / OWN_SCRAPE_EVERY) == 0:
            samples.append(Sample(watching.resident_mebibytes, descriptors(watching.pid), threads(watching.pid)))
    return samples, rotations, own_scrapes


def _values(page: str) -> dict[str, float]:
    """Return each series' sum over all servers."""
    sums: dict[str, float] = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0]
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums
