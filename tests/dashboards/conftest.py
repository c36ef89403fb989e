# SPDX-License-Identifier: Apache-2.0
"""What tests of the dashboards share: one Prometheus over all recordings."""

from __future__ import annotations

import shutil

import pytest

from tests.alerts.replay import RULES
from tests.dashboards.loaded import loaded


@pytest.fixture(scope="session")
def prometheus():
    """Give a Prometheus over all recordings."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("needs prometheus and promtool (Debian's prometheus)")
    if not RULES.exists():
        pytest.skip("needs the tree that the rules are in")
    with loaded() as running:
        yield running
