# SPDX-License-Identifier: Apache-2.0
"""What a check of two sides found."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """What is wrong, in a sentence; `prevents`: the numbers would mislead, so none is shown unless it is asked for."""

    text: str
    prevents: bool
