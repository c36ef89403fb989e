# SPDX-License-Identifier: Apache-2.0
"""
Measurements, printed as a table: ``make bench`` runs all but the long ones, ``make bench ARGS=once`` one of them.

lines        what lines cost that arrive one by one, 0 to 5,000 a second, beside mtail
many         what 200 servers cost one daemon, how long its pages take, and what else waits for them
once         `once` and `backfill` on a log of a million lines, beside `mtail --one_shot` on the same lines
start        how long short commands take, and the daemon until it is ready
scrape       what one scrape of a recorded page costs, beside prometheus_client's parser, and of pages that are wild
capacity     how well the capacity is predicted, by the time before an engine is saturated
gpu          what reading eight GPUs costs, in the child process and in the daemon
top          what `vllm-watch top` costs with one server and with 200, and how soon it shows them
catching-up  how long the daemon takes for 1 GiB that was written while it was away
old-logs     the same as once of logs of other kinds (not run unless it is named)
servers      what 1, 10, 50 and 200 servers cost, and what those that hang do to others (not run unless it is named)
report       `vllm-watch report` on logs of 20 MB to 2 GB: speed and memory (not run unless it is named)
soak         20 minutes of rotations and scrapes: what grows, and what is lost (not run unless it is named)

Each figure is compared with that of the last release in figures.json. The exit status is 1 if one is worse by more than
a fifth. ``make bench ARGS=--keep`` keeps the figures of the run instead, and writes them into the documents.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import time

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.benchmarks import (
    capacity,
    catching_up,
    gpu,
    lines,
    many,
    once,
    report,
    scrape,
    servers,
    soak,
    start,
    terminal,
)
from tests.benchmarks.cost_table import TABLES, filled
from tests.benchmarks.figures import Figure, Kept, KeptBenchmark, compare, gone, keep, row
from tests.benchmarks.machine import calibrate, machine

from vllm_watch import __version__


KEPT = Path(__file__).with_name("figures.json")
BENCHMARKS: dict[str, Callable[[], Iterator[Figure]]] = {
    "lines": lines.measure,
    "many": many.measure,
    "once": once.measure,
    "start": start.measure,
    "scrape": scrape.measure,
    "capacity": capacity.measure,
    "gpu": gpu.measure,
    "top": terminal.measure,
    "catching-up": catching_up.measure,
    "old-logs": once.measure_kinds,
    "servers": servers.measure,
    "report": report.measure,
    "soak": soak.measure,
}
LONG = frozenset({"old-logs", "servers", "report", "soak"})
CALIBRATIONS = 5
"""How often the calibration runs before and after a benchmark; its median counts."""


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
    last = msgspec.json.decode(KEPT.read_bytes(), type=Kept) if KEPT.exists() else None
    if options.keep and options.names and (last is None or (last.version, last.machine) != (__version__, machine())):
        parser.error(f"{KEPT.name} is not of this version and kind of machine: keep a whole run, and name none")
    kept = None if options.keep else last
    _introduce(kept)
    measured, worse = {}, []
    for name in options.names or [name for name in BENCHMARKS if name not in LONG]:
        measured[name], found = _run(name, kept.benchmarks.get(name) if kept else None)
        worse += found
    if options.keep:
        others = last.benchmarks if last and options.names else {}
        _keep(keep(__version__, time.strftime("%Y-%m-%d"), machine(), measured, others))
    if kept:
        _conclude(worse, list(gone({name: figures for name, (_, figures) in measured.items()}, kept)), kept)
    return 1 if worse else 0


def _keep(figures: Kept) -> None:
    """Write the file of figures, and the documents' tables."""
    KEPT.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    for document, (heading, rows) in TABLES.items():
        text = document.read_text(encoding="utf-8")
        document.write_text(filled(text, heading, rows, figures), encoding="utf-8")


def _introduce(kept: Kept | None) -> None:
    here = machine()
    print(f"{here}")
    if kept is None:
        return
    print(f"Compared with {kept.version} of {kept.date}: {kept.machine}")
    if here != kept.machine:
        print("That was another kind of machine: processor time is compared by what a fixed piece of work takes here.")


def _run(name: str, before: KeptBenchmark | None) -> tuple[tuple[float, list[Figure]], list[str]]:
    """Run a benchmark and print its table; return the calibration with its figures, and what is worse."""
    print(f"== {name}", flush=True)
    began = time.monotonic()
    loops = [calibrate() for _ in range(CALIBRATIONS)]
    figures = list(BENCHMARKS[name]())
    calibration = statistics.median([*loops, *(calibrate() for _ in range(CALIBRATIONS))])
    slower = calibration / before.calibration if before else 1.0
    worse = []
    for figure in figures:
        change = compare(figure, before.figures.get(figure.name), slower) if before else None
        text = row(figure, change)
        print(text, flush=True)
        if change and change.kind == "worse":
            worse.append(f"{name}: {text}")
    if before:
        print(f"   a fixed piece of work took {slower:.2f} times as long as then", end="; ")
    print(f"   {time.monotonic() - began:.0f} s")
    return (calibration, figures), worse


def _conclude(worse: list[str], missing: list[str], kept: Kept) -> None:
    """Print what is worse than it was, and what was not measured."""
    for text in missing:
        print(f"not measured: {text}")
    for text in worse:
        print(f"worse than {kept.version}: {' '.join(text.split())}")
    if not worse:
        print(f"nothing is more than a fifth worse than {kept.version}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
