# SPDX-License-Identifier: Apache-2.0
"""The probe's rule, by promtool and against what the daemon shows."""

from __future__ import annotations

from pathlib import Path

from tests.support.yaml_files import load_yaml

from vllm_watch.daemon.catalog.reasons import NOT_JUDGED


ALERTS = Path(__file__).parents[2] / "alerts"


def test_reasons():
    """The reasons that page nobody are those that the daemon gives where it could not judge the server."""
    groups = load_yaml((ALERTS / "rules" / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    (rule,) = [rule for group in groups for rule in group["rules"] if rule.get("alert") == "VllmProbeFailing"]

    assert f'reason=~"{"|".join(NOT_JUDGED)}"' in rule["expr"]
    assert {"starting", "sleeping", "overdue", "key_unreadable"} < set(NOT_JUDGED)
    assert not {"ok", "timeout", "refused", "failed"} & set(NOT_JUDGED)
