# SPDX-License-Identifier: Apache-2.0
"""
Installations without a network: wheels of the code under test, and a Python whose environments are copies.

Nearly all the time of ``python -m venv`` is pip's, which is installed anew into each. Most of the rest of an
installation is pip's, too, so `wheel_installer` stands in for it; with whole samples it is pip.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile

from pathlib import Path

from tests.support import quick_venv, wheel_installer
from tests.support.samples import is_whole, sample
from tests.support.shared import new_folder, shared

import vllm_watch
import vllm_watch_parsers


COMMANDS_ONLY = {"advice", "backtest", "comparison", "grafana", "recorder", "replay", "terminal", "web"}
"""Packages that `--version` and `check` do not import: compiling them is half of what an installation costs."""

LEFT_OUT = {"__pycache__", "recordings", "dashboards", *sample(COMMANDS_ONLY, set())}
"""What starting does not need."""


def make_wheel(folder: Path, version: str, command_line: str | None = None) -> Path:
    """Make a wheel of the code under test that calls itself by a version; its command line may be replaced."""
    path = folder / f"vllm_watch-{version}-py3-none-any.whl"
    info = f"vllm_watch-{version}.dist-info"
    files = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm-watch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": "[console_scripts]\nvllm-watch = vllm_watch.__main__:main\n",
        "vllm_watch/__init__.py": f'"""The daemon."""\n\n__version__ = "{version}"\n',
    }
    if command_line is not None:
        files["vllm_watch/cli/command_line.py"] = command_line
    with zipfile.ZipFile(path, "w") as wheel:
        for package in (vllm_watch, vllm_watch_parsers):
            top = Path(package.__file__).parent
            for file in (each for each in top.rglob("*") if each.is_file()):
                place = file.relative_to(top.parent)
                if place.as_posix() not in files and not LEFT_OUT & set(place.parts):
                    wheel.write(file, place)
        for name, text in files.items():
            wheel.writestr(name, text)
        names = [*wheel.namelist(), f"{info}/RECORD"]
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in names))
    return path


def link_dependencies(folder: Path) -> Path:
    """Fill a folder with all that is installed beside these tests but vllm-watch, to be put on PYTHONPATH."""
    folder.mkdir()
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith("vllm_watch"):
            (folder / each.name).symlink_to(each)
    return folder


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
