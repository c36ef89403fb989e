# SPDX-License-Identifier: Apache-2.0
"""The numbers of the alerts, so that a dashboard turns red where a rule fires: ``alerts/thresholds.yml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml


_ALERTS = Path(__file__).parents[3] / "alerts"


@cache
def thresholds() -> dict[str, float | str]:
    """Return every threshold: numbers as such, durations (``1m``) and addresses as they are written."""
    loaded: dict[str, float | str] = yaml.safe_load((_ALERTS / "thresholds.yml").read_text(encoding="utf-8"))
    return loaded


def number(name: str) -> float:
    """
    Return a threshold that is a number.

    Raises:
        KeyError: There is none of this name.
        ValueError: It is a duration or an address.
    """
    return float(thresholds()[name])


def runbook(alert: str) -> str:
    """
    Return the address of an alert's runbook.

    Raises:
        FileNotFoundError: There is no such runbook.
    """
    (_ALERTS / "runbooks" / f"{alert}.md").stat()
    return f"{thresholds()['runbooks']}/{alert}.md"
