# SPDX-License-Identifier: Apache-2.0
"""The rules of what is wrong with a server or should be known."""

from __future__ import annotations

import pytest

from vllm_watch.catalog.finding_texts import NO_START, NOTHING_READ
from vllm_watch.catalog.findings import Finding, Known, findings


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
