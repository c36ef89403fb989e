# SPDX-License-Identifier: Apache-2.0
"""
The programs that some tests need, and the Debian package that has each: those that users need, and more.

``python3 -m tests.support.tools`` prints the packages whose programs are missing, for apt-get install. It needs nothing
but Python.
"""

from __future__ import annotations

from collections.abc import Mapping

from deploy.stack import programs


PACKAGES: Mapping[str, str] = {
    **programs.PACKAGES,
    "amtool": "prometheus-alertmanager",
    "bash": "bash",
    "cc": "gcc libc6-dev",
    "chromium": "chromium",
    "dpkg-deb": "dpkg",
    "fish": "fish",
    "git": "git",
    "ip": "iproute2",
    "journalctl": "systemd",
    "jq": "jq",
    "logrotate": "logrotate",
    "make": "make",
    "openssl": "openssl",
    "prlimit": "util-linux",
    "promtool": "prometheus",
    "setfacl": "acl",
    "setpriv": "util-linux",
    "shellcheck": "shellcheck",
    "systemd-analyze": "systemd",
    "systemd-cat": "systemd",
    "systemd-sysusers": "systemd",
    "systemd-tmpfiles": "systemd",
    "unshare": "util-linux",
    "victoria-metrics": "victoria-metrics",
    "vmalert": "victoria-metrics",
    "zsh": "zsh",
}
"""Debian's package by program."""

ELSEWHERE: Mapping[str, str] = {
    "docker": "https://docs.docker.com/engine/install/",
    "kubectl": "https://kubernetes.io/docs/tasks/tools/",
}
"""Where a program is from that Debian does not have in a usable version."""

find = programs.find


def source(tool: str) -> str:
    """Return how to get a program."""
    return f"apt-get install {PACKAGES[tool]}" if tool in PACKAGES else f"see {ELSEWHERE[tool]}"


def missing_packages() -> list[str]:
    """Return the Debian packages that are needed for the programs that are missing."""
    return sorted({package for tool, package in PACKAGES.items() if find(tool) is None})


if __name__ == "__main__":
    print(*missing_packages())  # noqa: T201  # The shell reads it.
