# SPDX-License-Identifier: Apache-2.0
"""What is made from something else is what `make generate` makes."""

from __future__ import annotations

import os
import shutil
import sys

from pathlib import Path

import pytest

from tests.support.processes import run_command
from tests.support.waiting import SECONDS


ROOT = Path(__file__).parents[1]
PARTS = ("Makefile", "pyproject.toml", "alerts", "daemon", "dashboards", "deploy", "parsers")
ALL_GENERATED = ("alerts/rules", "dashboards/json")
"""Folders in which nothing is written by hand: a file that is not generated any more must go."""

pytestmark = [
    pytest.mark.needs_module("grafana_foundation_sdk"),
    pytest.mark.needs_tool("make"),
    pytest.mark.slow,
]


def files(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return by path what each file holds and when it was written."""
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_generating_changes_nothing(tmp_path):
    """`make generate` leaves each file as it is, and writes all of the folders that it alone fills."""
    for part in PARTS:
        copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy2
        copy(ROOT / part, tmp_path / part, **({"symlinks": True} if (ROOT / part).is_dir() else {}))
    before = files(tmp_path)
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path / 'daemon'}:{tmp_path / 'parsers'}"}
    command = ["make", "--silent", "--old-file=.venv/developing", f"BIN={Path(sys.executable).parent}", "generate"]
    run = run_command(*command, timeout=5 * SECONDS, cwd=tmp_path, env=environment)
    after = files(tmp_path)

    assert 0 == run.returncode, run.stdout + run.stderr
    assert set(before) == set(after)
    assert [] == [path for path in after if after[path][0] != before[path][0]]
    written = {path for path in after if after[path][1] != before[path][1]}
    assert "daemon/METRICS.md" in written
    assert set() == {path for path in after if path.startswith(ALL_GENERATED)} - written
