# SPDX-License-Identifier: Apache-2.0
"""tests/README.md describes what is there."""

from __future__ import annotations

import re

from pathlib import Path

from tests.support.recordings import NAMES


TESTS = Path(__file__).parent


def test_each_recording_and_folder_is_described():
    """tests/README.md has a row for each recording and for each folder of tests, and no other."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    titles = ("Recordings", "What each folder proves")
    recordings, folders = (re.search(rf"(?ms)^## {title}$(.*?)^## ", text)[1] for title in titles)
    rows = re.findall(r"(?m)^\| (`.*?`) \|", recordings)

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == {
        "day",
        *NAMES,
    }
    assert set(re.findall(r"\]\((\w+)/", folders)) == {
        path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
