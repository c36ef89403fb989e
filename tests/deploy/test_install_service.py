# SPDX-License-Identifier: Apache-2.0
"""
deploy/install.sh as root on a machine with systemd, in an overlay over this one that is gone afterwards.

What systemctl is asked for is written down by a program that stands for it; version 2.0 never gets ready.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from pathlib import Path

import pytest

from tests.support.wheels import link_dependencies, make_wheel


ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "install.sh"
SECONDS = 120

# Its arguments: an empty folder, then folders that stay as they are, then -- and a command.
OVERLAY = """
set -e
top=$1
shift
mount -t tmpfs none "$top"
mkdir "$top/upper" "$top/work" "$top/merged"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/merged"
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
        (folder / "bin").mkdir()
        systemctl = folder / "bin" / "systemctl"
        systemctl.write_text(SYSTEMCTL.format(folder=folder))
        systemctl.chmod(0o755)
        self._environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(link_dependencies(folder / "dependencies")),
            "PIP_NO_INDEX": "1",
            "PIP_NO_DEPS": "1",
        }

    def run(self, script):
        """Run a script in which install.sh is $install; return the run."""
        empty = self.folder / "empty"
        empty.mkdir(exist_ok=True)
        kept = {"/dev", "/proc", str(self.folder), str(ROOT), sys.base_prefix, sys.prefix}
        command = ["unshare", "-m", "/bin/sh", "-c", OVERLAY, "sh", str(empty), *sorted(kept), "--"]
        return subprocess.run(
            [*command, "/bin/sh", "-c", f'install="sh {SCRIPT}"\n{script}'],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

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


@pytest.fixture
def machine(tmp_path):
    """A machine, if this one lets itself be covered."""
    if not SCRIPT.exists():
        pytest.skip("needs the tree that deploy/ is in")
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may cover this machine with an overlay, by unshare")
    if Path("/opt/vllm-watch").exists():
        pytest.skip("vllm-watch is installed on this machine")
    machine = Machine(tmp_path)
    if machine.run("true").returncode != 0:
        pytest.skip("no overlay can be mounted here")
    return machine


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Wheels of two versions."""
    folder = tmp_path_factory.mktemp("wheels")
    return {version: make_wheel(folder, version) for version in ("1.0", "2.0")}


def test_the_service_is_started_once_and_stopped_in_the_end(machine, wheels):
    """An installation enables and starts it, the same again asks for nothing, and it is stopped before it goes."""
    install = f"$install install --wheel {shutil.copy(wheels['1.0'], machine.folder)}"
    said = machine.done(f"""
        {install}
        echo again >>{machine.folder}/calls
        {install}
        echo uninstall >>{machine.folder}/calls
        $install uninstall --purge
        ls -d /opt/vllm-watch /etc/vllm-watch /etc/systemd/system/vllm-watch.service /usr/local/bin/vllm-watch || true
    """)

    assert machine.calls() == [
        *("daemon-reload", "--quiet enable vllm-watch", "restart vllm-watch"),
        "again",
        *("uninstall", "--quiet disable --now vllm-watch", "daemon-reload"),
    ]
    assert "Nothing to do: 1.0-" in said
    assert [line for line in said.splitlines() if line.startswith("/")] == []


def test_a_release_that_does_not_get_ready_gives_way_to_the_old_one(machine, wheels):
    """The old program and the old unit are put back and restarted, and the new release is removed."""
    old, new = (shutil.copy(wheels[version], machine.folder) for version in ("1.0", "2.0"))
    run = machine.run(f"""
        $install install --wheel {old}
        echo "# of 1.0" >>/etc/systemd/system/vllm-watch.service
        echo upgrade >>{machine.folder}/calls
        $install upgrade --wheel {new} || echo "status $?"
        ls /opt/vllm-watch/releases
        tail -n 1 /etc/systemd/system/vllm-watch.service
        vllm-watch --version
    """)

    assert machine.calls()[3:] == [
        *("upgrade", "daemon-reload", "try-restart vllm-watch"),
        *("daemon-reload", "restart vllm-watch"),
    ]
    status, release, unit, version = run.stdout.splitlines()[-4:]
    assert status == "status 1"
    assert release.startswith("1.0-")
    assert (unit, version) == ("# of 1.0", "vllm-watch, version 1.0")
    assert f"does not start, {release} runs again: see journalctl -u vllm-watch" in run.stderr


def test_nothing_is_started_against_ones_will(machine, wheels):
    """With --no-start the service is enabled and left as it is."""
    machine.done(f"$install install --no-start --wheel {shutil.copy(wheels['1.0'], machine.folder)}")

    assert machine.calls() == ["daemon-reload", "--quiet enable vllm-watch"]


def test_whoever_is_not_root_is_told_so(machine, wheels):
    """Without root nothing is begun."""
    wheel = shutil.copy(wheels["1.0"], machine.folder)
    run = machine.run(f"setpriv --reuid=65534 --regid=65534 --clear-groups sh <{SCRIPT} -s install --wheel {wheel}")

    assert (run.returncode, run.stderr, machine.calls()) == (1, "install.sh: this needs root\n", [])
