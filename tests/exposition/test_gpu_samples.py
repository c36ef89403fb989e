# SPDX-License-Identifier: Apache-2.0
"""GPUs as series and in the snapshot."""

from __future__ import annotations

import json

from tests.support.exposition import collected, exported
from tests.support.gpus import GIB, WHOLE, gpu, uuid
from tests.support.recordings import snapshots

from vllm_watch.daemon.catalog.gpu_texts import GPU_ACTIONS, GPU_STATES
from vllm_watch.daemon.catalog.series import GPUS, PREFIX, SERIES
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.snapshot import ServerEvent


SERVER = snapshots("day", step=60.0)[4][1]
NAMES = {series.name for series in GPUS.series}
OF_THE_MACHINE = {"gpus", "gpu_read_duration_seconds"}
OF_THE_KERNEL = {series.name for series in GPUS.series if series.origins == ("kernel log",)}


def using(*gpus, name="day", cost=None):
    """Return a server that uses these GPUs."""
    return SERVER._replace(name=name, gpus=gpus, cost_per_hour=cost)


def used(reading, *, is_shared=False, memory=70 * GIB, other=0.0):
    """Return a GPU that a server uses by a process of its own."""
    return ServerGpu(reading.gpu, "pid", is_shared, memory, reading, other)


def shown(*servers):
    """Return the samples of GPUs, by name and labels."""
    return {
        (sample.name, *sample.labels): sample.value for sample in collected(*servers).samples if sample.name in NAMES
    }


def lines(*servers):
    """Return the lines of GPUs on the daemon's page."""
    written = exported(*servers).decode().splitlines()
    return [line for line in written if line.partition("{")[0].removeprefix(PREFIX) in NAMES]


def test_every_series_of_a_gpu_is_shown():
    """A GPU that reports everything has each series of the group, with the value that was read and its labels."""
    found = shown(using(used(gpu()), cost=12.5))
    names = NAMES - OF_THE_MACHINE - OF_THE_KERNEL

    assert names == {name for name, *_ in found}
    assert {(name, uuid(0), *labels): value for (name, *labels), value in WHOLE.items()}.items() <= found.items()
    assert found["server_gpu_info", "day", uuid(0), "pid", "false"] == 1
    assert found["gpu_process_memory_bytes", "day", uuid(0)] == 70 * GIB
    assert found["gpu_other_memory_bytes", uuid(0)] == 0.0
    assert found["server_cost_per_hour", "day"] == 12.5
    about = ("0", "NVIDIA H100 80GB HBM3", "0000:18:00", "580.95.05", "nvidia", "0")
    assert found[("gpu_info", uuid(0), *about)] == 1
    assert all(len(key) == len(SERIES[key[0]].labels) + 1 for key in found)


def test_sets_of_states_are_whole():
    """Each state and each action has a sample, 1 for the one that holds; a driver without recommendations has none."""
    lost = gpu(state="lost", values={("gpu_recovery_action", "reset"): 1.0})
    found = shown(using(used(lost)))

    assert {state: found["gpu_state", uuid(0), state] for state in GPU_STATES} == {
        "ok": 0.0,
        "lost": 1.0,
        "reset_required": 0.0,
    }
    assert {action for action in GPU_ACTIONS if found["gpu_recovery_action", uuid(0), action]} == {"reset"}
    assert sum(name == "gpu_recovery_action" for name, *_ in found) == len(GPU_ACTIONS)
    assert "gpu_recovery_action" not in {name for name, *_ in shown(using(used(gpu(values={}))))}


def test_what_is_not_known_is_absent():
    """A GPU that reports nothing has its state and what it is; one that cannot be read only that the server uses it."""
    bare = ServerGpu(uuid(0), "pid", is_shared=False, memory=None, reading=gpu(values={}))
    unread = ServerGpu(uuid(1), "config", is_shared=False, memory=None, reading=None)

    assert {name for name, *_ in shown(using(bare))} == {"server_gpu_info", "gpu_info", "gpu_state"}
    assert set(shown(using(unread))) == {("server_gpu_info", "day", uuid(1), "config", "false")}
    assert "gpus" not in server_view(SERVER)
    assert server_view(using(unread))["gpus"] == [{"gpu": uuid(1), "how": "config", "is_shared": False}]


def test_a_shared_gpu_is_there_once():
    """Of a GPU that two servers use each value is written once, and each server's join and memory is its own."""
    one, other = (using(used(gpu(), is_shared=True), name=name) for name in ("a", "b"))
    both = lines(one, other)

    assert len(set(both)) == len(both)
    assert len([line for line in both if line.startswith("vllm_watch_gpu_power_watts")]) == 1
    assert len([line for line in both if line.startswith("vllm_watch_server_gpu_info")]) == 2
    assert all('shared="true"' in line for line in both if line.startswith("vllm_watch_server_gpu_info"))


def test_the_snapshot_has_the_same():
    """In JSON a server has its GPUs with the same numbers; what has labels of its own is by those."""
    (found,) = json.loads(json.dumps(server_view(using(used(gpu(), is_shared=True, other=GIB)))))["gpus"]

    assert found["values"]["gpu_power_watts"] == 512.25
    assert found["values_by_label"]["gpu_throttled_seconds_total"]["thermal"] == 1.0
    assert found["values_by_label"]["gpu_ecc_errors_total"].keys() == {
        "corrected_boot",
        "corrected_life",
        "uncorrected_boot",
        "uncorrected_life",
    }
    assert (found["gpu"], found["how"], found["is_shared"], found["state"]) == (uuid(0), "pid", True, "ok")
    assert (found["recovery_action"], found["mig"], found["index"]) == ("none", False, 0)
    assert (found["memory"], found["other_memory"]) == (70 * GIB, GIB)


def test_errors_of_the_last_hour_are_those_of_the_kernel():
    """Each has its code, what is to be done and its place; other events are none, and without GPUs there is no list."""
    events = (ServerEvent(1.0, "start"), ServerEvent(2.0, "xid", "79", gpu="0000:18:00"), ServerEvent(3.0, "xid", "13"))
    view = server_view(using(used(gpu()))._replace(events=events))

    assert view["gpu_errors"] == [
        {"at": 2.0, "xid": "79", "class": "reboot", "pci_bus_id": "0000:18:00"},
        {"at": 3.0, "xid": "13", "class": "app", "pci_bus_id": ""},
    ]
    assert "gpu_errors" not in server_view(SERVER._replace(events=events))
