# SPDX-License-Identifier: Apache-2.0
"""A log that is followed."""

from __future__ import annotations

import pytest

from tests.support.logs import Log


@pytest.fixture
def log(tmp_path):
    """A log that is not there yet."""
    followed = Log(tmp_path / "vllm.log")
    yield followed
    followed.tail.close()


@pytest.fixture
def followed(log):
    """A log that is there, empty and polled."""
    log.grow()
    return log
