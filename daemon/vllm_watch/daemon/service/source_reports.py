# SPDX-License-Identifier: Apache-2.0
"""What the daemon's own log says about a server's sources."""

from __future__ import annotations

import structlog

from vllm_watch.daemon.catalog.reasons import SourceName, explain


log = structlog.get_logger("vllm_watch.service")


class SourceReports:
    """Logs whenever a source of one server starts to work, fails, or fails for another reason."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._reasons: dict[SourceName, str] = {}

    def report(self, source: SourceName, reason: str, *, is_up: bool) -> None:
        """Log the reason, unless it is the one that was logged last."""
        if self._reasons.get(source) == reason:
            return
        self._reasons[source] = reason
        write = log.info if is_up else log.warning
        write("source.changed", server=self._server, source=source, reason=reason, meaning=explain(source, reason))
