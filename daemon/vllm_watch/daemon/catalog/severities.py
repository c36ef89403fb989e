# SPDX-License-Identifier: Apache-2.0
"""The severities of the shipped alerts. Whoever changes the rules may give others, which come after these."""

from __future__ import annotations


SEVERITIES = ("critical", "warning", "info")
"""From the worst on."""


def severity_rank(severity: str) -> int:
    """Return the place of a severity in the order from the worst on."""
    return SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
