# SPDX-License-Identifier: Apache-2.0
"""The interpreter's search for cycles of objects."""

from __future__ import annotations

import gc

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_search_for_cycles() -> Iterator[None]:
    """
    Do not look for cycles inside the ``with`` block.

    For reading a whole log or recording: millions of small tuples come and go without a cycle among them, and each
    search looks at all that there are.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
