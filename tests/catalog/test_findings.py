# SPDX-License-Identifier: Apache-2.0
"""The rules of what is wrong with a server or should be known."""

from __future__ import annotations

import pytest

from vllm_watch.daemon.catalog.findings import NO_START, NOTHING_READ, Finding, Known, KnownGpu, findings
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


WELL = Known({"log": True, "metrics": True}, ["idle"], "0.32.0", (), "", ())


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"version": None}, [Finding("note", NO_START, "log")]),
        ({"version": None, "sources": {"log": False, "metrics": True}}, []),
        ({"missing_metrics": ["vllm:x"], "sources": {"log": True, "metrics": False}}, []),
        ({"states": ["unknown"], "sources": {"log": False, "metrics": False}}, [Finding("wrong", NOTHING_READ)]),
        ({"states": [], "sources": {"log": False, "metrics": False}}, [Finding("wrong", NOTHING_READ)]),
        ({"states": ["down"], "sources": {"log": False, "metrics": False}}, []),
    ],
)
def test_what_a_source_cannot_tell(changes, found):
    """Nothing is said of what a source lacks that cannot be read, and a server that is down is not unknown."""
    assert list(findings(WELL._replace(**changes))) == found


def test_each_finding_is_about_its_source():
    """First comes what is wrong; what a source lacks names that source."""
    found = findings(
        Known({"metrics": True}, ["serving"], None, ["vllm:x"], "a 1 → 2", ["requests_running", "requests_running"])
    )

    assert [(each.weight, each.source) for each in found] == [
        ("wrong", None),
        ("note", "metrics"),
        ("note", "log"),
        ("note", None),
    ]


@pytest.mark.parametrize(
    ("gpu", "found"),
    [
        (KnownGpu("g", "ok", "none"), []),
        (KnownGpu("g", "ok"), []),
        (KnownGpu("g", "of a newer daemon", "of a newer driver"), []),
        (KnownGpu("g", "lost"), [("wrong", STATE_PROBLEMS["lost"])]),
        (
            KnownGpu("g", "ok", "reboot", remap_failed=True),
            [("wrong", ACTION_PROBLEMS["reboot"]), ("wrong", REMAP_FAILED)],
        ),
        (KnownGpu("g", "ok", "none", remap_pending=True), [("note", REMAP_PENDING)]),
        (KnownGpu("g", None), [("wrong", NOT_SHOWN)]),
    ],
)
def test_gpus_that_need_somebody(gpu, found):
    """A state and an action are what is wrong with a GPU; what waits for its next reset should only be known."""
    sources = {**WELL.sources, "gpu": True}

    assert [(each.weight, each.text) for each in findings(WELL._replace(sources=sources, gpus=[gpu]))] == [
        (weight, f"g: {text}") for weight, text in found
    ]


def test_gpus_that_nobody_reads_are_not_missing():
    """A GPU of the configuration that no source reads, or whose source fails, is not said to be gone."""
    gpus = [KnownGpu("g", None)]

    assert not list(findings(WELL._replace(gpus=gpus)))
    assert not list(findings(WELL._replace(gpus=gpus, sources={**WELL.sources, "gpu": False})))


def test_errors_of_the_kernel_after_which_a_gpu_needs_somebody():
    """Each is said once; one that ends only a program, or that this release does not know, is no finding."""
    xids = [("79", "0000:18:00"), ("13", "0000:18:00"), ("79", "0000:18:00"), ("new", ""), ("119", "")]

    assert list(findings(WELL._replace(xids=xids))) == [
        Finding("wrong", xid_problem("79", "0000:18:00"), "gpu"),
        Finding("wrong", xid_problem("119", ""), "gpu"),
    ]


def test_every_code_of_a_gpu_has_its_words():
    """All states and actions but the good ones, and all reasons of throttling, have their texts."""
    assert set(STATE_PROBLEMS) == set(STATE_WORDS) == set(GPU_STATES) - {"ok"}
    assert set(ACTION_PROBLEMS) == set(ACTION_WORDS) == set(GPU_ACTIONS) - {"none"}
    assert set(THROTTLING_WORDS) == set(GPU_THROTTLING) > {NORMAL_THROTTLING}
