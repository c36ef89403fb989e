# SPDX-License-Identifier: Apache-2.0
"""
What pip does for deploy/install.sh, and nothing else: ``__main__`` of a package ``pip`` in the tests' environments.

It installs one wheel without its dependencies, and removes itself.
"""

from __future__ import annotations

import configparser
import shutil
import sys
import zipfile

from pathlib import Path


PROGRAM = """#!{prefix}/bin/python
import sys
from {module} import {function}
sys.exit({function}())
"""


def install(site: Path, wheel: str) -> None:
    """Unpack a wheel, and write the programs that it declares."""
    with zipfile.ZipFile(wheel.partition("[")[0]) as file:  # Without the extras that are asked for.
        file.extractall(site)
        (entry_points,) = (name for name in file.namelist() if name.endswith(".dist-info/entry_points.txt"))
    declared = configparser.ConfigParser()
    declared.read(site / entry_points)
    for name, point in declared["console_scripts"].items():
        module, function = point.split(":")
        program = Path(sys.prefix, "bin", name)
        program.write_text(PROGRAM.format(prefix=sys.prefix, module=module, function=function))
        program.chmod(0o755)


def main() -> None:
    """Do what the arguments say; options change nothing."""
    command, *what = (word for word in sys.argv[1:] if not word.startswith("-"))
    site = Path(__file__).parents[1]
    if command == "install" and len(what) == 1:
        install(site, *what)
    elif command == "uninstall":
        shutil.rmtree(site / "pip")
    else:
        sys.exit(f"{sys.argv}: only pip itself does this")


if __name__ == "__main__":
    main()
