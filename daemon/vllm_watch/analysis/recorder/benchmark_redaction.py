# SPDX-License-Identifier: Apache-2.0
"""Removes private data from a benchmark's result: the answers of the model, and what its settings hold."""

from __future__ import annotations

import json
import re

from typing import Any

from vllm_watch.analysis.recorder.client_messages import LITERAL
from vllm_watch.analysis.recorder.json_redaction import redact_json
from vllm_watch.analysis.recorder.private_text import PrivateText


_BLANKS = " \t\r\n"


def redact_benchmark(text: str, private: PrivateText) -> str:
    """Return a result, in JSON or as it was printed, without what is private; its numbers stay as they are."""
    if text.lstrip(_BLANKS)[:1] not in {"{", "["}:
        return "\n".join(private.clean(line) for line in text.split("\n"))
    parts, at, decoder, before = [], 0, json.JSONDecoder(), private.counts.total()
    try:
        while (at := len(text) - len(text[at:].lstrip(_BLANKS))) < len(text):
            value, at = decoder.raw_decode(text, at)
            parts.append(json.dumps(_without_errors(value, private), ensure_ascii=False))
    except (ValueError, RecursionError):
        parts.append(private.clean(text[at:]))
    return text if private.counts.total() == before else "\n".join(parts) + "\n"


def _without_errors(value: Any, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    """Return a result; its errors are tracebacks, with what the server answered."""
    if isinstance(value, list):
        return [_without_errors(each, private) for each in value]
    redacted = redact_json(value, private)
    if isinstance(value, dict) and isinstance(errors := value.get("errors"), list):
        redacted["errors"] = [_error(each, private) if isinstance(each, str) else each for each in errors]
    return redacted


def _error(text: str, private: PrivateText) -> str:
    def quoted(found: re.Match[str]) -> str:
        return private.remove("prompts", found[0])

    return "\n".join(private.clean(LITERAL.sub(quoted, line)) for line in text.split("\n"))
