# SPDX-License-Identifier: Apache-2.0
"""The systemd unit or the container that a process runs in, from its control group. Pure."""

from __future__ import annotations

import re

from typing import NamedTuple


_CONTAINER = re.compile(r"(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?=/|\Z)")
_USER_MANAGER = re.compile(r"/user@[0-9]+\.service/")
_UNITS = (".service", ".scope")


class Owner(NamedTuple):
    """A systemd unit's name or a container's id of 64 digits; `is_user_unit` for a unit of ``systemd --user``."""

    unit: str | None = None
    is_user_unit: bool = False
    container: str | None = None


def owner_of(text: str) -> Owner:
    """
    Return the unit or container in the content of ``/proc/PID/cgroup``, of version 1 or 2.

    The unit is the innermost one, as in the journal.
    """
    paths = [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
    for path in paths:
        found = _CONTAINER.search(path)
        if found is not None:
            return Owner(container=found[1])
    for path in paths:
        units = [part for part in path.split("/") if part.endswith(_UNITS)]
        if units:
            return Owner(_unescaped(units[-1]), is_user_unit=_USER_MANAGER.search(path) is not None)
    return Owner()


def _unescaped(name: str) -> str:
    """Return a unit's name. Systemd puts a _ before some names of control groups."""
    return name.removeprefix("_")
