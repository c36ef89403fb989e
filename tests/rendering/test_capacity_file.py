# SPDX-License-Identifier: Apache-2.0
"""What a load test has measured of a server's capacity is a file that the configuration takes; else why not is said."""

from __future__ import annotations

import pytest

from msgspec.structs import replace
from tests.support.command_line import vllm_watch
from tests.support.load_tests import run
from tests.support.recordings import recording_path

from vllm_watch.analysis.loadtest.load_test import Capacity, Report
from vllm_watch.analysis.loadtest.planning import NoCapacityError
from vllm_watch.analysis.rendering.server_use import capacity_yaml
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.server_config import CapacityConfig


MEASURED = Capacity(
    tokens_per_second=1234.5678,
    low=1172.8,
    high=1296.2,
    basis="saturated",
    explanation="for 118 s requests waited; ±5 %",
    prompt_tokens_per_second=2469.0,
)


def report(*capacities):
    """Return a report whose runs have these capacities."""
    return Report(
        runs=tuple(replace(run(f"it's {at}"), capacity=capacity, notes=()) for at, capacity in enumerate(capacities))
    )


def test_a_measured_capacity_is_read_back(tmp_path):
    """The file is what a server's `capacity` names: the same numbers, to a thousandth, and where they are from."""
    (tmp_path / "saved.yml").write_text(capacity_yaml(report(MEASURED, MEASURED)))
    config = tmp_path / "c.yml"
    config.write_text("servers: [{name: a, metrics: 'http://127.0.0.1:8000/metrics', capacity: saved.yml}]")

    assert load_config(str(config)).servers[0].capacity == CapacityConfig(
        tokens_per_second=1234.568,
        lower=1172.8,
        upper=1296.2,
        prompt_tokens_per_second=2469.0,
        benchmark="it's 0.json",
    )


@pytest.mark.parametrize(
    ("capacities", "why"),
    [
        ((None,), "the results of the benchmark do not show it"),
        ((MEASURED, replace(MEASURED, low=1.0)), "the runs show several maxima"),
        ((replace(MEASURED, basis="curve"),), "only estimated by a curve"),
    ],
    ids=["none", "several", "estimated"],
)
def test_what_is_not_measured_is_not_written(capacities, why):
    """A report without one sound capacity makes no file, and says why."""
    with pytest.raises(NoCapacityError, match=why):
        capacity_yaml(report(*capacities))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "is_written"), [("queue", 0, True), ("busy", 1, False)], ids=["saturated", "light"]
)
def test_report_saves_a_capacity_or_leaves_the_file(tmp_path, name, code, is_written):
    """Standard output is the report in any case; the file is written whole, or stays as it was with exit status 1."""
    saved = tmp_path / "saved.yml"
    saved.write_text("old")
    done = vllm_watch("report", recording_path(name), "--format", "json", "--save-capacity", saved)

    assert done.returncode == code
    assert done.stdout.startswith("{")
    assert (saved.read_text() != "old") == is_written
    assert ("is not written: The maximum is not known" in done.stderr) == (not is_written)
