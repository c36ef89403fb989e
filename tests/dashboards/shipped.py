# SPDX-License-Identifier: Apache-2.0
"""The dashboards that are shipped."""

from __future__ import annotations

import json

from pathlib import Path
from typing import Any


JSON = Path(__file__).parents[2] / "dashboards" / "json"
UIDS = tuple(sorted(path.stem for path in (JSON / "en").glob("*.json")))


def dashboard(uid: str, language: str = "en") -> dict[str, Any]:
    """Return a dashboard's JSON."""
    return json.loads((JSON / language / f"{uid}.json").read_text(encoding="utf-8"))
