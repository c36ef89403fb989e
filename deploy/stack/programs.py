# SPDX-License-Identifier: Apache-2.0
"""
The programs of others that `make stack` starts: where they are, and how to get them.

It imports nothing but Python's own modules: the tests' list of packages, which begins with this one, is printed before
anything is installed.
"""

from __future__ import annotations

import os
import shutil

from collections.abc import Mapping
from typing import NamedTuple


PACKAGES: Mapping[str, str] = {
    "prometheus": "prometheus",
    "prometheus-alertmanager": "prometheus-alertmanager",
}
"""Debian's package by program."""

OTHER_NAMES: Mapping[str, str] = {"prometheus-alertmanager": "alertmanager"}
"""What programs are called where they are not Debian's."""

ELSEWHERE = "https://prometheus.io/download/"
GRAFANA_SITE = "https://grafana.com/grafana/download"
"""Debian has no Grafana."""

_GRAFANA = {"grafana": ("server",), "grafana-server": ()}
"""Grafana's program by age, the newer one first, and what it is told in order to serve."""


def find(program: str) -> str | None:
    """Return the path of a program, or `None`; those for administrators are found by everybody."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    return shutil.which(program, path=path) or shutil.which(OTHER_NAMES.get(program, program), path=path)


class Found(NamedTuple):
    """
    Where programs are.

    Args:
        paths: Those of `PACKAGES`, by name.
        missing: Those of `PACKAGES` that are not there.
        grafana: The beginning of the command that starts Grafana, or `None` where there is none.
    """

    paths: Mapping[str, str]
    missing: tuple[str, ...]
    grafana: tuple[str, ...] | None


def found_programs() -> Found:
    """Look for all of them."""
    paths = {program: path for program in PACKAGES if (path := find(program)) is not None}
    grafana = ((find(program), arguments) for program, arguments in _GRAFANA.items())
    return Found(
        paths,
        tuple(program for program in PACKAGES if program not in paths),
        next(((path, *arguments) for path, arguments in grafana if path is not None), None),
    )


def how_to_install(*programs: str) -> str:
    """Return how to get some of `PACKAGES`: a command, and where they are from without it."""
    packages = sorted({PACKAGES[program] for program in programs})
    return f"sudo apt-get install {' '.join(packages)}, or {ELSEWHERE}"
