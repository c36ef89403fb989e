# SPDX-License-Identifier: Apache-2.0
"""
A Python whose virtual environments are copies of one that is made once in a run.

Nearly all the time of ``python -m venv`` is pip's, which is installed anew into each. Most of the rest of an
installation is pip's, too, so `wheel_installer` stands in for it; with whole samples it is pip.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

from pathlib import Path

from tests.support import quick_venv, wheel_installer
from tests.support.samples import is_whole
from tests.support.shared import new_folder, shared


PROGRAM = """#!/bin/sh
[ "$1 $2" = "-m venv" ] || exec {python} "$@"
cp -a {venv} "$3" && sed -i "s|{venv}|$3|g" "$3/pyvenv.cfg"
"""


def copied_venv() -> Path:
    """Return the virtual environment that is copied."""
    return shared(_make)


def copying_python(folder: Path) -> Path:
    """Write a program into a folder that does what this Python does, but copies where that makes an environment."""
    program = folder / "python"
    program.write_text(PROGRAM.format(python=sys.executable, venv=copied_venv()))
    program.chmod(0o755)
    return program


def put_quick_venv(folder: Path) -> None:
    """Put a package ``venv`` into a folder of PYTHONPATH, for a Python that must be itself; not with whole samples."""
    if not is_whole():
        package = folder / "venv"
        package.mkdir()
        package.joinpath("__init__.py").touch()
        shutil.copy(quick_venv.__file__, package / "__main__.py")
        shutil.copy(wheel_installer.__file__, package)


def _make() -> Path:
    venv = new_folder() / "venv"
    making = ["-m", "venv"] if is_whole() else [quick_venv.__file__]
    subprocess.run([sys.executable, *making, venv], check=True, timeout=120, umask=0o022)
    return venv
