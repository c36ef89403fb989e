# SPDX-License-Identifier: Apache-2.0
"""How many random cases a test tries: a few in every run, all of them with ``--whole``."""

from __future__ import annotations

import os

import pytest


_WHOLE = "VLLM_WATCH_WHOLE"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let all samples be whole."""
    parser.addoption("--whole", action="store_true", help="whole samples: more kills, random histories and examples")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Say so to the modules of tests, which are imported later, and to all processes of the run."""
    if config.getoption("--whole"):
        os.environ[_WHOLE] = "1"


def is_whole() -> bool:
    """Whether the run is one with ``--whole``."""
    return _WHOLE in os.environ


def sample(few: int, whole: int, variable: str | None = None) -> int:
    """
    Return how many cases to try.

    Args:
        few: In every run.
        whole: With ``--whole``.
        variable: An environment variable that overrides both.
    """
    chosen = whole if is_whole() else few
    return int(os.environ.get(variable, chosen)) if variable else chosen
