# SPDX-License-Identifier: Apache-2.0
"""Where a value ends that was printed into a log: a string, a list or an object."""

from __future__ import annotations

import re


# A quote that is itself inside a JSON string is printed as `\"`.
_STRING_START = re.compile(r"""[bBrRuU]{0,2}(\\*['"])""")
_STRING_ENDS = {quote: re.compile(rf"(?:[^{quote}\\]|\\.)*{quote}", re.DOTALL) for quote in "'\""}
_BRACKET_START = re.compile(r"(?:[A-Za-z_][\w.]{0,80})?[\[({]")
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|[\[({\])}]""", re.DOTALL)


def value_end(text: str, start: int) -> int | None:
    """
    Return where the string, list or object ends that starts at an index; one that is cut off ends with the text.

    `None` for anything else. Brackets need only be balanced, whichever they are: what is printed may be cut off
    anywhere.
    """
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
