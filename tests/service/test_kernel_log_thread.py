# SPDX-License-Identifier: Apache-2.0
"""The thread that reads the kernel's log: when there is one, and what becomes of what it finds."""

from __future__ import annotations

import json

import pytest
import structlog

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.parsers.kernel_lines import UUID
from tests.support.gpus import gpu
from tests.support.waiting import HandClock, until

from vllm_watch.daemon.config.model import Config, GpuConfig
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service import kernel_log_thread, supervisor
from vllm_watch.daemon.service.kernel_log_thread import KernelLogThread, place_of
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.xid_events import KernelLine
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.own_health import InternalErrors


AT = 1000.0
PCI = "0000:18:00"
XID = f"NVRM: Xid (PCI:{PCI}): 79, GPU has fallen off the bus."


class Log:
    """A kernel's log as a test fills it."""

    has_more = False

    def __init__(self):
        self.cursor = None
        self.reason = "starting"
        self.lines = []
        self.cursors = []
        self.is_closed = False

    def open(self, cursor, wall):
        """Open it."""
        del wall
        self.cursors.append(cursor)
        return self

    def poll(self, _now):
        """Return the lines, once."""
        lines, self.lines = self.lines, []
        for line in lines:
            if isinstance(line, Exception):
                raise line
        return lines

    def close(self):
        """Note it."""
        self.is_closed = True


class Fleet:
    """Servers."""

    def __init__(self, *servers):
        self.servers = servers


class Watched(ServerMonitor):
    """A server with these GPUs."""

    def __init__(self, name, clock, *names):
        super().__init__(ServerConfig(name=name, log="/nonexistent/log"), clock)
        self.names = names

    def gpus(self):
        """Return the GPUs."""
        return tuple(ServerGpu(name, "config", is_shared=False, memory=None, reading=None) for name in self.names)


class Places:
    """What the driver's files say."""

    def __init__(self):
        self.known = {}
        self.asked = 0

    def ask(self):
        """Count it: the real one asks once."""
        self.asked += 1

    def take(self):
        """Return what is known."""
        return self.known


class Thread:
    """The thread, polled by hand."""

    def __init__(self, *servers):
        self.clock = HandClock(AT)
        self.log = Log()
        self.errors = InternalErrors()
        self.readings = ()
        self.servers = [Watched(name, self.clock, *names) for name, names in servers]
        self.thread = KernelLogThread(self.clock, self.errors, Fleet(*self.servers), readings=lambda: self.readings)

    def poll(self, *lines, reason="ok"):
        """Read these lines."""
        self.log.reason, self.log.lines = reason, list(lines)
        self.thread._poll("journal", self.log)

    def events(self):
        """Return each server's count and events."""
        shown = [server.snapshot() for server in self.servers]
        return [(each.gpu_xids, [(e.kind, e.what, e.gpu) for e in each.events if e.kind == "xid"]) for each in shown]


def line(at, text=XID, *, is_history=False):
    """Return a message."""
    return KernelLine(at, text, is_history)


@pytest.mark.parametrize(
    ("has_driver", "gpus", "kernel_log", "place"),
    [
        (False, (), "journal", "never"),
        (True, (), "journal", "journal"),
        (False, ("GPU-1",), "journal", "journal"),
        (True, ("GPU-1",), "never", "never"),
    ],
)
def test_the_kernel_s_log_is_read_where_there_are_gpus(monkeypatch, has_driver, gpus, kernel_log, place):
    """A driver, or GPUs in the configuration: else nothing is started."""
    monkeypatch.setattr(kernel_log_thread, "has_gpu_driver", lambda: has_driver)
    server = ServerConfig(name="a", log="/a", gpus=gpus)

    assert place == place_of(Config(gpu=GpuConfig(kernel_log=kernel_log), servers=(server,)))


def test_an_error_is_told_to_the_servers_whose_gpu_it_is():
    """A server whose GPU is elsewhere has no count, and nobody counts before the log can be read."""
    thread = Thread(("a", [UUID]), ("b", ["GPU-2"]))
    thread.poll(reason="permission_denied")
    assert [(None, []), (None, [])] == thread.events()

    thread.poll(line(AT - 5000, f"NVRM: GPU at PCI:{PCI}: {UUID}", is_history=True), line(AT - 4999, is_history=True))
    assert [(0, []), (None, [])] == thread.events()
    with structlog.testing.capture_logs() as logged:
        thread.poll(line(AT), line(AT))

    assert [(1, [("xid", "79", PCI)]), (None, [])] == thread.events()
    assert [("gpu.xid", "79", "reboot", UUID)] == [(e["event"], e["code"], e["group"], e["gpu"]) for e in logged]
    totals = thread.thread._status.totals
    assert [(UUID, PCI, "79", 1, AT)] == [tuple(total) for total in totals]


def test_the_driver_names_a_gpu_that_the_kernel_does_not():
    """What it showed before the error counts: a GPU that is lost it may show no more."""
    thread = Thread(("a", [gpu(0).gpu]))
    thread.readings = (gpu(0),)
    thread.poll()
    thread.readings = ()
    thread.poll(line(AT))

    assert [(1, [("xid", "79", PCI)])] == thread.events()
    assert gpu(0).gpu == thread.thread._status.totals[0].gpu


def test_the_driver_s_files_tell_where_a_gpu_is_that_nobody_reads():
    """They are asked for once, when the place of a server's GPU is not known; until they tell there is no count."""
    thread = Thread(("a", [gpu(0).gpu]), ("b", []))
    places = thread.thread._places = Places()
    thread.poll()
    thread.poll()
    assert (places.asked, thread.events()) == (2, [(None, []), (None, [])])

    places.known = {PCI: gpu(0).gpu}
    thread.poll()
    thread.poll(line(AT))
    assert (places.asked, thread.events()) == (2, [(1, [("xid", "79", PCI)]), (None, [])])


def test_the_daemon_follows_the_log_from_its_checkpoint(tmp_path, monkeypatch):
    """The series are there, the cursor is saved at the end, and the next daemon resumes there."""
    log = Log()
    log.cursor, log.reason = "c7", "ok"
    log.lines = [line(AT, is_history=True), line(AT + 60)]
    monkeypatch.setattr(kernel_log_thread, "KernelJournal", log.open)
    monkeypatch.setattr(kernel_log_thread, "place_of", lambda _config: "journal")
    (tmp_path / "log").write_text("")
    server = ServerConfig(name="a", log=str(tmp_path / "log"))
    config = Config(listen="127.0.0.1:0", servers=(server,), checkpoint=str(tmp_path / "checkpoint"))
    for _ in range(2):
        daemon = supervisor.Supervisor(config, SystemClock())
        daemon.start()
        try:
            daemon.tick()
            until(lambda daemon=daemon: list(daemon.kernel_log.samples(0.0)))
            page = daemon.endpoints.metrics("").body.decode()
        finally:
            daemon.stop()

    saved = json.loads((tmp_path / "checkpoint").read_text())
    assert ("c7", [None, "c7"]) == (saved["kernel_cursor"], log.cursors)
    assert log.is_closed
    names = {sample.name for family in parse_text(page) for sample in family.samples}
    assert {"vllm_watch_kernel_log_up", "vllm_watch_kernel_log_info"} <= names
