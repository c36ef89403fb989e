# SPDX-License-Identifier: Apache-2.0
"""Messages of vLLM that have text of clients, made anew from what is harmless."""

from __future__ import annotations

import re

from vllm_watch.analysis.recorder.private_text import REMOVED, PrivateText
from vllm_watch_parsers.line import ECHOING_SITES
from vllm_watch_parsers.python_repr import top_level_items


_CLIENT_SITE = re.compile(r"(?:\w*tool\w*|\w*parser|harmony\w*|connection|validation|exception|vllm_error|http)\.py")
"""Files whose records quote what a client sent, or what the model answered."""

_HANDLER_SITE = re.compile(r"(?:\w*serving\w*|\w*api_router|chat_utils|\w*preprocess\w*|input_processor)\.py")
"""Files whose warnings and errors do."""

_QUOTE = re.compile(r": |(?=['\"\[{(=])")
"""Where such a message begins to quote."""

LITERAL = re.compile(r"""'(?:[^'\\]|\\.)+'|"(?:[^"\\]|\\.)+"|[\[{].+[\]}]""", re.DOTALL)
"""A printed string, list or object."""

_RECEIVED = re.compile(r"(Received request )(.*?)(: (?=prompt: |params: |.*params: ))(.*)", re.DOTALL)
_PARAMS = re.compile(r"(?:^|, )params: (\w{1,40})\((.*)\)", re.DOTALL)
_GENERATED = re.compile(
    r"(Generated response )(.*?)((?: \(streaming (?:delta|complete)\))?(?: details)?: output.*)", re.DOTALL
)
_FINISH = re.compile(r", finish_reason: ([a-z_]{1,20}|None)\Z")
_REJECTED = re.compile(
    r"(Request queue full - rejecting request )(.*)( \(current=\d+, n=\d+, max=\d+\)\.?)\Z", re.DOTALL
)
_ENDED = re.compile(
    r"(Request )(.*?)( (?:aborted\b|failed\b)(?: with an internal error during generation| \([a-z ]{1,30}\))?)(.*)",
    re.DOTALL,
)
_NAMED_REQUEST = re.compile(
    r"((?:Added|Finished|Aborted|Abort|Aborting|Rejecting|Preempting) requests?(?:\(s\))? "
    r"|.{0,60} caught\. Request id: )(.*?)(\.?)\Z",
    re.DOTALL,
)
_DUMPED = re.compile(r"(Dumping scheduler output[^:]{0,80}: ?|(?=SchedulerOutput\())(.+)", re.DOTALL)
_SCHEDULED = re.compile(r"\btotal_num_scheduled_tokens=(\d{1,10})\b")


class ClientMessages:
    """
    Knows vLLM's messages about requests.

    Args:
        private: Removes and counts.
    """

    def __init__(self, private: PrivateText) -> None:
        self._private = private

    def made_anew(self, site: str, level: str, message: str) -> str | None:
        """Return a message with text of a client, made anew from what is harmless; `None` if it is no such message."""
        for pattern, form in (
            (_RECEIVED, self._received),
            (_GENERATED, self._generated),
            (_REJECTED, self._around_id),
            (_ENDED, self._ended),
            (_NAMED_REQUEST, self._around_id),
            (_DUMPED, self._scheduled),
        ):
            found = pattern.match(message)
            if found is not None:
                return form(found)
        if site in ECHOING_SITES or level == "DEBUG":
            return self._private.clean(self._private.remove("prompts", message))
        return None

    def _received(self, found: re.Match[str]) -> str:
        start, request, colon, rest = found.groups()
        if "prompts" in self._private.removes:
            rest = self._params(rest)
        return start + self._private.remove("request-ids", request) + colon + self._private.clean(rest)

    def _params(self, rest: str) -> str:
        """Return the parameters of a request whose values are harmless: the temperature is read from them."""
        if rest.startswith("prompt: "):
            self._private.remove("prompts", rest)
        prompt = f"prompt: {REMOVED}, " if rest.startswith("prompt: ") else ""
        found = _PARAMS.search(rest)
        if found is None:
            return prompt + self._private.remove("prompts", rest)
        items = [f"{name}={self._private.remove('prompts', value)}" for name, value in top_level_items(found[2])]
        lora = ", lora_request: None." if rest.endswith(", lora_request: None.") else f", {REMOVED}"
        return f"{prompt}params: {found[1]}({', '.join(items)}){lora}"

    def _generated(self, found: re.Match[str]) -> str:
        start, request, rest = found.groups()
        finish = _FINISH.search(rest)
        if "prompts" in self._private.removes:
            self._private.remove("prompts", rest)
            rest = f": output: {REMOVED}{finish[0] if finish else ''}"
        return start + self._private.remove("request-ids", request) + rest

    def _ended(self, found: re.Match[str]) -> str:
        start, request, how, rest = found.groups()
        if rest.strip("."):
            rest = " " + self._private.clean(self._private.remove("prompts", rest.strip()))
        return start + self._private.remove("request-ids", request) + how + rest

    def _around_id(self, found: re.Match[str]) -> str:
        start, request, end = found.groups()
        return start + self._private.remove("request-ids", request) + end

    def _scheduled(self, found: re.Match[str]) -> str:
        start, output = found.groups()
        if "prompts" not in self._private.removes:
            return start + self._private.clean(output)
        tokens = _SCHEDULED.search(output)
        self._private.remove("prompts", output)
        return f"{start}SchedulerOutput({tokens[0] if tokens else ''}) {REMOVED}"

    def without_quoted(self, site: str, level: str, message: str) -> str | None:
        """Return the start of a message about a request, up to where it quotes. `None` if the site has others."""
        if not _CLIENT_SITE.fullmatch(site) and (level == "INFO" or not _HANDLER_SITE.fullmatch(site)):
            return None
        found = _QUOTE.search(message)
        if found is None:
            return self._private.clean(message)
        quoted = self._private.clean(self._private.remove("prompts", message[found.end() :]))
        return self._private.clean(message[: found.start()]) + found[0] + quoted
