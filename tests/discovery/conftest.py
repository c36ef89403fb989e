# SPDX-License-Identifier: Apache-2.0
"""What tests of discovery have in common."""

from __future__ import annotations

import pytest

from tests.support.servers_here import ServersHere


@pytest.fixture
def here(tmp_path):
    """Stand-ins for vLLM on this machine."""
    servers = ServersHere(tmp_path)
    yield servers
    servers.close()
