# SPDX-License-Identifier: Apache-2.0
"""
The daemon under what the shipped unit forbids: its user, its /proc, its capabilities, its file system, its limits.

systemd need not run here: the kernel is asked for the same by the tools of util-linux.
"""

from __future__ import annotations

import re
import sys
import tempfile

from pathlib import Path

import pytest

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.parser import text_string_to_metric_families
from tests.support.http_servers import free_port
from tests.support.monitoring import get_text, process
from tests.support.processes import as_nobody, run_command


UNIT = Path(__file__).parents[2] / "deploy" / "systemd" / "vllm-watch.service"
OF_PROC = {("ProtectProc", "invisible"): "hidepid=invisible", ("ProcSubset", "pid"): "subset=pid"}
"""What a setting adds to the options of the unit's own /proc."""
# Its arguments: the options of /proc, the folder that stays writable, then a command.
MOUNTS = """
set -e
mount -t proc -o "$1" proc /proc
mount --bind "$2" "$2"
mount -o remount,bind,ro /
shift 2
exec "$@"
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_root,
    pytest.mark.needs_tool("prlimit", "setpriv", "unshare"),
]


@pytest.fixture
def folder():
    """A folder that the service's user may write to."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


def settings(text):
    """Return what a unit says of its service, the last word on each."""
    return dict(re.findall(r"(?m)^(\w+)=(.*)$", text))


def restricted(said, folder):
    """Return what goes before a command so that it runs as the unit's service does."""
    assert (said["DynamicUser"], said["ProtectSystem"]) == ("yes", "strict")
    assert (said["CapabilityBoundingSet"], said["NoNewPrivileges"]) == ("", "yes")
    proc = ",".join(option for (name, value), option in OF_PROC.items() if said.get(name) == value)
    empty = folder / "empty"
    empty.mkdir()
    return [
        *("unshare", "-m", "/bin/sh", "-c", MOUNTS, "sh", proc, str(folder)),
        *("prlimit", f"--nofile={said['LimitNOFILE']}"),
        *as_nobody(empty),
        *("setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"),
        *("/bin/sh", "-c", f'umask {said["UMask"]}; exec "$@"', "sh"),
    ]


def process_metrics(text, folder):
    """Return the process metrics, by name, of a daemon that runs as a unit of this text says."""
    before = restricted(settings(text), folder)
    trial = [*before, sys.executable, "-c", "import vllm_watch.cli.command_line"]
    if run_command(*trial, text=False, cwd="/").returncode != 0:
        pytest.skip("this machine does not let a process be restricted so")
    (folder / "empty").rmdir()
    (folder / "vllm.log").touch()
    address = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-B", "-m", "vllm_watch", "run", "--log", str(folder / "vllm.log")]
    started = [*restricted(settings(text), folder), *command, "--listen", address]
    with process(started, folder / "own.log", f"http://{address}/-/ready"):
        families = text_string_to_metric_families(get_text(f"http://{address}/metrics"))
        return {
            sample.name: sample.value
            for family in families
            for sample in family.samples
            if sample.name.startswith("process_")
        }


def test_the_service_shows_its_process_metrics(folder):
    """Under the unit's restrictions every process metric is there and true: the limit of open files is the unit's."""
    collected = ProcessCollector(registry=CollectorRegistry()).collect()
    expected = {sample.name for family in collected for sample in family.samples}

    shown = process_metrics(UNIT.read_text(), folder)

    assert len(expected) > 5
    assert set(shown) == expected
    assert shown["process_max_fds"] == float(settings(UNIT.read_text())["LimitNOFILE"])
    assert 0 < shown["process_open_fds"] < shown["process_max_fds"]
    assert shown["process_resident_memory_bytes"] > 1 << 20
