# SPDX-License-Identifier: Apache-2.0
"""
deploy/install.sh as root on a machine with systemd, in an overlay over this one that is gone afterwards.

What systemctl is asked for is written down by a program that stands for it; version 2.0 never gets ready.
"""

from __future__ import annotations

import shutil

from pathlib import Path

import pytest

from tests.deploy.overlay import covered_machine
from tests.support.installing import make_wheel


SCRIPT = Path(__file__).parents[2] / "deploy" / "install.sh"

pytestmark = [pytest.mark.slow, pytest.mark.needs_root, pytest.mark.needs_tool("unshare")]


@pytest.fixture
def machine(tmp_path):
    """A machine with systemd."""
    return covered_machine(tmp_path)


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


@pytest.mark.parametrize("mask", ["027", "077"])
def test_the_services_user_runs_what_root_installed_for_itself(machine, wheels, mask):
    """Whatever root's umask, somebody who owns nothing runs the program and reads the unit and the configuration."""
    said = machine.done(f"""
        umask {mask}
        $install install --wheel {shutil.copy(wheels["1.0"], machine.folder)}
        cd /
        setpriv --reuid=65534 --regid=65534 --clear-groups /bin/sh -ec '
          /usr/local/bin/vllm-watch --version
          cat /etc/systemd/system/vllm-watch.service /etc/default/vllm-watch /etc/vllm-watch/vllm-watch.yml >/dev/null'
    """)

    assert said.splitlines()[-1] == "vllm-watch, version 1.0"
