# SPDX-License-Identifier: Apache-2.0
"""
Measurements, printed as a table: ``make bench`` runs all but the long ones, ``make bench ARGS=once`` one of them.

once       `vllm-watch once` and `backfill` on three logs of a million lines, against `mtail --one_shot` (two programs)
scrape     what one scrape of a recorded page costs
latency    how long after a line is written its gauge shows it
footprint  memory and processor time of the daemon with one server scraped every 5 s
servers    what 1, 10, 50 and 200 servers cost one daemon, and what those that hang do to others (not run unless named)
report     `vllm-watch report` on logs of 20 MB to 2 GB: speed and memory (not run unless it is named)
soak       20 minutes of rotations and scrapes: what grows, and what is lost (not run unless it is named)
"""

from __future__ import annotations

import sys

from tests.benchmarks import footprint, latency, once, report, scrape, servers, soak


BENCHMARKS = {
    "once": once.measure,
    "scrape": scrape.measure,
    "latency": latency.measure,
    "footprint": footprint.measure,
    "servers": servers.measure,
    "report": report.measure,
    "soak": soak.measure,
}
_LONG = frozenset({"report", "servers", "soak"})


def main(names: list[str]) -> int:
    """Run the named benchmarks, or all but the long ones."""
    unknown = set(names) - set(BENCHMARKS)
    if unknown:
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or [name for name in BENCHMARKS if name not in _LONG]:
        print(f"== {name}", flush=True)
        for label, value in BENCHMARKS[name]():
            print(f"{label:<58} {value}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
