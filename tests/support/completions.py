# SPDX-License-Identifier: Apache-2.0
"""What vLLM answers when it is asked for one token, and for its models."""

from __future__ import annotations

import json

from tests.support.http_servers import answer, chunk


END = b"data: [DONE]\n\n"
LAST_CHUNK = b"0\r\n\r\n"
HEAD = answer(Content_Type="text/event-stream; charset=utf-8", Transfer_Encoding="chunked")


def event(**fields: object) -> bytes:
    """Return an event of a stream."""
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def token(text: str = " the", finish_reason: str | None = "length") -> bytes:
    """Return the event that brings a token, as vLLM 0.32 prints it."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
    return event(id="cmpl-1", object="text_completion", created=1, model="m", choices=[choice])


def stream(*events: bytes) -> list[bytes]:
    """Return a whole answer: its head, each event in a chunk, and the end."""
    return [HEAD, *map(chunk, events), LAST_CHUNK]


def models(*names: str) -> bytes:
    """Return the list of models."""
    listed = [{"id": name, "object": "model", "owned_by": "vllm"} for name in names]
    return answer(json.dumps({"object": "list", "data": listed}).encode(), Content_Type="application/json")


GOOD = stream(token(), END)
