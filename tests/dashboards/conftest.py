# SPDX-License-Identifier: Apache-2.0
"""What tests of the dashboards share: one Prometheus over recordings."""

from __future__ import annotations

import shutil

import pytest

from tests.dashboards.loaded import FLEET, TESTED, filled, loaded
from tests.support.shared import shared


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory):
    """Give a Prometheus over recordings and the fleet; its data are made once in a run, and each process has a copy."""
    data = tmp_path_factory.mktemp("prometheus") / "data"
    shutil.copytree(shared(filled), data)
    with loaded((*TESTED, FLEET), data=data) as running:
        yield running
