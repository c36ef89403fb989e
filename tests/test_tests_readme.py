# SPDX-License-Identifier: Apache-2.0
"""The READMEs of the tests describe what is there."""

from __future__ import annotations

import re

from pathlib import Path

from tests.support.recordings import NAMES


TESTS = Path(__file__).parent


def test_each_recording_is_described():
    """The README of the recordings names each of them."""
    text = (TESTS / "recordings" / "README.md").read_text(encoding="utf-8")

    assert {"day", *NAMES} - set(re.findall(r"`(\w+)`", text)) == set()


def test_each_folder_is_described():
    """tests/README.md has a row for each folder of tests, and no other."""
    text = (TESTS / "README.md").read_text(encoding="utf-8")
    folders = re.search(r"(?ms)^## What each folder proves$(.*?)^## ", text)[1]

    assert set(re.findall(r"\]\((\w+)/", folders)) == {
        path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"
    }
