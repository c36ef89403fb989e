# SPDX-License-Identifier: Apache-2.0
"""What ``python -m venv FOLDER`` does, with `wheel_installer` in place of pip: ``__main__`` of a package ``venv``."""

from __future__ import annotations

import shutil
import subprocess
import sys

from pathlib import Path


def make(folder: Path, installer: Path) -> None:
    """Make a virtual environment with a small installer."""
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "pip").mkdir(0o755)
    shutil.copy(installer, site / "pip" / "__main__.py")


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(__file__).with_name("wheel_installer.py"))
