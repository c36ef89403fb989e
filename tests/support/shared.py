# SPDX-License-Identifier: Apache-2.0
"""What is costly to make, and is made once in a run: by whichever of its processes asks first."""

from __future__ import annotations

import fcntl
import hashlib
import os
import pickle
import tempfile

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest


_FOLDER = "VLLM_WATCH_TEST_SHARED"

T = TypeVar("T")


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of this run, in the process that the run was started as."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="vllm-watch-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ[_FOLDER] = folder.name


def new_folder() -> Path:
    """Return a new folder that is there until the run ends."""
    return Path(tempfile.mkdtemp(dir=os.environ[_FOLDER]))


def shared(make: Callable[..., T], *arguments: Any) -> T:
    """
    Return what a function returns, from an earlier call if there was one in this run; without a run, call it.

    Args:
        make: A function of a module; what it returns can be pickled.
        arguments: They tell one call from another by their `repr`.
    """
    if _FOLDER not in os.environ:
        return make(*arguments)
    key = hashlib.sha256(repr((make.__module__, make.__qualname__, arguments)).encode()).hexdigest()
    path = Path(os.environ[_FOLDER]) / key
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return pickle.loads(path.read_bytes())
        made = make(*arguments)
        new = path.with_suffix(".new")
        new.write_bytes(pickle.dumps(made))
        new.rename(path)
    return made
