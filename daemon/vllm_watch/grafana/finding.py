# SPDX-License-Identifier: Apache-2.0
"""Lines of a report on dashboards."""

from __future__ import annotations

from vllm_watch.grafana.model import Dashboard
from vllm_watch.support.report import ReportLine


_WRONG = frozenset({"failed", "refused", "not done"})


def about(word: str, dashboard: Dashboard, url: str, why: str = "") -> ReportLine:
    """Return what became of a dashboard, where to open it, and why."""
    return ReportLine(f"{word}: {dashboard.title} ({url}/d/{dashboard.uid}){why and f': {why}'}", word in _WRONG)
