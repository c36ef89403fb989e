# SPDX-License-Identifier: Apache-2.0
"""The series of errors that the kernel reports of GPUs."""

from __future__ import annotations

import pytest

from tests.support.gpus import gpu, uuid
from tests.support.recordings import snapshots

from vllm_watch.daemon.catalog.reasons import KERNEL_LOG
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.exposition.json_view import event_documents
from vllm_watch.daemon.exposition.samples import kernel_log_samples, server_samples
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.snapshot import ServerEvent
from vllm_watch.daemon.state.xid_events import KernelLogStatus, XidTotal
from vllm_watch_parsers.kernel_messages import XID_CODES


SERVER = next(snapshot for second, snapshot in snapshots("dp1") if second >= 60)
USED = ServerGpu(uuid(0), "pid", is_shared=False, memory=None, reading=gpu())


def shown(kernel_log):
    """Return what the daemon's own page has of the kernel's log, by name and labels."""
    return {(each.name, *each.labels): each.value for each in kernel_log_samples(kernel_log, 5.0)}


def xid_events(server):
    """Return how many errors a server's page counts, in a list."""
    return [sample.value for sample in server_samples(server) if sample.labels[-1:] == ("gpu_xid",)]


def test_a_log_that_is_read_has_each_code_with_its_class():
    """A code that was last seen before the daemon started counts from 0."""
    totals = (XidTotal(uuid(0), "0000:18:00", "79", 2, 90.0), XidTotal("", "0000:aa:00", "sxid", 0, 80.0))
    found = shown(KernelLogStatus("journal", is_up=True, reason="ok", totals=totals))

    assert found == {
        ("kernel_log_up",): 1.0,
        ("kernel_log_info", "journal", "ok"): 1,
        ("gpu_xid_events_total", uuid(0), "0000:18:00", "79", "reboot"): 2,
        ("gpu_xid_last_timestamp_seconds", uuid(0), "0000:18:00", "79", "reboot"): 90.0,
        ("gpu_xid_events_total", "", "0000:aa:00", "sxid", "follow"): 0,
        ("gpu_xid_last_timestamp_seconds", "", "0000:aa:00", "sxid", "follow"): 80.0,
    }
    assert all(
        len(labels) == len(SERIES[name].labels) for name, *labels in shown(KernelLogStatus("j", True, "ok", totals))
    )


@pytest.mark.parametrize("reason", KERNEL_LOG)
def test_a_log_that_is_not_read_says_why(reason):
    """Each reason is a series."""
    status = KernelLogStatus("journal", is_up=reason == "ok", reason=reason, totals=())

    assert shown(status)["kernel_log_info", "journal", reason] == 1
    assert shown(status)["kernel_log_up",] == (reason == "ok")


@pytest.mark.parametrize(
    ("gpus", "count", "values"),
    [((USED,), 0, [0]), ((USED,), 3, [3]), ((USED,), None, []), ((), 0, []), ((), 3, [3])],
)
def test_a_server_s_count_starts_at_0_where_its_gpus_are_known(gpus, count, values):
    """Without GPUs, or while the kernel's log is not read, nothing says that there were no errors."""
    assert values == xid_events(SERVER._replace(gpus=gpus, gpu_xids=count))


@pytest.mark.parametrize("code", [each.code for each in XID_CODES])
def test_each_code_is_an_event_in_words(code):
    """What happened names the GPU's place and what the code means."""
    (event,) = event_documents([ServerEvent(5.0, "xid", code, gpu="0000:18:00", times=2)])

    assert (event.kind, event.gpu, event.count) == ("xid", "0000:18:00", 2)
    assert "0000:18:00" in event.text
    assert (f"Xid {code} " in event.text) == code.isdigit()
