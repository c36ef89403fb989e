# SPDX-License-Identifier: Apache-2.0
"""
What lines cost that arrive one by one, beside mtail on the same log.

One server for each rate: its log is written line by line, its page is read every 5 s, and the daemon's own page, too.
"""

from __future__ import annotations

import tempfile
import time

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.figures import Figure
from tests.benchmarks.programs import Server, daemon, has_mtail, mtail, passing, writer
from tests.support.recordings import bodies_of

from vllm_watch.cli.commands.demo import StandIn


GOALS = {0: None, 20: 0.5, 100: 1.0, 500: 2.0, 5000: 8.0}
"""Lines a second, and the share of a core in per cent that they may cost."""

TOGETHER = ((0, 20, 100, 500), (5000,))
"""What is measured at the same time: the few lines cost little beside each other."""

MEMORY_AT = 100
WARM_UP = 8.0
SECONDS = 25.0
OWN_SCRAPE = 5.0
NOISE = 0.03
LEAST_READ = 0.9
"""Which share of the lines has to be read: a daemon that reads none costs nothing."""

PROGRAM = "lean.mtail"


def measure() -> Iterator[Figure]:
    """Yield the share of a core for each rate, of the daemon and of mtail, and the daemon's memory."""
    for rates in TOGETHER:
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            yield from _measure(Path(folder), rates, stack)


def _measure(folder: Path, rates: tuple[int, ...], stack: ExitStack) -> Iterator[Figure]:
    page = StandIn()
    page.answer(bodies_of("day")[0])
    stack.callback(page.refuse)
    ours: dict[int, Server] = {}
    theirs: dict[int, Server] = {}
    for rate in rates:
        log = folder / f"{rate}" / "vllm.log"
        log.parent.mkdir()
        log.touch()
        url = f"http://127.0.0.1:{page.port}/metrics"
        ours[rate] = stack.enter_context(daemon("--log", str(log), "--metrics", url))
        ours[rate].until_ready()
        if has_mtail():
            theirs[rate] = stack.enter_context(mtail(log, PROGRAM))
            theirs[rate].until_ready("/metrics")
        if rate:
            stack.enter_context(writer([log], rate))
    servers = [*ours.values(), *theirs.values()]
    passing(servers, WARM_UP, OWN_SCRAPE)
    read = {rate: server.lines_read() for rate, server in ours.items()}
    before = {server: server.processor_seconds for server in servers}
    start = time.monotonic()
    passing(servers, SECONDS, OWN_SCRAPE)
    elapsed = time.monotonic() - start
    share = {server: (server.processor_seconds - before[server]) / elapsed * 100 for server in servers}
    for rate, server in ours.items():
        if server.lines_read() - read[rate] < LEAST_READ * rate * elapsed:
            raise RuntimeError(f"of {rate} lines/s only {(server.lines_read() - read[rate]) / elapsed:.0f} were read")
    for rate in rates:
        yield from _report(rate, share[ours[rate]], share[theirs[rate]] if theirs else None)
    if MEMORY_AT in ours:
        yield Figure("memory, one server", ours[MEMORY_AT].resident_mebibytes, "MiB", "lower")


def _report(rate: int, own: float, other: float | None) -> Iterator[Figure]:
    name = f"{rate:,} lines/s"
    yield Figure(name, own, "% of a core", "lower", GOALS[rate], is_processor=True, noise=NOISE)
    if other is None:
        yield Figure(f"{name}: mtail", None, "% of a core", note="mtail is not installed")
    else:
        yield Figure(f"{name}: mtail", other, "% of a core", note=f"{own / other:.1f} times as much is ours")
