# SPDX-License-Identifier: Apache-2.0
"""Wheels of vllm-watch as the tests want them, made without a network, and what a new environment lacks then."""

from __future__ import annotations

import sysconfig
import zipfile

from pathlib import Path

from tests.support.samples import sample

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
