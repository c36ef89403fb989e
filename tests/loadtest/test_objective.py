# SPDX-License-Identifier: Apache-2.0
"""Objectives: the presets are the configuration's, and limits of one's own have units."""

from __future__ import annotations

import pytest

from vllm_watch.analysis.loadtest.model import Objective
from vllm_watch.analysis.loadtest.objective import parse_objective
from vllm_watch.daemon.config.server_config import SLO_PRESETS


@pytest.mark.parametrize("name", sorted(SLO_PRESETS))
def test_presets_are_those_of_the_configuration(name):
    """`chat` and `batch` have the limits that they have under `slo`, in milliseconds."""
    preset = SLO_PRESETS[name]

    assert parse_objective(name) == Objective(
        name=name,
        limits={"ttft_ms": preset.time_to_first_token * 1000, "tpot_ms": preset.time_per_output_token * 1000},
    )


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("ttft=300ms,tpot=40ms", {"ttft_ms": 300.0, "tpot_ms": 40.0}),
        ("e2el = 5s", {"e2el_ms": 5000.0}),
        ("time_to_first_token=300ms,time_per_output_token=40ms", {"ttft_ms": 300.0, "tpot_ms": 40.0}),
        ("tpot=1ms, ttft=1h", {"tpot_ms": 1.0, "ttft_ms": 3_600_000.0}),
    ],
)
def test_limits_are_given_with_units(text, limits):
    """Each latency of a whole request may have a limit, in any order."""
    assert parse_objective(text) == Objective(name="given", limits=limits)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'expected chat, batch or limits such as ttft=300ms,tpot=40ms,e2el=5s, got ""'),
        ("fast", 'expected chat, batch or limits such as .*, got "fast"'),
        ("itl=5ms", "expected chat, batch"),
        ("ttft=300", '"300" needs a unit: 300ms or 300s'),
        ("ttft=", 'expected a duration such as 5s, 500ms or 2m, got ""'),
        ("ttft=0.5ms", 'expected a limit from 1ms to 1h, got "0.5ms"'),
        ("ttft=2h", 'expected a limit from 1ms to 1h, got "2h"'),
        ("ttft=1s,ttft=2s", 'ttft has two limits in "ttft=1s,ttft=2s"'),
    ],
)
def test_what_is_no_objective_is_rejected(text, message):
    """The message says what is expected, and repeats what was written."""
    with pytest.raises(ValueError, match=message):
        parse_objective(text)
