# SPDX-License-Identifier: Apache-2.0
"""What kind of machine this is, and how fast it is just now."""

from __future__ import annotations

import os
import platform
import re
import time

from pathlib import Path

from tests.benchmarks.figures import Machine


LOOPS = 30_000
LINE = 'INFO:     127.0.0.1:43210 - "POST /v1/completions HTTP/1.1" 200 OK'
PATTERN = re.compile(r'INFO: +(\S+) - "([A-Z]+) (\S+) HTTP/[\d.]+" (\d{3})')


def machine() -> Machine:
    """Return the kind of this machine."""
    found = re.search(r"(?m)^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text())
    processor = found[1] if found else platform.machine()
    version = ".".join(platform.python_version_tuple()[:2])
    return Machine(len(os.sched_getaffinity(0)), processor, version)


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
