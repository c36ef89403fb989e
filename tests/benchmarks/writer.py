# SPDX-License-Identifier: Apache-2.0
"""Writes access lines to logs in turn, each as one write, at a steady rate: `writer RATE LOG...`."""

from __future__ import annotations

import itertools
import os
import sys
import time

from collections.abc import Sequence
from pathlib import Path

from tests.support.recordings import log_of


MOST_BEHIND = 5.0
"""Seconds by which the writer may be late; a machine on which it is later measures nothing."""


NAMES = (b"", b"(APIServer pid=1234) ", b"\x1b[1;36m(APIServer pid=1234)\x1b[0;0m ")
"""What stands before an access line: nothing, or from 0.10.2 to 0.20.2 the process's name, coloured up to 0.15."""


def access_lines() -> list[bytes]:
    """Return the access lines of the recorded day, in the form of each release in turn."""
    lines = log_of("day").splitlines(keepends=True)
    own = [line for line in lines if b'"POST /v1/completions HTTP/1.1" 200' in line]
    return [name + line for name, line in zip(itertools.cycle(NAMES), own, strict=False)]


def write(lines_per_second: float, logs: Sequence[Path]) -> None:
    """
    Write until the process is ended.

    Raises:
        TimeoutError: It cannot keep up.
    """
    files = [os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT) for log in logs]
    start = time.monotonic()
    for number, line, file in zip(
        itertools.count(1), itertools.cycle(access_lines()), itertools.cycle(files), strict=False
    ):
        ahead = start + number / lines_per_second - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)
        elif ahead < -MOST_BEHIND:
            raise TimeoutError(f"{-ahead:.0f} s late")
        os.write(file, line)


if __name__ == "__main__":
    write(float(sys.argv[1]), [Path(argument) for argument in sys.argv[2:]])
