# SPDX-License-Identifier: Apache-2.0
"""How many cases a test tries: a few in every run, all of them with ``--whole``."""

from __future__ import annotations

import os

from typing import TypeVar

import pytest


_WHOLE = "VLLM_WATCH_WHOLE"

T = TypeVar("T")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let all samples be whole."""
    parser.addoption("--whole", action="store_true", help="whole samples: tests/README.md says of what")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Say so to the modules of tests, which are imported later, and to all processes of the run."""
    if config.getoption("--whole"):
        os.environ[_WHOLE] = "1"


def is_whole() -> bool:
    """Whether the run is one with ``--whole``."""
    return _WHOLE in os.environ


def sample(few: T, whole: T) -> T:
    """
    Return which cases to try, or how many.

    Args:
        few: In every run.
        whole: With ``--whole``.
    """
    return whole if is_whole() else few


def number_of(few: int, whole: int, variable: str) -> int:
    """Return how many cases to try: a sample of them, or as many as an environment variable says."""
    return int(os.environ.get(variable, sample(few, whole)))
