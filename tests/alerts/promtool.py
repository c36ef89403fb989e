# SPDX-License-Identifier: Apache-2.0
"""Prometheus' own tool, as the tests run it."""

from __future__ import annotations

import os
import subprocess

from pathlib import Path


SECONDS = 600
"""Only a guard: the longest takes a minute of a processor's time."""

_FAST = {"GOGC": "800"}
"""Memory for time: a fifth of the tool's own is for collecting garbage."""


def promtool(*arguments: str | Path) -> tuple[bool, str]:
    """Run promtool; return whether all was well, and what it printed."""
    run = subprocess.run(
        ["promtool", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env={**os.environ, **_FAST},
    )
    return run.returncode == 0, run.stdout + run.stderr
