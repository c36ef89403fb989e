# SPDX-License-Identifier: Apache-2.0
"""Removes private data from a benchmark's result: the answers of the model, and what its settings hold."""

from __future__ import annotations

import json
import re

from typing import Any

from vllm_watch.recorder.client_messages import LITERAL
from vllm_watch.recorder.private_text import PrivateText


_BLANKS = " \t\r\n"


def redact_benchmark(text: str, private: PrivateText) -> str:
    """Return a result, in JSON or as it was printed, without what is private; its numbers stay as they are."""
    if text.lstrip(_BLANKS)[:1] not in {"{", "["}:
        return "".join(private.clean(line) for line in text.splitlines(keepends=True))
    parts, at, decoder, before = [], 0, json.JSONDecoder(), private.counts.total()
    try:
        while (at := len(text) - len(text[at:].lstrip(_BLANKS))) < len(text):
            value, at = decoder.raw_decode(text, at)
            parts.append(json.dumps(_redacted(value, private), ensure_ascii=False))
    except (ValueError, RecursionError):
        parts.append(private.clean(text[at:]))
    return text if private.counts.total() == before else "\n".join(parts) + "\n"


def _redacted(value: Any, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    if isinstance(value, dict):
        return {name: _named(name, each, private) for name, each in value.items()}
    if isinstance(value, list):
        return [_redacted(each, private) for each in value]
    return private.clean(value) if isinstance(value, str) else value


def _named(name: str, value: Any, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    kind = private.kind_of(name)
    if name == "errors" and isinstance(value, list):  # Tracebacks, with what the server answered.
        return [_error(each, private) if isinstance(each, str) else each for each in value]
    if kind is None:
        return _redacted(value, private)
    if isinstance(value, list):
        return [_named(name, each, private) for each in value]
    if isinstance(value, dict):
        return {key: _named(name, each, private) for key, each in value.items()}
    return private.remove(kind, value) if isinstance(value, str) and value else value


def _error(text: str, private: PrivateText) -> str:
    def quoted(found: re.Match[str]) -> str:
        return private.remove("prompts", found[0])

    return "".join(private.clean(LITERAL.sub(quoted, line)) for line in text.splitlines(keepends=True))
