# SPDX-License-Identifier: Apache-2.0
"""The rules of what is wrong with a server or should be known."""

from __future__ import annotations

import pytest

from vllm_watch.daemon.catalog.gpu_texts import (
    ACTION_PROBLEMS,
    ACTION_WORDS,
    GPU_ACTIONS,
    GPU_STATES,
    GPU_THROTTLING,
    NORMAL_THROTTLING,
    NOT_SHOWN,
    REMAP_FAILED,
    REMAP_PENDING,
    STATE_PROBLEMS,
    STATE_WORDS,
    THROTTLING_WORDS,
    xid_problem,
)
from vllm_watch.daemon.exposition.document import (
    ChangeDocument,
    ConfigurationDocument,
    EngineDocument,
    GpuDocument,
    GpuErrorDocument,
    ServerDocument,
    SourceDocument,
)
from vllm_watch.daemon.exposition.findings import NO_START, NOTHING_READ, Finding, findings


def well(sources=(), **changes):
    """Return a server of which nothing is wrong, but for these changes; `sources` says which can be read."""
    read = {"log": True, "metrics": True, **dict(sources)}
    documents = [SourceDocument(name, up=is_up) for name, is_up in read.items()]
    known = {"version": "0.32.0", "sources": documents, "engines": [EngineDocument(state="idle")], **changes}
    return ServerDocument("a", **known)


UNREAD, UNKNOWN = {"log": False, "metrics": False}, [EngineDocument(state="unknown")]


@pytest.mark.parametrize(
    ("server", "found"),
    [
        (well(), []),
        (well(version=None), [Finding("note", NO_START, "log")]),
        (well({"log": False}, version=None), []),
        (well({"metrics": False}, missing_metrics=["vllm:x"]), []),
        (well(UNREAD, engines=UNKNOWN), [Finding("wrong", NOTHING_READ)]),
        (well(UNREAD, engines=[]), [Finding("wrong", NOTHING_READ)]),
        (well(UNREAD, engines=[EngineDocument(state="down")]), []),
    ],
)
def test_what_a_source_cannot_tell(server, found):
    """Nothing is said of what a source lacks that cannot be read, and a server that is down is not unknown."""
    assert list(findings(server)) == found


def test_each_finding_is_about_its_source():
    """First comes what is wrong; what a source lacks names that source."""
    server = ServerDocument(
        "a",
        sources=[SourceDocument("metrics", up=True)],
        engines=[EngineDocument(state="serving", disagreements=["requests_running"])] * 2,
        missing_metrics=["vllm:x"],
        configuration=ConfigurationDocument(change=ChangeDocument(text="a 1 → 2")),
    )

    assert [(each.weight, each.source) for each in findings(server)] == [
        ("wrong", None),
        ("note", "metrics"),
        ("note", "log"),
        ("note", None),
    ]


def of_gpu(state, action=None, **values):
    """Return what the JSON has of a GPU."""
    return GpuDocument("g", state=state, recovery_action=action, values={f"gpu_row_{name}": 1.0 for name in values})


@pytest.mark.parametrize(
    ("gpu", "found"),
    [
        (of_gpu("ok", "none"), []),
        (of_gpu("ok"), []),
        (of_gpu("of a newer daemon", "of a newer driver"), []),
        (of_gpu("lost"), [("wrong", STATE_PROBLEMS["lost"])]),
        (of_gpu("ok", "reboot", remap_failed=1), [("wrong", ACTION_PROBLEMS["reboot"]), ("wrong", REMAP_FAILED)]),
        (of_gpu("ok", "none", remap_pending=1), [("note", REMAP_PENDING)]),
        (of_gpu(None), [("wrong", NOT_SHOWN)]),
    ],
)
def test_gpus_that_need_somebody(gpu, found):
    """A state and an action are what is wrong with a GPU; what waits for its next reset should only be known."""
    assert [(each.weight, each.text) for each in findings(well({"gpu": True}, gpus=[gpu]))] == [
        (weight, f"g: {text}") for weight, text in found
    ]


def test_gpus_that_nobody_reads_are_not_missing():
    """A GPU of the configuration that no source reads, or whose source fails, is not said to be gone."""
    assert not list(findings(well(gpus=[of_gpu(None)])))
    assert not list(findings(well({"gpu": False}, gpus=[of_gpu(None)])))


def test_errors_of_the_kernel_after_which_a_gpu_needs_somebody():
    """Each is said once; one that ends only a program, or that this release does not know, is no finding."""
    xids = [("79", "0000:18:00"), ("13", "0000:18:00"), ("79", "0000:18:00"), ("new", ""), ("119", "")]
    errors = [GpuErrorDocument(xid=code, pci_bus_id=place) for code, place in xids]

    assert list(findings(well(gpu_errors=errors))) == [
        Finding("wrong", xid_problem("79", "0000:18:00"), "gpu"),
        Finding("wrong", xid_problem("119", ""), "gpu"),
    ]


def test_every_code_of_a_gpu_has_its_words():
    """All states and actions but the good ones, and all reasons of throttling, have their texts."""
    assert set(STATE_PROBLEMS) == set(STATE_WORDS) == set(GPU_STATES) - {"ok"}
    assert set(ACTION_PROBLEMS) == set(ACTION_WORDS) == set(GPU_ACTIONS) - {"none"}
    assert set(THROTTLING_WORDS) == set(GPU_THROTTLING) > {NORMAL_THROTTLING}
