# SPDX-License-Identifier: Apache-2.0
"""
Measurements, printed as a table: ``make bench`` runs all but the long ones, ``make bench ARGS=once`` one of them.

lines        what lines cost that arrive one by one, 0 to 5,000 a second, beside mtail
many         what 200 servers cost one daemon, how long its pages take, and what else waits for them
once         `once` and `backfill` on a log of a million lines, beside `mtail --one_shot` on the same lines
start        how long short commands take, and the daemon until it is ready
scrape       what one scrape of a recorded page costs, beside prometheus_client's parser, and of pages that are wild
gpu          what reading eight GPUs costs, in the child process and in the daemon
top          what `vllm-watch top` costs with one server and with 200, and how soon it shows them
soak         20 minutes of rotations and scrapes: what grows, and what is lost (not run unless it is named)

Each figure is compared with that of the last release in figures.json. The exit status is 1 if one is worse by more than
a fifth. ``make bench ARGS=--keep`` keeps the figures of the run instead, and writes them into the documents.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import signal
import statistics
import sys
import time

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.benchmarks import (
    gpu,
    lines,
    many,
    once,
    scrape,
    soak,
    start,
    terminal,
)
from tests.benchmarks.cost_table import TABLES, filled
from tests.benchmarks.figures import Change, Figure, Kept, KeptBenchmark, compare, kept_values, row

from vllm_watch import __version__


KEPT = Path(__file__).with_name("figures.json")
BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "lines": lines.measure,
    "many": many.measure,
    "once": once.measure,
    "start": start.measure,
    "scrape": scrape.measure,
    "gpu": gpu.measure,
    "top": terminal.measure,
    "soak": soak.measure,
}
LONG = frozenset({"soak"})
CALIBRATIONS = 5
"""How often the calibration runs before and after a benchmark; its median counts."""

LOOPS = 30_000
LINE = 'INFO:     127.0.0.1:43210 - "POST /v1/completions HTTP/1.1" 200 OK'
PATTERN = re.compile(r'INFO: +(\S+) - "([A-Z]+) (\S+) HTTP/[\d.]+" (\d{3})')


def machine() -> str:
    """Return the kind of this machine."""
    found = re.search(r"(?m)^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text())
    processor = found[1] if found else platform.machine()
    python = ".".join(platform.python_version_tuple()[:2])
    return f"{len(os.sched_getaffinity(0))} cores, {processor}, Python {python}"


def calibrate() -> float:
    """Return the processor time of a fixed piece of work, in seconds: a pattern, a split and a count for each line."""
    start = time.process_time()
    counts: dict[tuple[str, str], int] = {}
    for number in range(LOOPS):
        found = PATTERN.match(LINE)
        assert found
        key = (found[3], str(number % 100))
        counts[key] = counts.get(key, 0) + len(LINE.split())
    return time.process_time() - start


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Let SIGTERM end what is measured as well: by default it would outlive this process."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@_ending_in_order()
def main(arguments: list[str]) -> int:
    """Run the named benchmarks, or all but the long ones; return 1 if something is worse than it was."""
    parser = argparse.ArgumentParser(prog="make bench", description="Measure, and compare with the last release.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--keep", action="store_true", help=f"write the figures to {KEPT.name} and the documents")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    here = machine()
    last = msgspec.json.decode(KEPT.read_bytes(), type=Kept) if KEPT.exists() else None
    if options.keep and options.names and (last is None or (last.version, last.machine) != (__version__, here)):
        parser.error(f"{KEPT.name} is not of this version and kind of machine: keep a whole run, and name none")
    kept = None if options.keep else last
    _introduce(here, kept)
    measured: dict[str, KeptBenchmark] = {}
    said: dict[str, list[str]] = {"gone": [], "worse": []}
    for name in options.names or [name for name in BENCHMARKS if name not in LONG]:
        measured[name], changes = _run(name, kept.benchmarks.get(name) if kept else None)
        for figure, change in changes:
            if change is not None and change.kind in said:
                said[change.kind].append(f"{name}: {' '.join(row(figure, change).split())}")
    if options.keep:
        others = last.benchmarks if last and options.names else {}
        _keep(Kept(__version__, time.strftime("%Y-%m-%d"), here, {**others, **measured}))
    if kept:
        _conclude(said, kept)
    return 1 if said["worse"] else 0


def _introduce(here: str, kept: Kept | None) -> None:
    print(here)
    if kept is not None:
        print(f"Compared with {kept.version} of {kept.date}: {kept.machine}")
        if here != kept.machine:
            print("That was another kind of machine: processor time is compared by what a fixed piece of work takes.")


def _conclude(said: dict[str, list[str]], kept: Kept) -> None:
    """Print what was not measured, and what is worse than it was."""
    for text in said["gone"]:
        print(f"not measured: {text}")
    for text in said["worse"]:
        print(f"worse than {kept.version}: {text}")
    if not said["worse"]:
        print(f"nothing is more than a fifth worse than {kept.version}")


def _keep(figures: Kept) -> None:
    """Write the file of figures, and the documents' tables."""
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    for document, (heading, rows) in TABLES.items():
        text = document.read_text(encoding="utf-8")
        document.write_text(filled(text, heading, rows, figures), encoding="utf-8")


def _run(name: str, before: KeptBenchmark | None) -> tuple[KeptBenchmark, list[tuple[Figure, Change | None]]]:
    """Run a benchmark and print its table; return what to keep of it, and how each figure compares."""
    print(f"== {name}", flush=True)
    began = time.monotonic()
    loops = [calibrate() for _ in range(CALIBRATIONS)]
    figures = list(BENCHMARKS[name]())
    calibration = statistics.median([*loops, *(calibrate() for _ in range(CALIBRATIONS))])
    slower = calibration / before.calibration if before else 1.0
    changes = [(each, compare(each, before.figures.get(each.name), slower) if before else None) for each in figures]
    for figure, change in changes:
        print(row(figure, change), flush=True)
    if before:
        print(f"   a fixed piece of work took {slower:.2f} times as long as then", end="; ")
    print(f"   {time.monotonic() - began:.0f} s")
    return KeptBenchmark(round(calibration, 4), kept_values(figures)), changes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
