# SPDX-License-Identifier: Apache-2.0
"""
Installations as root, in an overlay over this machine that is gone afterwards.

What systemctl is asked for is written down by a program that stands for it; version 2.0 never gets ready.
"""

from __future__ import annotations

import os
import sys

from pathlib import Path

import pytest

from tests.support.installing import copied_venv, copying_python, link_dependencies, put_quick_venv
from tests.support.processes import run_command
from tests.support.samples import sample
from tests.support.waiting import SECONDS


ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

# Its arguments: an empty folder, then folders that stay as they are, then -- and a command.
OVERLAY = """
set -e
top=$1
shift
mount -t tmpfs none "$top"
mkdir "$top/upper" "$top/work" "$top/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/merged"
# What stays is reached by everybody, also an interpreter in root's own folder: the service's user is not root.
for kept in "$@"; do
  [ "$kept" != -- ] || break
  while kept=$(dirname "$kept"); [ "$kept" != / ]; do chmod o+x "$top/merged$kept"; done
done
while [ "$1" != -- ]; do
  mkdir -p "$top/merged$1"
  mount --rbind "$1" "$top/merged$1"
  shift
done
shift
mkdir -p "$top/merged/run/systemd/system"
exec chroot "$top/merged" "$@"
"""

SYSTEMCTL = """#!/bin/sh
echo "$*" >>{folder}/calls
case "$*" in *restart*) case $(readlink /opt/vllm-watch/bin) in releases/2.0-*) exit 1 ;; esac ;; esac
"""


class Machine:
    """Runs shell scripts in overlays; each begins with this machine as it is."""

    def __init__(self, folder):
        self.folder = folder
        folder.chmod(0o755)
        (folder / "bin").mkdir()
        systemctl = folder / "bin" / "systemctl"
        systemctl.write_text(SYSTEMCTL.format(folder=folder))
        systemctl.chmod(0o755)
        dependencies = link_dependencies(folder / "dependencies")
        put_quick_venv(dependencies)
        self._environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHON": str(copying_python(folder)),
            "PYTHONPATH": str(dependencies),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
            # Two thirds of what it takes to make a Debian package is to compress it.
            "DPKG_DEB_COMPRESSOR_TYPE": sample("none", "xz"),
        }

    def run(self, script):
        """Run a script in which install.sh is $install, and build.sh $build; return the run."""
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        kept = {"/dev", "/proc", str(self.folder), str(ROOT), str(copied_venv()), sys.base_prefix, sys.prefix}
        named = f'install="sh {DEPLOY / "install.sh"}" build="sh {DEPLOY / "debian" / "build.sh"}"\n{script}'
        overlaid = ("unshare", "-m", "/bin/sh", "-c", OVERLAY, "sh", empty, *sorted(kept), "--")
        return run_command(*overlaid, "/bin/sh", "-c", named, timeout=5 * SECONDS, env=self._environment)

    def done(self, script):
        """Run a script, which must succeed; return what it says."""
        run = self.run(f"set -e\n{script}")
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def calls(self):
        """Return what systemctl was asked for since the last time."""
        path = self.folder / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines


def covered_machine(folder):
    """Return a machine whose things are in a folder; the test is skipped where this one cannot be covered."""
    if Path("/opt/vllm-watch").exists():
        pytest.skip("vllm-watch is installed on this machine")
    machine = Machine(folder)
    if machine.run("true").returncode != 0:
        pytest.skip("no overlay can be mounted here")
    return machine
