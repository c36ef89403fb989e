# SPDX-License-Identifier: Apache-2.0
"""The systemd unit, judged by systemd's own tools, which need no running systemd."""

from __future__ import annotations

import re
import shutil
import subprocess

from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "systemd" / "vllm-watch.service"
EXPOSURE = 1.5
"""systemd calls less than 2 "OK"; a unit without any restriction has 9.6."""

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not UNIT.exists(),
    reason="needs systemd-analyze (Debian's systemd) and the tree that the unit is in",
)


def analyze(*arguments):
    """Return what systemd-analyze says, and its exit status."""
    run = subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return run.stdout + run.stderr, run.returncode


@pytest.fixture
def unit(tmp_path):
    """A copy of the unit that starts a program which is here."""
    copy = tmp_path / UNIT.name
    copy.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT.read_text(), flags=re.MULTILINE))
    return copy


def test_systemd_understands_every_line(unit):
    """D6: systemd finds nothing to complain of, no unknown key and no value it ignores."""
    assert ("", 0) == analyze("verify", str(unit))


def test_a_mistake_would_be_found(unit):
    """D6: the check is one: an unknown key is complained of."""
    unit.write_text(unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))

    assert "WatchdogSecs" in analyze("verify", str(unit))[0]


def test_the_service_may_do_little(unit):
    """D6: what the service could touch if it were taken over is little, by systemd's own measure."""
    said, _ = analyze("security", "--offline=true", str(unit))

    assert float(re.search(r"Overall exposure level for \S+: ([\d.]+)", said)[1]) <= EXPOSURE


def test_the_unit_fits_the_daemon():
    """D6: the unit waits for READY, hears the main process only, and does not try a bad configuration again."""
    said = dict(line.split("=", 1) for line in UNIT.read_text().splitlines() if re.match(r"\w+=", line))

    assert ("notify", "main", "2", "/bin/kill -HUP $MAINPID") == (
        said["Type"],
        said["NotifyAccess"],
        said["RestartPreventExitStatus"],
        said["ExecReload"],
    )
