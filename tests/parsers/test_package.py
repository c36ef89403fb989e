# SPDX-License-Identifier: Apache-2.0
"""What the parsers may use: nothing but Python's own library and each other."""

from __future__ import annotations

import ast
import sys

from pathlib import Path

import pytest

import vllm_watch_parsers


MODULES = sorted(Path(vllm_watch_parsers.__file__).parent.glob("*.py"))

# What reads files, clocks or the net, or writes logs, has no place in a pure function.
IMPURE = {"asyncio", "io", "logging", "os", "pathlib", "random", "socket", "subprocess", "threading", "time", "urllib"}


def imported(module: Path) -> set[str]:
    """Return the top-level names of all that a module imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.stem)
def test_parsers_are_pure_and_depend_on_nothing(module):
    """A parser imports no third-party package, nothing of the daemon, and nothing that does input or output."""
    names = imported(module)

    assert names <= sys.stdlib_module_names | {"vllm_watch_parsers"}
    assert not names & IMPURE
