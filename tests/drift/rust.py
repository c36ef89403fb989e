# SPDX-License-Identifier: Apache-2.0
"""The families of the Rust front end, by the text of its sources: the names under which it registers them."""

from __future__ import annotations

import re

from collections.abc import Mapping


_REGISTERED = re.compile(r"\.register(?:_with_unit)?\(\s*\"([a-zA-Z_:][a-zA-Z0-9_:]*)\"")
_TESTS = re.compile(r"(?m)^#\[cfg\(test\)\]\s*\n\s*mod\b")


def registered_names(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names that the sources register, without those of their tests."""
    names = set()
    for path, text in texts.items():
        if "/tests/" not in path and not path.endswith("/tests.rs"):
            names.update(_REGISTERED.findall(_TESTS.split(text, maxsplit=1)[0]))
    return tuple(sorted(names))
