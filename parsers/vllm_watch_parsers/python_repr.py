# SPDX-License-Identifier: Apache-2.0
"""
Top-level items of a printed Python dict, `Namespace(…)`, configuration, or JSON.

vLLM prints its arguments as Python text. Values hold quotes, brackets and whole chat templates that
quote other keys, so keys are read only at the top level, never by a search through the text.
"""

from __future__ import annotations

import re

from collections.abc import Iterator


# A string that is cut off ends with the text: to search its end again at each quote would take forever.
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[\[({<\])}>,]""")
_DICT_ITEM = re.compile(r"""\s*['"]([A-Za-z_][A-Za-z0-9_]{0,80})['"]: ?(.*)\Z""", re.DOTALL)
_KEYWORD_ITEM = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]{0,80})=(.*)\Z", re.DOTALL)
_PAIRS = {"[": "]", "(": ")", "{": "}", "<": ">"}
_CLOSING = frozenset(_PAIRS.values())


def top_level_items(text: str) -> Iterator[tuple[str, str]]:
    """
    Yield the keys and printed values of ``{'a': 1, …}``, ``{"a":1, …}``, ``Name(a=1, …)`` or ``a=1, …``.

    A text that is cut off yields the items before the cut.
    """
    body, form = _unwrap(text)
    for item in _split(body):
        found = form.match(item)
        if found:
            yield found[1], found[2].strip()


def unquote(value: str) -> str | None:
    """Return the text of a plainly printed string, or of a list of one; `None` for anything else."""
    text = value.strip()
    if text.startswith("[") and text.endswith("]"):
        text = next(iter(_split(text[1:-1])), "").strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" and "\\" not in text:
        return text[1:-1]
    return None


def _unwrap(text: str) -> tuple[str, re.Pattern[str]]:
    body = text.strip()
    if body.startswith("{"):
        return body[1:], _DICT_ITEM
    if body.startswith("Namespace("):
        return body[len("Namespace(") :], _KEYWORD_ITEM
    return body, _KEYWORD_ITEM


def _split(body: str) -> Iterator[str]:
    """Split at the commas outside of strings and brackets, until the closing bracket."""
    expected: list[str] = []
    start = 0
    for token in _TOKEN.finditer(body):
        sign = body[token.start()]
        if sign == ",":
            if not expected:
                yield body[start : token.start()]
                start = token.end()
        elif sign in _PAIRS:
            expected.append(_PAIRS[sign])
        elif sign in _CLOSING:
            if not expected:
                yield body[start : token.start()]
                return
            if sign == expected[-1]:
                expected.pop()
    yield body[start:]
