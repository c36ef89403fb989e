# SPDX-License-Identifier: Apache-2.0
"""
Removes private data from any text: by the names before it, and by its own form.

What vLLM prints in forms of its own (requests, access lines, tracebacks) is known to `log_redaction`.
"""

from __future__ import annotations

import re

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, get_args


Kind = Literal["prompts", "request-ids", "keys", "addresses"]
KINDS: tuple[Kind, ...] = get_args(Kind)

REMOVED = "[removed]"
"""What is written in place of what was removed."""

_HARMLESS = re.compile(
    r"""None|null|True|False|true|false|["']?\*+["']?|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|["']{2}|\[\]|\{\}|\(\)|\[removed\]"""
)
"""Values that tell nothing, and are left as they are."""

_HARMLESS_WORD = re.compile(rf"(?:{_HARMLESS.pattern})(?=[\s,;)\]}}]|\Z)")


def _named(names: str) -> re.Pattern[str]:
    """Return the pattern of a name and the sign after it: ``'name': ``, ``name=``, ``"name": ``; not ``name = ``."""
    return re.compile(rf"""(?<![\w-])(?:{names})(?:\\*['"])?(?:\s?:\s?|=(?![=\s]))""", re.IGNORECASE)


_KEY_NAMES = (
    r"[\w-]*(?:api[_-]?keys?|access[_-]?key(?:[_-]?id)?|private[_-]?key|secret(?:[_-]key)?|password|passwd|credentials?"
    r"|cookie|token)|authorization|proxy-authorization"
)
_NAMES: Mapping[Kind, re.Pattern[str]] = {
    "keys": _named(_KEY_NAMES),
    "prompts": _named(
        r"(?:(?:de|en)coder_|negative_|system_|raw_|original_)?prompts?(?:_text)?|messages?|content|texts?|inputs?"
        r"|reasoning(?:_content)?|input_(?:text|value|ids)|instructions?|query|queries|documents?|arguments|tools"
        r"|tool_calls?|function_call|stop|bad_words|suffix|outputs?|output_text|generated_texts?|request_body|body"
        r"|response(?:_body|_text)?|choices|delta|(?:\w+_)?token_ids|structured_outputs|json_schema|response_format"
        r"|guided_(?:json|regex|choice|grammar)|extra_args|multi_modal_data|mm_(?:features|inputs|kwargs|hashes)"
        r"|image_url|logit_bias"
    ),
    "addresses": _named(r"client(?:_(?:ip|host|addr|address))?|remote_addr|x-forwarded-for|x-real-ip|peername|raddr"),
    "request-ids": _named(r"(?:\w+_)?req(?:uest)?[ _-]?ids?|x-request-id|(?:\w+_)?response[ _]id"),
}
_BARE: Mapping[Kind, re.Pattern[str]] = {
    "keys": re.compile(r"(?:(?:Bearer|Basic|Digest|Token)\s+)?[^\s,;)\]}'\"&]*", re.IGNORECASE),
    "prompts": re.compile(r"(?<==)[^,)\]}]*|.*", re.DOTALL),
    "addresses": re.compile(r"[^\s,;)]*"),
    "request-ids": re.compile(r"[^\s,;)\]}'\"]*"),
}
"""What a value is that is neither a string nor in brackets: after a colon, a prompt is all that follows."""

_OPTION = re.compile(r"""(?<![\w-])--(?=[A-Za-z])[\w-]*(?:api[_-]key|token|password|secret)(?:\\*['"])?(?:=|,?\s+)""")
_OPTION_VALUES = re.compile(r"[^\s'\",\]-][^\s'\",\]]*(?:\s+[^\s'\",\]-][^\s'\",\]]*)*")
_SCHEME = re.compile(r"\b((?:Bearer|Basic|Digest)\s+)([^\s,;'\"\\)\]}]+)", re.IGNORECASE)
_KEY_FORMS = re.compile(
    r"(?<![\w/-])(?:sk|pk|rk)-[\w-]{10,}|\bhf_[A-Za-z0-9]{16,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}"
    r"|\bAKIA[0-9A-Z]{12,}|\bxox[abprs]-[\w-]{10,}|\bglpat-[\w-]{15,}|\bnvapi-[\w-]{15,}|\bAIza[\w-]{25,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*|(?<=://)[^\s/@'\"\[\]]+(?=@)"
)
_ID_FORMS = re.compile(
    r"(?<![\w-])(?:(?:chat)?cmpl|embd|embed|pool|score|rerank|classify|tokenize|generate|transcri\w+|translat\w+|resp|msg"
    r"|req|beam|call|chatcmpl-tool)[_-][\w.:+-]*[0-9a-f]{8}[\w:+-]*"
    r"|(?<![\w-])(?:chat)?cmpl-[\w.:+-]*[\w+-]"
    r"|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b[\w-]*|(?<![\w/.])[0-9a-f]{32}(?![\w/.])[\w-]*"
)
_AFTER_REQUEST = re.compile(r"(?<!per )\b([Rr]equests?(?:\(s\))? )(?=[^\s=]*[\d-])([\w.:/+@-]*[\w/+@])(?![=\w])")


_BEFORE_SIGN = re.compile(r"""(?<![\w-])(?:[\w-]+ )?[\w-]+(?=\\*['"]?(?:\s?:|=(?![=\s])))""")

_HEADER_OPTIONS = frozenset({"H", "header", "headers", "extra_headers"})
_HEADER = re.compile(r"[\w-]+(?:: ?|=)(?:(?:Bearer|Basic|Digest) )?", re.IGNORECASE)

_MIN_KNOWN = 6
"""Shorter keys are not looked for elsewhere: they may be part of any word."""

# A quote that is itself inside a JSON string is printed as `\"`.
_STRING_START = re.compile(r"""[bBrRuU]{0,2}(\\*['"])""")
_STRING_ENDS = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*{quote}", re.DOTALL) for quote in "'\""}
_BRACKET_START = re.compile(r"(?:[A-Za-z_][\w.]{0,80})?[\[({]")
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[\[({\])}]""", re.DOTALL)


class PrivateText:
    """Removes all kinds but those that are kept, and counts what it removed."""

    def __init__(self, kept: Collection[Kind] = ()) -> None:
        self.removes = frozenset(KINDS) - frozenset(kept)
        """The kinds that are removed."""
        self.counts: Counter[Kind] = Counter()
        self._known: set[str] = set()

    @property
    def counted(self) -> dict[str, int]:
        """How often something of each kind was removed, as plain data."""
        return {str(kind): number for kind, number in self.counts.items()}

    def is_harmless(self, value: str) -> bool:
        """Return whether a printed value tells nothing: a number, nothing at all."""
        return _HARMLESS.fullmatch(value) is not None

    def remove(self, kind: Kind, value: str) -> str:
        """Return what is written in place of a value of a kind: itself if that is kept."""
        if kind not in self.removes or self.is_harmless(value):
            return value
        self.counts[kind] += 1
        return REMOVED

    def kind_of(self, name: str) -> Kind | None:
        """Return the kind of private data that a name announces, if that is removed."""
        return next((kind for kind in KINDS if kind in self.removes and _NAMES[kind].fullmatch(f"{name}:")), None)

    def clean_arguments(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a command line without the values of private options."""
        cleaned: list[str] = []
        option, values = "", 0
        for argument in argv:
            kind = self.kind_of(option)
            if argument.startswith("-") and not (kind and values == 0):
                cleaned.append(self._clean_argument(argument))
                option, values = ("" if "=" in argument else _option_name(argument)), 0
                continue
            # An option may have several keys, as vLLM's `--api-key` has.
            if kind and (values == 0 or kind == "keys"):
                cleaned.append(self._announced(kind, argument))
            else:
                cleaned.append(self._header(argument) if option in _HEADER_OPTIONS else self._clean_argument(argument))
            values += 1
        return tuple(cleaned)

    def _clean_argument(self, argument: str) -> str:
        option, sign, value = argument.partition("=")
        if sign and _option_name(option) in _HEADER_OPTIONS:
            return option + sign + self._header(value)
        kind = self.kind_of(_option_name(option)) if sign else None
        return option + sign + self._announced(kind, value) if kind else self.clean(argument)

    def _header(self, header: str) -> str:
        """Remove the value of a header, whatever its name: gateways have keys in headers of their own."""
        found = _HEADER.match(header)
        return found[0] + self._announced("keys", header[found.end() :]) if found else self.clean(header)

    def _announced(self, kind: Kind, value: str) -> str:
        removed = self.remove(kind, value)
        if kind == "keys" and removed != value and len(value) >= _MIN_KNOWN:
            self._known.add(value)
        return removed

    def clean(self, text: str) -> str:
        """Return a text without what its names or its form show to be private, and without known keys."""
        for known in self._known:
            if known in text:
                text = text.replace(known, self.remove("keys", known))
        if "keys" in self.removes:
            text = self._replaced(text, "keys", _OPTION, _OPTION_VALUES)
            text = self._without_named(text, "keys")
            text = _SCHEME.sub(lambda found: found[1] + self.remove("keys", found[2]), text)
            text = _KEY_FORMS.sub(lambda found: self.remove("keys", found[0]), text)
        for kind in ("prompts", "addresses", "request-ids"):
            if kind in self.removes:
                text = self._without_named(text, kind)
        if "request-ids" in self.removes:
            text = _ID_FORMS.sub(lambda found: self.remove("request-ids", found[0]), text)
            text = _AFTER_REQUEST.sub(lambda found: found[1] + self.remove("request-ids", found[2]), text)
        return text

    def _without_named(self, text: str, kind: Kind) -> str:
        # Most names announce nothing, and are the same in line after line: one look for all kinds is quicker.
        return self._replaced(text, kind, _NAMES[kind], _BARE[kind]) if kind in _announced_kinds(text) else text

    def _replaced(self, text: str, kind: Kind, names: re.Pattern[str], bare: re.Pattern[str]) -> str:
        """Return a text without the values that follow these names; `bare` is one without quotes and brackets."""
        parts, at = [], 0
        for found in names.finditer(text):
            start = found.end()
            if found.start() < at:
                continue
            end = _value_end(text, start)
            if end is None and _HARMLESS_WORD.match(text, start):
                continue
            if end is None:
                word = bare.match(text, start)
                end = word.end() if word else start
            if end > start:
                parts += [text[at:start], self.remove(kind, text[start:end])]
                at = end
        return "".join([*parts, text[at:]]) if parts else text


@lru_cache(maxsize=1)
def _announced_kinds(text: str) -> frozenset[Kind]:
    return frozenset().union(*map(_kinds_of_name, _BEFORE_SIGN.findall(text)))


@lru_cache(maxsize=4096)
def _kinds_of_name(words: str) -> frozenset[Kind]:
    """Return the kinds that the last one or two words before a sign announce."""
    return frozenset(kind for kind in KINDS if _NAMES[kind].search(f"{words}:"))


def _option_name(argument: str) -> str:
    return argument.lstrip("-").replace("-", "_")


def redact_json(value: Any, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    """Return a value without what is private."""
    if isinstance(value, dict):
        return {name: _redacted(each, private.kind_of(name), private) for name, each in value.items()}
    if isinstance(value, list):
        return [redact_json(each, private) for each in value]
    return private.clean(value) if isinstance(value, str) else value


def _redacted(value: Any, kind: Kind | None, private: PrivateText) -> Any:  # noqa: ANN401 - Any JSON.
    if kind is None:
        return redact_json(value, private)
    if isinstance(value, dict):
        return {name: _redacted(each, kind, private) for name, each in value.items()}
    if isinstance(value, list):
        return [_redacted(each, kind, private) for each in value]
    return private.remove(kind, value) if isinstance(value, str) and value else value


def _value_end(text: str, start: int) -> int | None:
    """Return where the string, list or object at an index ends; what is cut off ends the text; `None` of others."""
    string = _STRING_START.match(text, start)
    if string is not None:
        return _string_end(text, string.end(), string[1])
    bracket = _BRACKET_START.match(text, start)
    return _bracket_end(text, bracket.end()) if bracket else None


def _string_end(text: str, start: int, quote: str) -> int:
    if len(quote) == 1:
        found = _STRING_ENDS[quote].match(text, start)
        return found.end() if found else len(text)
    at = text.find(quote, start)
    while at > 0 and text[at - 1] == "\\":
        at = text.find(quote, at + 1)
    return at + len(quote) if at >= 0 else len(text)


def _bracket_end(text: str, start: int) -> int:
    depth = 1
    for token in _TOKEN.finditer(text, start):
        if token[0] in "[({":
            depth += 1
        elif token[0] in "])}":
            depth -= 1
            if not depth:
                return token.end()
    return len(text)
