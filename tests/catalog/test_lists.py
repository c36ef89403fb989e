# SPDX-License-Identifier: Apache-2.0
"""The closed lists are whole: each value of a type has its entry, and the documents that list them by hand do too."""

from __future__ import annotations

import re

from pathlib import Path
from typing import get_args

import pytest

from vllm_watch.daemon.catalog.alert_needs import alert_needs
from vllm_watch.daemon.catalog.codes import CAPACITY_BASES, CAPACITY_UNKNOWN, SEVERITIES, CapacityBasis, CapacityReason
from vllm_watch.daemon.catalog.reasons import (
    BY_SOURCE,
    GPU,
    KERNEL_LOG,
    KUBERNETES,
    LOG,
    METRICS,
    PROBE,
    STALLED,
    GpuReason,
    KernelLogReason,
    KubernetesReason,
    LogReason,
    MetricsReason,
    ProbeReason,
    ReasonKind,
    StallReason,
)
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.catalog.states import (
    BEST_TO_WORST,
    DOWN,
    ENGINE_STATES,
    SATURATED,
    STATES,
    DownCause,
    SaturationCause,
)
from vllm_watch.daemon.exposition.samples import _TAIL_SERIES


ROOT = Path(__file__).parents[2]
REASONS = [(source, code) for source, reasons in BY_SOURCE.items() for code in reasons]


@pytest.mark.parametrize(
    ("values", "table"),
    [
        (LogReason, LOG),
        (MetricsReason, METRICS),
        (ProbeReason, PROBE),
        (GpuReason, GPU),
        (KernelLogReason, KERNEL_LOG),
        (KubernetesReason, KUBERNETES),
        (StallReason, STALLED),
        (SaturationCause, SATURATED),
        (DownCause, DOWN),
        (CapacityBasis, CAPACITY_BASES),
        (CapacityReason, CAPACITY_UNKNOWN),
    ],
)
def test_every_reason_has_its_entry(values, table):
    """A reason that the code may give is in its table, in the same order."""
    assert list(get_args(values)) == list(table)


@pytest.mark.parametrize(("source", "code"), REASONS)
def test_a_reason_has_its_texts(source, code):
    """The long text is sentences, the short one is none; only ok is ok."""
    reason = BY_SOURCE[source][code]

    assert reason.text.endswith((".", "?"))
    assert reason.short
    assert not reason.short.endswith(".")
    assert reason.kind in get_args(ReasonKind)
    assert (reason.kind == "ok") == (code == "ok")


def test_every_state_has_its_entry():
    """Each state has a severity of its own, from 1."""
    assert set(ENGINE_STATES) == set(STATES)
    assert list(range(1, len(STATES) + 1)) == [STATES[state].severity for state in BEST_TO_WORST]


def test_the_readme_has_every_state():
    """The README's table has a row for each state, and no other."""
    section = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("| state | meaning |\n")[2].partition("\n\n")[0]
    )

    assert sorted(ENGINE_STATES) == sorted(re.findall(r"^\| (\w+) \|", section, re.MULTILINE))


def test_every_count_of_the_log_has_its_series():
    """Each field of what has been read of a log is a series."""
    assert set(_TAIL_SERIES.values()) <= set(SERIES)


def test_severities_are_those_of_the_rules():
    """The shipped alerts have these severities, but for the Watchdog, which is about nothing."""
    assert {needs.severity for needs in alert_needs().values()} - {"none"} == set(SEVERITIES)
