# SPDX-License-Identifier: Apache-2.0
"""Messages of vLLM that have text of clients, made anew from what is harmless."""

from __future__ import annotations

import re

from vllm_watch.recorder.private_text import REMOVED, PrivateText
from vllm_watch_parsers.line import ECHOING_SITES
from vllm_watch_parsers.python_repr import top_level_items


_CLIENT_SITE = re.compile(
    r"(?:\w*serving\w*|\w*api_router|\w*parser\w*|harmony\w*|connection|validation|exception|vllm_error|http|\w*chat\w*"
    r"|\w*responses?\w*|\w*tool\w*|\w*preprocess\w*|\w*input\w*|\w*realtime\w*|\w*anthropic\w*|streaming\w*)\.py"
)
"""Files whose records are about one request, so that what they quote may be a client's."""

LITERAL = re.compile(r"""'(?:[^'\\]|\\.)+'|"(?:[^"\\]|\\.)+"|[\[{].+[\]}]""", re.DOTALL)
"""A printed string, list or object."""

_RECEIVED = re.compile(r"(Received request )(.*?)(: (?=prompt: |params: |.*params: ))(.*)", re.DOTALL)
_PARAMS = re.compile(r"(?:^|, )params: (\w{1,40})\((.*)\)", re.DOTALL)
_HARMLESS_PARAMS = frozenset(
    {
        "n", "best_of", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k",
        "min_p", "seed", "max_tokens", "min_tokens", "ignore_eos", "logprobs", "prompt_logprobs", "detokenize",
        "skip_special_tokens", "include_stop_str_in_output",
    }
)  # fmt: skip
_NUMBER = re.compile(r"-?\d{1,20}(?:\.\d{1,20})?(?:e[+-]?\d{1,3})?|True|False|None")
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
        prompt = f"prompt: {REMOVED}, " if rest.startswith("prompt: ") else ""
        kept = self._private.clean(rest)
        if "prompts" in self._private.removes:
            self._private.remove("prompts", rest)
            kept = prompt + _harmless_params(rest)
        return start + self._private.remove("request-ids", request) + colon + kept

    def _generated(self, found: re.Match[str]) -> str:
        start, request, rest = found.groups()
        finish = _FINISH.search(rest)
        if "prompts" in self._private.removes:
            self._private.remove("prompts", rest)
            rest = f": output: {REMOVED}{finish[0] if finish else ''}"
        return start + self._private.remove("request-ids", request) + rest

    def _ended(self, found: re.Match[str]) -> str:
        start, request, how, rest = found.groups()
        why = self._private.clean(self._private.remove("prompts", rest)) if rest.strip(".") else rest
        return start + self._private.remove("request-ids", request) + how + why

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

    def without_quoted(self, site: str, message: str) -> str | None:
        """Return the start of a message about a request: after its colon it quotes. `None` if the site has others."""
        if not _CLIENT_SITE.fullmatch(site):
            return None
        what, colon, rest = message.partition(": ")
        if not colon:
            what, rest = message, ""
        cleaned = self._private.clean(LITERAL.sub(lambda quoted: self._private.remove("prompts", quoted[0]), what))
        return cleaned + colon + (self._private.clean(self._private.remove("prompts", rest)) if rest else "")


def _harmless_params(text: str) -> str:
    """Return the numbers among a request's parameters, as vLLM prints them."""
    found = _PARAMS.search(text)
    if found is None:
        return REMOVED
    items = [f"{name}={value}" for name, value in top_level_items(found[2]) if _is_harmless(name, value)]
    return f"params: {found[1]}({', '.join(items)}), {REMOVED}"


def _is_harmless(name: str, value: str) -> bool:
    return name in _HARMLESS_PARAMS and _NUMBER.fullmatch(value) is not None
