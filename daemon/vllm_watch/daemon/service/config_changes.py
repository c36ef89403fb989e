# SPDX-License-Identifier: Apache-2.0
"""The changes of servers' flags, for the daemon's log."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from vllm_watch.daemon.sources.checkpoint import ServerChange
from vllm_watch.daemon.state.snapshot import ConfigChange


log = structlog.get_logger("vllm_watch.service")

SAME_SECONDS = 2.0
"""Changes no further apart are one: clocks are corrected."""


class ConfigChanges:
    """
    Logs each server's last change of flags once.

    Args:
        known: Those that an earlier run has logged.
    """

    def __init__(self, known: Iterable[ServerChange]) -> None:
        self._logged = {each.server: each.change for each in known}

    def log(self, changes: Iterable[ServerChange]) -> None:
        """Log what is new."""
        for server, change in changes:
            last = self._logged.get(server)
            if last is None or not _is_same(last, change):
                log.info("server.config_changed", server=server, at=change.at, changes=change.text.replace("→", "->"))
            self._logged[server] = change


def _is_same(one: ConfigChange, other: ConfigChange) -> bool:
    return one.changes == other.changes and abs((one.at or 0.0) - (other.at or 0.0)) <= SAME_SECONDS
