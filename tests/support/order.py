# SPDX-License-Identifier: Apache-2.0
"""
In which order files of tests begin.

At the end of a run there is little left to do side by side, so what takes long begins first. What mostly waits stands
between what computes: then a core has something to do at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest


TESTS = Path(__file__).parents[1]
FIRST = (
    "deploy/test_stack_processes.py",
    "alerts/test_end_to_end.py",
    "comparison/test_proof.py",
    "alerts/test_incidents.py",
    "cli/test_commands.py",
    "recorder/test_record.py",
    "dashboards/test_fleet.py",
    "service/test_hanging_logs.py",
    "sources/test_strangers.py",
    "deploy/test_install.py",
    "alerts/test_rules.py",
    "deploy/test_keep_log.py",
    "parsers/test_worst_cases.py",
    "deploy/test_debian_package.py",
    "rendering/test_report_html.py",
    "test_run.py",
    "service/test_process.py",
    "deploy/test_remote_write.py",
    "service/test_probing.py",
    "state/test_recorded_states.py",
    "deploy/test_install_service.py",
    "dashboards/test_queries.py",
    "recorder/test_parts.py",
    "sources/test_kills.py",
    "rendering/test_accessibility.py",
    "web/test_browser.py",
    "sources/test_tail_model.py",
    "dashboards/test_batches.py",
    "advice/test_recorded.py",
    "service/test_discovering.py",
)
"""Files that take ten seconds or more where five run on two cores, as `--durations=0` says."""

_RANKS: Mapping[Path, int] = {TESTS / name: rank for rank, name in enumerate(FIRST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of these files first; all others stay in the order of their folders."""
    items.sort(key=lambda item: _RANKS.get(item.path, len(FIRST)))
