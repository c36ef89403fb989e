# SPDX-License-Identifier: Apache-2.0
"""The thread that reads the GPUs: when it runs, what the servers get, and that a driver that hangs holds up nothing."""

from __future__ import annotations

import contextlib
import threading

import msgspec
import pytest

from tests.support.gpus import gpu, report, uuid
from tests.support.waiting import until

from vllm_watch.daemon.config.model import Config, GpuConfig
from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.service import gpus
from vllm_watch.daemon.service.gpus import GpuThread, wants_driver
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.sources.checkpoint import CheckpointFile, Positions
from vllm_watch.daemon.state.gpu_report import GpuReport
from vllm_watch.daemon.state.gpu_use import GpuUser, GpuUsers
from vllm_watch.daemon.state.kept_facts import KnownUse
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.own_health import InternalErrors


def config(*servers, read="auto", interval=0.01):
    """Return a configuration that reads GPUs often."""
    return Config(servers=servers, gpu=GpuConfig(read=read, interval=interval))


def server(name="a", *gpus):
    """Return a server of this machine."""
    return ServerConfig(name=name, metrics=MetricsConfig(url="http://127.0.0.1:9/metrics"), gpus=gpus)


class Reader:
    """Gives what a test sets; hangs or fails while the test wants that."""

    def __init__(self, clock):
        self.clock = clock
        self.gpus = (gpu(0, 110),)
        self.reason = "ok"
        self.failure = None
        self.may_return = threading.Event()
        self.may_return.set()
        self.asked = 0
        self.is_closed = False

    def report(self):
        """Return a new reading."""
        self.asked += 1
        self.may_return.wait()
        if self.failure is not None:
            raise self.failure
        return report(self.clock.now(), *self.gpus, reason=self.reason)

    def close(self):
        """Note it."""
        self.is_closed = True


class Processes:
    """Every server has the process 110, 111 and so on."""

    def users(self, servers, _reading, _now):
        """Return them."""
        users = [GpuUser(each.name, each.gpus, True, (1, 1), frozenset({110 + n})) for n, each in enumerate(servers)]
        return GpuUsers(users)


class Daemon:
    """The part of a daemon that has to do with GPUs."""

    def __init__(self):
        self.clock = SystemClock()
        self.errors = InternalErrors()
        self.readers = []
        self.thread = GpuThread(self.clock, self.errors, processes=Processes())

    def follow(self, new):
        """Watch the servers of a configuration; return their monitors by name."""
        monitors = {each.name: ServerMonitor(each, self.clock) for each in new.servers}
        self.thread.follow(new, tuple(monitors.values()))
        return monitors


@contextlib.contextmanager
def running(*, is_installed=True, make_reader=Reader):
    """Give a daemon, and end its thread."""
    daemon = Daemon()

    def make(clock):
        daemon.readers.append(make_reader(clock))
        return daemon.readers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpus, "GpuReader", make)
        patch.setattr(gpus, "has_module", lambda: is_installed)
        try:
            yield daemon
        finally:
            for reader in daemon.readers:
                reader.may_return.set()
            daemon.thread.request_stop()
            daemon.thread.join()


def source(monitor):
    """Return whether the source of GPUs is up and why, `None` without one."""
    return next((each[1:3] for each in monitor.snapshot().sources if each.source == "gpu"), None)


@pytest.mark.parametrize(
    "new", [config(server()), config(server("a", uuid(3))), config(server("a", "0"), read="never")]
)
def test_without_the_extra_nothing_is_started(new):
    """Where nothing needs the driver there is no thread, no reader and no source; UUIDs of the configuration hold."""
    with running(is_installed=False) as daemon:
        monitor = daemon.follow(new)["a"]

        assert not daemon.thread.is_started
        assert daemon.readers == []
        assert source(monitor) is None
        assert [each.gpu for each in monitor.snapshot().gpus] == [name for name in new.servers[0].gpus if name != "0"]
        assert [] == list(daemon.thread.samples(0.0))


@pytest.mark.parametrize("new", [config(server("a", "0")), config(server(), read="always")])
def test_what_needs_the_driver_is_told_that_the_extra_is_missing(new):
    """A number in `gpus`, or `read: always`, is a source whose reason is the reader's."""
    with running(is_installed=False, make_reader=Missing) as daemon:
        monitor = daemon.follow(new)["a"]

        assert until(lambda: source(monitor)) == (False, "no_module")


class Missing(Reader):
    """What a reader says without the extra."""

    def report(self):
        """Return why there is nothing."""
        return GpuReport(self.clock.now(), "no_module")


ELSEWHERE = "http://gpu2.example.com:8000/metrics"


@pytest.mark.parametrize(
    ("keys", "read", "wanted"),
    [
        ({"metrics": "http://127.0.0.1:9/metrics"}, "auto", True),
        ({"metrics": ELSEWHERE}, "auto", False),
        ({"metrics": ELSEWHERE, "gpus": (uuid(0),)}, "auto", False),
        ({"metrics": ELSEWHERE, "gpus": ("0",)}, "auto", True),
        ({"metrics": ELSEWHERE, "log": "/var/log/vllm.log"}, "auto", True),
        ({"journal": "vllm.service"}, "auto", True),
        ({"metrics": ELSEWHERE}, "always", True),
        ({"metrics": "http://127.0.0.1:9/metrics"}, "never", False),
    ],
)
def test_no_driver_is_read_for_servers_of_other_machines(monkeypatch, keys, read, wanted):
    """Where no server may run here, and no GPU is named that only this driver knows, it is left alone."""
    metrics = {"metrics": MetricsConfig(url=keys["metrics"])} if "metrics" in keys else {}
    one = ServerConfig(name="a", **{**keys, **metrics})

    monkeypatch.setattr(gpus, "has_module", lambda: True)
    assert wants_driver(config(one, read=read)) == wanted


def test_servers_are_told_about_their_gpus():
    """Each server has the GPU that its processes are on; how many GPUs there are is known of the machine."""
    with running() as daemon:
        monitors = daemon.follow(config(server("a"), server("b")))
        (reader,) = until(lambda: daemon.readers)
        instance = gpu(2)._replace(gpu=f"MIG-{uuid(2)}/1/0")
        reader.gpus = (gpu(0, 110), gpu(1, 111), gpu(2), instance)
        until(lambda: source(monitors["b"]) == (True, "ok"))

        assert [each.gpu for each in monitors["a"].snapshot().gpus] == [uuid(0)]
        assert [each.gpu for each in monitors["b"].snapshot().gpus] == [uuid(1)]
        until(lambda: 3 in [each.value for each in daemon.thread.samples(0.0)])
        assert daemon.errors.counts()["gpu"] == 0


def test_what_an_earlier_run_knew_stays(tmp_path):
    """A server has the GPUs of the checkpoint until its next start shows others; what is known is saved again."""
    known = KnownUse("a", (1, 1), frozenset({uuid(7)}))
    with running() as daemon:
        daemon.thread.known = (known,)
        monitor = daemon.follow(config(server("a")))["a"]
        until(lambda: source(monitor) == (True, "ok"))
        assert [each.gpu for each in monitor.snapshot().gpus] == [uuid(0), uuid(7)]
        both = known._replace(gpus=frozenset({uuid(0), uuid(7)}))
        until(lambda: daemon.thread.known == (both,))

    path = tmp_path / "checkpoint"
    CheckpointFile(str(path)).save(Positions(gpus=(known,)), SystemClock().now())
    whole = msgspec.structs.replace(config(server("a"), read="always"), listen="127.0.0.1:0", checkpoint=str(path))
    supervisor = Supervisor(whole, SystemClock())
    supervisor.start()
    supervisor.stop()
    assert CheckpointFile(str(path)).load(SystemClock().now()).positions.gpus == (known,)


def test_a_reload_changes_what_is_read():
    """A new server has its GPU at once; with `gpu: off` the reader ends, nothing is a source, and it can come back."""
    with running() as daemon:
        monitors = daemon.follow(config(server("a")))
        until(lambda: source(monitors["a"]) == (True, "ok"))
        monitors = daemon.follow(config(server("z"), interval=60.0))
        until(lambda: source(monitors["z"]) == (True, "ok"))
        assert len(daemon.readers) == 1
        off = daemon.follow(config(server("z"), read="never"))["z"]
        until(lambda: daemon.readers[0].is_closed)

        until(lambda: not list(daemon.thread.samples(0.0)))
        assert source(off) is None
        again = daemon.follow(config(server("z")))["z"]
        until(lambda: source(again) == (True, "ok"))
        assert len(daemon.readers) == 1  # It knows whether what it started is still in a call.


def test_a_reader_that_hangs_holds_up_nothing():
    """Servers can be asked and replaced while it hangs; what it read last is gone after three intervals."""
    with running() as daemon:
        monitor = daemon.follow(config(server("a")))["a"]
        until(lambda: source(monitor) == (True, "ok"))
        (reader,) = daemon.readers
        reader.may_return.clear()
        until(lambda: source(monitor) == (False, "call_hangs"))

        assert [(each.gpu, each.reading) for each in monitor.snapshot().gpus] == [(uuid(0), None)]
        assert [] == list(daemon.thread.samples(0.0))
        other = daemon.follow(config(server("b")))["b"]
        assert source(other) is None
        reader.may_return.set()
        until(lambda: source(other) == (True, "ok"))


def test_the_end_closes_the_reader():
    """When the daemon ends, so does what reads the driver."""
    with running() as daemon:
        daemon.follow(config(server("a")))
        until(lambda: daemon.readers)

    assert daemon.readers[0].is_closed
