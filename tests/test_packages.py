# SPDX-License-Identifier: Apache-2.0
"""The layers hold: parsers know nothing of the daemon, and the core does no I/O."""

from __future__ import annotations

import ast

from pathlib import Path

import pytest

import vllm_watch
import vllm_watch_parsers


PARSERS = Path(vllm_watch_parsers.__file__).parent
DAEMON = Path(vllm_watch.__file__).parent
PURE = sorted([*PARSERS.glob("*.py"), *(DAEMON / "state").glob("*.py"), *(DAEMON / "reading").glob("*.py")])
IMPURE = {"os", "io", "socket", "threading", "subprocess", "logging", "structlog", "requests", "random", "pathlib"}


def imports(path):
    """Return the names of all modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", sorted(PARSERS.glob("*.py")), ids=lambda path: path.stem)
def test_parsers_import_nothing_of_the_daemon(path):
    """vllm_watch_parsers imports only itself and the standard library's parsing."""
    assert not {name for name in imports(path) if name.partition(".")[0] == "vllm_watch"}


@pytest.mark.parametrize("path", PURE, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_the_core_does_no_io_and_reads_no_clock(path):
    """Parsers, reading and state import nothing that reads or writes; the clock is an argument."""
    text = path.read_text(encoding="utf-8")

    assert not {name.partition(".")[0] for name in imports(path)} & IMPURE
    assert not [call for call in ("open(", "time.time(", "time.monotonic(", "datetime.now(") if call in text]
