# SPDX-License-Identifier: Apache-2.0
"""The Collector's configuration: complete, and its receiver's part is one that Prometheus accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.support.processes import run_command


FILE = Path(__file__).parents[2] / "deploy" / "otel" / "collector.yml"


def configuration():
    """Return the configuration."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def test_the_pipeline_names_what_is_there():
    """Each part of the pipeline is configured, and each part that is configured is in the pipeline."""
    found = configuration()
    (pipeline,) = found["service"]["pipelines"].values()

    assert set(found) == {"receivers", "exporters", "service"}
    assert set(found["service"]["pipelines"]) == {"metrics"}
    assert (set(pipeline["receivers"]), set(pipeline["exporters"])) == (
        set(found["receivers"]),
        set(found["exporters"]),
    )


@pytest.mark.needs_tool("promtool")
def test_prometheus_accepts_the_receivers_part(tmp_path):
    """The receiver's `config` is a configuration of Prometheus without anything that it does not know."""
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(configuration()["receivers"]["prometheus"]["config"]))
    command = ["promtool", "check", "config", "--lint-fatal", tmp_path / "prometheus.yml"]
    done = run_command(*command)

    assert done.returncode == 0, done.stderr
