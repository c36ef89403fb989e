# SPDX-License-Identifier: Apache-2.0
"""The GPUs for commands that print and exit: read once, in a bounded time, and what `check` says of them."""

from __future__ import annotations

import pytest

from tests.support.gpus import GIB, gpu, report, uuid
from tests.support.waiting import HandClock

from vllm_watch.cli.commands.server_check import gpu_lines, unopened_gpus
from vllm_watch.daemon.catalog.gpu_texts import NOT_SHOWN
from vllm_watch.daemon.catalog.reasons import GPU, needs_attention
from vllm_watch.daemon.config.model import Config, GpuConfig
from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.service import gpus
from vllm_watch.daemon.service.gpus import ANSWER_SECONDS, read_once
from vllm_watch.daemon.state.gpu_report import GpuReport, ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUser, GpuUsers


SERVER = ServerConfig(name="a", metrics=MetricsConfig(url="http://127.0.0.1:9/metrics"), gpus=(uuid(0),))


class Reader:
    """Says one thing after the other, the last one again and again."""

    def __init__(self, *reports):
        self._reports = list(reports)
        self.is_closed = False

    def report(self):
        """Return the next."""
        return self._reports.pop(0) if len(self._reports) > 1 else self._reports[0]

    def close(self):
        """Note it."""
        self.is_closed = True


class Processes:
    """The only server has the process 110."""

    def users(self, servers, _reading, _now):
        """Return it."""
        return GpuUsers([GpuUser(each.name, each.gpus, True, (1, 1), frozenset({110})) for each in servers])


def once(*reports, read="auto", is_installed=True):
    """Return what a reader that says this leads to, by the reader's clock."""
    clock, reader = HandClock(), Reader(*reports)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpus, "GpuReader", lambda _: reader)
        patch.setattr(gpus, "has_module", lambda: is_installed)
        found = read_once(Config(servers=(SERVER,), gpu=GpuConfig(read=read)), clock, Processes())
    assert reader.is_closed == (read != "never" and is_installed)
    assert found.unopened == (reports[0].unopened if reader.is_closed else {})
    return found.uses["a"], clock.now() - HandClock().now()


def test_the_first_reading_is_waited_for():
    """A driver that first prepares its cards gets some seconds; the reading that comes is the answer."""
    use, waited = once(GpuReport(1.0, "starting"), GpuReport(1.0, "starting"), report(1.0, gpu(0, 110)))

    assert (use.reason, [each.gpu for each in use.gpus]) == ("ok", [uuid(0)])
    assert 0 < waited < ANSWER_SECONDS


def test_a_driver_that_does_not_answer_is_not_waited_for_long():
    """After some seconds it counts as one that hangs."""
    use, waited = once(GpuReport(1.0, "starting"))

    assert use.reason == "call_hangs"
    assert ANSWER_SECONDS <= waited < 2 * ANSWER_SECONDS


@pytest.mark.parametrize("how", [{"read": "never"}, {"is_installed": False}])
def test_what_is_not_to_be_read_is_not(how):
    """Without the extra, or with `gpu: off`, only what the configuration says of GPUs is known."""
    use, waited = once(report(1.0, gpu(0, 110)), **how)

    assert (use.reason, [each.reading for each in use.gpus], waited) == (None, [None], 0)


def test_gpus_that_the_driver_does_not_open_are_told():
    """They are no server's, for nothing but their numbers is known; one that is only hidden is nothing wrong."""
    once(report(1.0, gpu(1, 110))._replace(unopened={0: "lost", 2: None}))
    told = list(unopened_gpus({2: None, 0: "lost"}))

    assert [line.text.partition(":")[0] for line in told] == [f"GPU {n}, whose server is not known" for n in (0, 2)]
    assert [line.is_wrong for line in told] == [True, False]


def lines(*gpus, named=()):
    """Return what `check` says of a server's GPUs, and of each line whether it is wrong."""
    return [(line.text.strip(), line.is_wrong) for line in gpu_lines(gpus, named)]


def test_a_gpu_that_is_configured_and_not_shown_is_wrong():
    """By its number or its place: of one that was lost before, the driver tells no UUID."""
    first = ServerGpu(uuid(0), "config", is_shared=False, memory=None, reading=gpu())
    unread = ServerGpu(uuid(2), "config", is_shared=False, memory=None, reading=None)
    found = lines(first, unread, named=("0", "0000:18:00", uuid(0), uuid(2), "1", "0000:9b:00"))

    assert found[2:] == [(f"GPU {name}, by the configuration: {NOT_SHOWN}", True) for name in ("1", "0000:9b:00")]


def test_check_names_what_is_known_of_a_gpu():
    """Its number, model, driver and why it is the server's, and whether another one uses it."""
    whole = ServerGpu(uuid(0), "pid", is_shared=True, memory=70 * GIB, reading=gpu(), other_memory=GIB)
    bare = ServerGpu(uuid(1), "config", is_shared=False, memory=None, reading=gpu(1, values={}))
    unread = ServerGpu(uuid(2), "config", is_shared=False, memory=None, reading=None)

    assert lines(whole, bare, unread) == [
        ("GPU 0, NVIDIA H100 80GB HBM3, by its processes: driver 580.95.05, used by another server, too", False),
        ("GPU 1, NVIDIA H100 80GB HBM3, by the configuration: driver 580.95.05", False),
        (f"{uuid(2)}, by the configuration: not read", False),
    ]


def test_a_machine_without_a_driver_is_nothing_to_look_at():
    """Of the driver's reasons only those of a machine without it, and of a server that uses none, are expected."""
    quiet = {reason for reason in GPU if not needs_attention("gpu", reason, is_up=False)}

    assert quiet == {"starting", "no_library", "no_driver", "unassigned"}
    assert needs_attention("log", "starting", is_up=False)
    assert not needs_attention("gpu", "ok", is_up=True)
    assert needs_attention("gpu", "of a newer daemon", is_up=False)
