# SPDX-License-Identifier: Apache-2.0
"""Errors of GPUs that the kernel reports: counted once, named, and told to the servers whose GPUs they are."""

from __future__ import annotations

import pytest

from tests.parsers.kernel_lines import UUID, message_of
from tests.support.gpus import gpu

from vllm_watch.daemon.state.event_history import EVENT_SECONDS
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.xid_events import KernelLine, XidEvent, XidEvents, XidTotal
from vllm_watch_parsers.kernel_messages import SWITCH_CODES


AT = 1_790_000_000.0
PCI = "0000:9b:00"


def reading(name, pci_bus_id):
    """Return a GPU of this name at a place."""
    return gpu()._replace(gpu=name, pci_bus_id=pci_bus_id)


def server_gpu(name, pci_bus_id=None):
    """Return a server's GPU, which can be read if its place is given."""
    found = reading(name, pci_bus_id) if pci_bus_id is not None else None
    return ServerGpu(name, "config", is_shared=False, memory=None, reading=found)


def xid(number, pci=PCI):
    """Return a line about an error."""
    return f"NVRM: Xid (PCI:{pci}): {number}, pid=1896, name=python3"


class Kernel:
    """A kernel that logs what a test says."""

    def __init__(self):
        self.events = XidEvents()

    def says(self, at, *messages, is_history=False):
        """Log messages at a moment; return the codes of the errors that count."""
        found = [self.events.apply(KernelLine(AT + at, message, is_history)) for message in messages]
        return [event.code for event in found if event is not None]

    def known(self):
        """Return by place and code how many errors there were, and when the last one was."""
        return {(total.pci, total.code): (total.events, total.last_at - AT) for total in self.events.totals()}


def test_the_lines_of_one_error_are_one_event():
    """Of a GPU and a code the lines of a second are one; another code, another GPU and another second are more."""
    kernel = Kernel()

    assert ["13"] == kernel.says(0, *[xid(13)] * 300)
    assert [] == kernel.says(0.875, xid(13))
    assert ["43", "13"] == kernel.says(0.875, xid(43), xid(13, "0000:9c:00"))
    assert ["13"] == kernel.says(1, xid(13))
    assert {(PCI, "13"): (2, 1), (PCI, "43"): (1, 0.875), ("0000:9c:00", "13"): (1, 0.875)} == kernel.known()


def test_history_has_times_and_no_events():
    """What was before the daemon started is known by its time; a burst that goes on after that does not count."""
    kernel = Kernel()

    assert [] == kernel.says(-3600, xid(79), is_history=True)
    assert [] == kernel.says(-0.5, xid(94), is_history=True)
    assert [] == kernel.says(0.25, xid(94))
    assert {(PCI, "79"): (0, -3600), (PCI, "94"): (0, 0.25)} == kernel.known()
    assert ["94"] == kernel.says(10, xid(94))


def test_a_gpu_that_fell_off_the_bus_is_counted_once_however_many_lines_say_so():
    """The Xid, the line without one and the line without a place come together."""
    kernel = Kernel()
    lines = [xid(79), f"NVRM: GPU {PCI}.0: GPU has fallen off the bus.", message_of("off the bus, nameless")]

    assert ["79"] == kernel.says(0, *lines)
    assert ["79"] == kernel.says(60, lines[2])
    assert {(PCI, "79"), ("", "79")} == set(kernel.known())


def test_the_uuid_is_from_the_kernel_or_the_driver():
    """The kernel's line names the GPU; else the driver does, and of a GPU in parts the whole one's name stays."""
    kernel = Kernel()
    kernel.says(0, xid(63), xid(63, "0000:00:05"), f"NVRM: GPU at PCI:0000:00:05: {UUID}")
    assert {PCI: "", "0000:00:05": UUID} == {total.pci: total.gpu for total in kernel.events.totals()}

    kernel.events.note_gpus([reading("MIG-5", "00000000:9B:00.0"), reading("MIG-6", "0000:00:05")])
    assert ("MIG-5", UUID) == (kernel.events.uuid(PCI), kernel.events.uuid("0000:00:05"))
    kernel.events.note_gpus([reading("GPU-5", PCI)])
    assert kernel.events.totals()[0] == XidTotal("GPU-5", PCI, "63", 1, AT)


@pytest.mark.parametrize(
    ("pci", "uuid", "used", "is_concerned"),
    [
        (PCI, "", server_gpu("GPU-1", "00000000:9B:00.0"), True),
        (PCI, "GPU-1", server_gpu("GPU-1"), True),
        (PCI, "GPU-1", server_gpu("MIG-7", PCI), True),
        (PCI, "GPU-2", server_gpu("GPU-1", "0000:9c:00"), False),
        (PCI, "", server_gpu("GPU-1"), False),
        ("", "", server_gpu("GPU-1"), False),
    ],
)
def test_an_error_concerns_the_server_whose_gpu_it_is(pci, uuid, used, is_concerned):
    """By place or by UUID; an error without a place concerns nobody."""
    events = XidEvents()
    events.note_places({pci: uuid} if uuid else {})

    assert is_concerned == events.concern(XidEvent(AT, pci, "79", 79), [used])


@pytest.mark.parametrize("code", sorted(SWITCH_CODES))
def test_an_error_of_a_switch_concerns_all_servers_of_the_machine(code):
    """Its place is that of no GPU; a server whose GPUs are not known to be here has nothing to do with it."""
    events, error = XidEvents(), XidEvent(AT, "0000:aa:00", code, 24007)
    events.note_places({PCI: "GPU-1"})

    assert events.concern(error, [server_gpu("GPU-1")])
    assert events.concern(error, [server_gpu("GPU-8", "0000:9c:00")])
    assert not events.concern(error, [server_gpu("GPU-2")])
    assert not events.concern(error, [])


def test_without_its_gpus_places_a_server_s_errors_are_not_known():
    """The kernel names a GPU by its place: while that of any is unknown there is no count, and no 0."""
    events = XidEvents()
    used = [server_gpu("GPU-1"), server_gpu("GPU-2", "0000:9c:00")]
    assert not events.know(used)
    assert not events.know([])

    events.note_places({PCI: "GPU-1"})
    assert events.know(used)


def test_a_server_s_errors_are_counted_and_shown_for_an_hour():
    """There is no count until the kernel's log is read, and 0 then; equal errors in a row are one event."""
    state = ServerState(ServerSettings("s", has_log=False, metrics_interval=5.0))
    state.events.note_xids([], are_all=False, ahead=7.0)
    assert state.snapshot(AT).gpu_xids is None
    state.events.note_xids([], are_all=True, ahead=7.0)
    assert state.snapshot(AT).gpu_xids == 0

    state.events.note_xids([XidEvent(AT + second, PCI, "31", 31) for second in range(3)], are_all=True, ahead=7.0)
    state.events.note_xids([XidEvent(AT + 5, PCI, "79", 79)], are_all=False, ahead=7.0)
    shown = state.snapshot(AT + 53, ahead=7.0)

    assert shown.gpu_xids == 4
    assert [(AT + 2, "xid", "31", 3), (AT + 5, "xid", "79", 1)] == [
        (event.at, event.kind, event.what, event.times) for event in shown.events
    ]
    assert not state.snapshot(AT + EVENT_SECONDS + 53, ahead=7.0).events
