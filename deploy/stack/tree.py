# SPDX-License-Identifier: Apache-2.0
"""Where the files of this tree are that the programs read."""

from __future__ import annotations

from pathlib import Path


ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "alerts"
DASHBOARDS = ROOT / "dashboards"
