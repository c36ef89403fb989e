# SPDX-License-Identifier: Apache-2.0
"""Removes private data from a JSON value, by its keys and from its texts; its numbers stay as they are."""

from __future__ import annotations

from typing import Any

from vllm_watch.analysis.recorder.private_text import Kind, PrivateText


def redact_json(value: Any, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    """Return a value without what is private."""
    if isinstance(value, dict):
        return {name: _redacted(each, private.kind_of(name), private) for name, each in value.items()}
    if isinstance(value, list):
        return [redact_json(each, private) for each in value]
    return private.clean(value) if isinstance(value, str) else value


def _redacted(value: Any, kind: Kind | None, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    """Return a value of a key that announces a kind of private data, or none."""
    if kind is None:
        return redact_json(value, private)
    if isinstance(value, dict):
        return {name: _redacted(each, kind, private) for name, each in value.items()}
    if isinstance(value, list):
        return [_redacted(each, kind, private) for each in value]
    return private.remove(kind, value) if isinstance(value, str) and value else value
