# SPDX-License-Identifier: Apache-2.0
"""Which server uses which GPU, from reading to reading, and how long what is known of a GPU is current."""

from __future__ import annotations

import pytest

from tests.support.gpus import GIB, gpu, report, uuid

from vllm_watch.daemon.exposition.json_view import event_documents
from vllm_watch.daemon.state.event_history import EVENT_SECONDS
from vllm_watch.daemon.state.gpu_report import GpuReport
from vllm_watch.daemon.state.gpu_use import GpuAssignments, GpuUser, GpuUsers
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


def user(name="a", *pids, start=1, gpus=(), is_here=True):
    """Return a server of this machine whose processes are known."""
    return GpuUser(name, gpus, is_here, (start, start), frozenset(pids))


def unknown(name="a", *, gpus=(), is_here=True):
    """Return a server whose processes are not known."""
    return GpuUser(name, gpus, is_here)


def uses(reading, *users, assignments=None, gone=()):
    """Return what a reading says of each server."""
    return (assignments or GpuAssignments()).uses(reading, GpuUsers(users, frozenset(gone)), 100.0)


def names(use):
    """Return the GPUs of a server, in their order."""
    return [each.gpu for each in use.gpus]


def test_two_servers_on_eight_gpus():
    """Each server has the GPUs that its processes are on, in the order of their numbers, and no GPU of the other."""
    gpus = [gpu(number, 100 + number) for number in range(8)]
    found = uses(report(1.0, *gpus), user("a", 100, 101, 102, 103), user("b", 104, 105, start=2), user("c", start=3))

    assert names(found["a"]) == [uuid(number) for number in range(4)]
    assert names(found["b"]) == [uuid(4), uuid(5)]
    assert {each.how for use in found.values() for each in use.gpus} == {"pid"}
    assert not any(each.is_shared for use in found.values() for each in use.gpus)
    assert [use.reason for use in found.values()] == ["ok", "ok", "unassigned"]


def test_a_server_on_an_instance_is_on_its_gpu():
    """A configuration that names a MIG instance means its GPU, too, also while the driver hangs; not another's."""
    instances = [gpu(number)._replace(gpu=f"MIG{uuid(number)[3:]}", mig="1") for number in range(2)]
    assignments, named = GpuAssignments(), unknown("a", gpus=(instances[0].gpu,))
    found = uses(report(1.0, gpu(0), instances[0], gpu(1), instances[1]), named, assignments=assignments)
    assert names(found["a"]) == [uuid(0), instances[0].gpu]

    found = uses(report(2.0, reason="call_hangs"), named, assignments=assignments)
    assert names(found["a"]) == [uuid(0), instances[0].gpu]


def test_another_run_of_the_daemon_knows_the_gpus():
    """A GPU that is lost, or a server that is down, shows no process then; the server's next start shows others."""
    first = GpuAssignments()
    uses(report(1.0, gpu(0, 1), gpu(1, 2)), user("a", 1, 2, start=7), assignments=first)
    second = GpuAssignments(first.known())
    found = uses(report(2.0, gpu(1, 2)), user("a", 2, start=7), assignments=second)["a"]
    assert [(each.gpu, each.reading is None) for each in found.gpus] == [(uuid(1), False), (uuid(0), True)]

    third = GpuAssignments(second.known())
    assert names(uses(report(3.0, gpu(1)), unknown("a"), assignments=third)["a"]) == [uuid(1), uuid(0)]
    assert names(uses(report(4.0, gpu(1, 3)), user("a", 3, start=8), assignments=third)["a"]) == [uuid(1)]


def test_memory_is_split_by_whose_process_has_it():
    """A GPU's memory is that of each server's processes, and of processes of no server."""
    shared = gpu(0, 1, 2, 9, memory=10 * GIB)
    found = uses(report(1.0, shared), user("a", 1), user("b", 2, start=2))

    for use in found.values():
        (used,) = use.gpus
        assert (used.memory, used.other_memory, used.is_shared) == (10 * GIB, 10 * GIB, True)


@pytest.mark.parametrize("reason", ["no_driver", "no_library"])
def test_a_driver_that_is_gone_is_missed_where_it_was_read_or_is_needed(reason):
    """Also by another run of the daemon; GPUs that the configuration names for another exporter need no driver."""
    gone, assignments = GpuReport(2.0, reason), GpuAssignments()
    uses(report(1.0, gpu(0, 1)), user("a", 1), assignments=assignments)
    later = GpuAssignments(assignments.known())

    assert uses(gone, unknown("a"), unknown("b"), assignments=assignments)["a"].reason == "access_lost"
    assert uses(gone, unknown("a"), assignments=later)["a"].reason == "access_lost"
    assert uses(gone, unknown("a", gpus=("0",)))["a"].reason == "access_lost"
    assert [uses(gone, unknown("a", gpus=gpus))["a"].reason for gpus in ((), (uuid(0),), ("AMD-1234",))] == [reason] * 3


def test_a_server_keeps_its_gpus_until_its_next_start_shows_others():
    """Workers come one after the other; a server that is down keeps its GPUs, and so does one whose GPU is lost."""
    assignments = GpuAssignments()

    def gpus_after(reading, server):
        return names(uses(reading, server, assignments=assignments)["a"])

    assert gpus_after(report(1.0, gpu(0, 1), gpu(1)), user("a", 1)) == [uuid(0)]
    assert gpus_after(report(2.0, gpu(0, 1), gpu(1, 2)), user("a", 1, 2)) == [uuid(0), uuid(1)]
    assert gpus_after(report(3.0, gpu(0, 1)), user("a", 1)) == [uuid(0), uuid(1)]
    down = GpuUser("a", (), True, None, frozenset())
    assert gpus_after(report(4.0, gpu(0), gpu(1)), down) == [uuid(0), uuid(1)]
    assert gpus_after(report(5.0, gpu(0), gpu(1)), user("a", start=2)) == [uuid(0), uuid(1)]
    assert gpus_after(report(6.0, gpu(0), gpu(1), gpu(2, 7)), user("a", 7, start=2)) == [uuid(2)]
    assert gpus_after(GpuReport(7.0, "access_lost"), user("a", start=2)) == [uuid(2)]


def test_a_process_that_has_ended_has_no_memory():
    """A driver is asked for processes less often than for all else: one that has ended since is not on the GPU."""
    (used,) = uses(report(1.0, gpu(0, 1, 9)), user("a", gpus=(uuid(0),)), gone=(1, 9))["a"].gpus

    assert (used.memory, used.other_memory) == (0, 0)


@pytest.mark.parametrize("name", [uuid(1), "1", "0000:19:00"])
def test_gpus_of_the_configuration(name):
    """A UUID, a number or a PCI address is the GPU that it names, whatever processes say."""
    found = uses(report(1.0, gpu(0, 5), gpu(1)), user("a", 5, gpus=(name,)))["a"]

    assert (names(found), found.gpus[0].how, found.reason) == ([uuid(1)], "config", "ok")
    assert found.gpus[0].memory == 0


def test_a_number_means_the_same_gpu_when_the_driver_numbers_them_anew():
    """After a GPU was lost those behind it move up; each server keeps its own, and the lost one is its server's."""
    assignments = GpuAssignments()
    users = GpuUsers([GpuUser("a", ("0", "1")), GpuUser("b", ("2",)), GpuUser("c", ("0000:1a:00",))])
    assignments.uses(report(1, gpu(0), gpu(1), gpu(2)), users, 1)
    moved = [gpu(0), gpu(2)._replace(number=1), gpu(1, state="lost")]
    found = assignments.uses(report(2, *moved), users, 2)

    assert {name: sorted(names(use)) for name, use in found.items()} == {
        "a": [uuid(0), uuid(1)], "b": [uuid(2)], "c": [uuid(2)],
    }  # fmt: skip


def test_uuids_of_the_configuration_need_no_driver():
    """Without the extra a server has the GPUs whose UUIDs are configured, shared or not, and no source."""
    amd = "AMD-692251001124"
    found = uses(
        None,
        unknown("a", gpus=(uuid(0), uuid(1))),
        unknown("b", gpus=(uuid(1),)),
        unknown("c", gpus=("0",)),
        unknown("d", gpus=(amd,)),
    )

    assert names(found["a"]) == [uuid(0), uuid(1)]
    assert [each.is_shared for each in found["a"].gpus] == [False, True]
    assert {use.reason for use in found.values()} == {None}
    assert found["c"].gpus == ()
    assert names(found["d"]) == [amd]


@pytest.mark.parametrize(
    ("server", "reading", "reason"),
    [
        (user("a"), GpuReport(1.0, "no_library"), "no_library"),
        (unknown("a"), report(1.0, gpu(0, 5)), "unassigned"),
        (unknown("a"), GpuReport(1.0, "no_gpus"), "unassigned"),
        (unknown("a", gpus=(uuid(7),)), report(1.0, gpu(0, 5)), "no_gpus"),
        (unknown("a", gpus=("7",)), report(1.0, gpu(0, 5)), "no_gpus"),
        (unknown("a", is_here=False), report(1.0, gpu(0, 5)), None),
        (unknown("a", is_here=False), GpuReport(1.0, "call_hangs"), None),
        (unknown("a", is_here=False, gpus=(uuid(7),)), report(1.0, gpu(0, 5)), None),
        (unknown("a", is_here=False, gpus=("7",)), GpuReport(1.0, "no_module"), "no_module"),
        (unknown("a", is_here=False, gpus=(uuid(0),)), report(1.0, gpu(0, 5)), "ok"),
    ],
)
def test_why_a_server_has_no_gpu(server, reading, reason):
    """A server of this machine has the driver's reason or its own; one of another machine is no business of it."""
    assert uses(reading, server)["a"].reason == reason


def state():
    """Return the state of a server."""
    return ServerState(ServerSettings("a", has_log=False, metrics_interval=5.0))


def test_a_reading_is_current_for_three_intervals():
    """Until then it is shown; after that the GPUs are still the server's, and nothing is known of them."""
    server = state()
    server.gpu.apply(uses(report(100.0, gpu(0, 1)), user("a", 1))["a"], 5.0)
    shown = server.snapshot(115.0, ahead=3.0)
    gone = server.snapshot(115.1)

    assert [(each.source, each.is_up, each.reason) for each in shown.sources[1:]] == [("gpu", True, "ok")]
    assert shown.sources[-1].last_reading == 103.0
    assert (shown.gpus[0].reading.gpu, shown.gpus[0].memory) == (uuid(0), 70 * GIB)
    assert [(each.source, each.is_up, each.reason) for each in gone.sources[1:]] == [("gpu", False, "call_hangs")]
    assert gone.sources[-1].last_reading == 100.0
    assert gone.gpus == (shown.gpus[0]._replace(memory=None, other_memory=None, reading=None),)


def test_a_gpu_that_is_lost_and_comes_back_is_an_event():
    """A GPU that the driver calls lost or shows no more, and its return, are events; a failed reading is none."""
    server, assignments = state(), GpuAssignments()
    both = gpu(0, 1), gpu(1, 1)
    readings = [
        report(100.0, *both),
        report(105.0, gpu(0, 1), gpu(1, state="reset_required")),
        GpuReport(110.0, "access_lost"),
        report(115.0, gpu(0, 1)),
        report(120.0, gpu(0, 1)),
        GpuReport(125.0, "no_gpus"),
        report(130.0, *both),
    ]
    for reading in readings:
        server.gpu.apply(uses(reading, user("a", 1), assignments=assignments)["a"], 5.0)
    events = server.snapshot(131.0, ahead=7.0).events

    assert [(event.at - 7, event.kind, event.what, event.gpu) for event in events] == [
        (105.0, "gpu", "reset_required", "0000:19:00"),
        (115.0, "gpu", "lost", "0000:19:00"),
        (125.0, "gpu", "lost", "0000:18:00"),
        (130.0, "gpu", "ok", "0000:18:00"),
        (130.0, "gpu", "ok", "0000:19:00"),
    ]
    assert [view.text for view in event_documents(events)][-2:] == [
        "GPU 0000:18:00 is back",
        "GPU 0000:19:00 is back",
    ]
    assert not server.snapshot(131.0 + EVENT_SECONDS).events


def test_clocks_are_lowered_for_a_part_of_the_time():
    """It is what the counter has grown by since the reading before; unknown at first and after the driver's restart."""

    def at(moment, seconds):
        values = {("gpu_throttled_seconds_total", "thermal"): seconds}
        server.gpu.apply(uses(report(moment, gpu(0, 1, values=values)), user("a", 1))["a"], 5.0)
        return server.snapshot(moment).gpus[0].throttled

    server = state()
    assert at(100.0, 7.0) is None
    assert at(105.0, 8.0) == {"thermal": 0.2}
    assert at(105.0, 8.0) == {"thermal": 0.2}
    assert at(110.0, 14.0) == {"thermal": 1.0}
    assert at(115.0, 1.0) is None
    assert at(120.0, 1.0) == {"thermal": 0.0}
    server.gpu.apply(uses(report(125.0, gpu(0, 1, values={})), user("a", 1))["a"], 5.0)
    assert server.snapshot(125.0).gpus[0].throttled is None
