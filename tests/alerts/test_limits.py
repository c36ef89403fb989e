# SPDX-License-Identifier: Apache-2.0
"""Prometheus' limits for the daemon's page leave room for as many engines as the configuration says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.exposition import exported
from tests.support.recordings import RECORDINGS, snapshots
from tests.support.yaml_files import load_yaml


ENGINES = 200
CONFIGURATION = Path(__file__).parents[2] / "alerts" / "prometheus" / "prometheus.yml"


@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_two_hundred_engines_fit(name):
    """Two hundred engines like a recorded one stay below both limits."""
    (job,) = load_yaml(CONFIGURATION.read_text())["scrape_configs"]
    samples = size = 0.0
    for _, snapshot in snapshots(name, step=30.0):
        page = exported(snapshot)
        size = max(size, len(page) / len(snapshot.engines))
        samples = max(samples, sum(not line.startswith(b"#") for line in page.splitlines()) / len(snapshot.engines))

    assert samples > 100
    assert ENGINES * samples <= job["sample_limit"]
    assert ENGINES * size <= int(job["body_size_limit"].removesuffix("MB")) * 1024 * 1024
