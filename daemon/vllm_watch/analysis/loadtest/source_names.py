# SPDX-License-Identifier: Apache-2.0
"""Short names for sources: those of their files without the endings."""

from __future__ import annotations

import re


_ENDINGS = re.compile(r"(?:\.(?:jsonl?|log|out|txt|xz|gz|bz2|zst)(?:[.-]\d[\w:+-]*)?)+$", re.ASCII)
"""Those of results, recordings and logs, with what rotation and compression add: ``.json``, ``.log.1.gz``."""


def without_endings(name: str) -> str:
    """Return a file's name without its endings; other dots stay, as in ``openai-0.5qps-Qwen2.5-7B.json``."""
    return _ENDINGS.sub("", name) or name
