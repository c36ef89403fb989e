# SPDX-License-Identifier: Apache-2.0
"""YAML as `yaml.safe_load` reads it; by libyaml where PyYAML has it, which takes a tenth of the time."""

from __future__ import annotations

from typing import IO, Any

import yaml


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str | IO[str]) -> Any:
    """Return the one document of a text."""
    return yaml.load(text, _LOADER)


def load_all_yaml(text: str) -> list[Any]:
    """Return all documents of a text."""
    return list(yaml.load_all(text, _LOADER))
