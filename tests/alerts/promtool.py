# SPDX-License-Identifier: Apache-2.0
"""Prometheus' own tool, as the tests run it."""

from __future__ import annotations

import subprocess

from pathlib import Path

from tests.support.waiting import SECONDS


def promtool(*arguments: str | Path) -> tuple[bool, str]:
    """Run promtool; return whether all was well, and what it printed."""
    run = subprocess.run(
        ["promtool", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=5 * SECONDS,
        check=False,
    )
    return run.returncode == 0, run.stdout + run.stderr
