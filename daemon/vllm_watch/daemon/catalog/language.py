# SPDX-License-Identifier: Apache-2.0
"""
The language of an answer: English, or one whose catalogue has a translation of each English text.

A text that is shown is given to `_` as it is, with named fields in braces; where it stands in a table, at the head of a
module, it is marked with `N_` there and translated where it is shown. ``zh.json`` has all of them.
"""

from __future__ import annotations

import json

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, reduce
from pathlib import Path
from typing import Literal, get_args


Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

_TAGS: Mapping[Language, str] = {"en": "en", "zh": "zh-CN"}
_chosen: ContextVar[Language] = ContextVar("language", default="en")


@contextmanager
def speaking(language: Language) -> Iterator[None]:
    """Give all texts in a language."""
    token = _chosen.set(language)
    try:
        yield
    finally:
        _chosen.reset(token)


def language_tag() -> str:
    """Return the language that is spoken, as HTML calls it: ``en`` or ``zh-CN``."""
    return _TAGS[_chosen.get()]


def _(text: str, /, **fields: object) -> str:
    """Return a text in the language that is spoken, with its fields filled in; in English if it is not translated."""
    language = _chosen.get()
    said = text if language == "en" else catalogue(language).get(text, text)
    return said.format(**fields) if fields else said


def N_(text: str) -> str:  # noqa: N802  # The usual name of gettext.
    """Mark a text that is translated where it is shown."""
    return text


@cache
def catalogue(language: Language) -> Mapping[str, str]:
    """Return the translation of each English text."""
    found: dict[str, str] = json.loads(Path(__file__).with_name(f"{language}.json").read_text(encoding="utf-8"))
    return found


def listed(parts: Iterable[str]) -> str:
    """Return some things one after the other: ``a, b, c``."""
    return _(", ").join(parts)


def clauses(parts: Iterable[str]) -> str:
    """Return clauses one after the other, as a part of a sentence."""
    return reduce(lambda first, rest: _("{first}, {rest}", first=first, rest=rest), parts)


def sentences(parts: Iterable[str]) -> str:
    """Return sentences one after the other, in a line."""
    return ("" if _chosen.get() == "zh" else " ").join(parts)


def full_stop(text: str) -> str:
    """Return a clause, or several, as a sentence: with the full stop of the language."""
    return _("{text}.", text=text)
