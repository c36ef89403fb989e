# SPDX-License-Identifier: Apache-2.0
"""
What is fuzzed: each module holds one target.

`check(data)` raises AssertionError where something that is said to be true of every input is not. `seeds()` are inputs
to begin with, `TOKENS` the words that such inputs are made of.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile

from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast


TARGETS = ("framing", "lines", "exposition", "configuration", "checkpoint", "journal")


class Target(Protocol):
    """A module of this package."""

    TOKENS: tuple[bytes, ...]

    def seeds(self) -> list[bytes]:
        """Return inputs to begin with."""

    def check(self, data: bytes) -> None:
        """Hold an input to what is true of all."""


@cache
def scratch_folder() -> Path:
    """Return a folder for the files of targets that read files; it goes with the process."""
    folder = tempfile.mkdtemp(prefix="vllm-watch-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def load(name: str) -> Target:
    """Return a target by its name."""
    return cast("Target", import_module(f"tests.fuzz.targets.{name}"))
