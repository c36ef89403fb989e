# SPDX-License-Identifier: Apache-2.0
"""A log that is followed."""

from __future__ import annotations

import os

import pytest

from tests.support.logs import Log


NOBODY = 65534


@pytest.fixture
def small_rights():
    """Take root's rights away until the test ends; others have no more than theirs anyway."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    yield
    if is_root:
        os.seteuid(0)


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
