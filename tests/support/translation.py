# SPDX-License-Identifier: Apache-2.0
"""
Whether a translation is in step: the same headings, blocks, code, links and figures, one after the other.

The English text is a valid placeholder: a section, paragraph or row that is copied as it is is in step, and
`untranslated` finds it.
"""

from __future__ import annotations

import difflib
import re

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_COMMENT = re.compile(r"(?:^|\s+)#.*")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_WORDS = re.compile(r"[A-Za-z]{2,} [a-z]{2,}|^[A-Z][a-z]+$")
_BLOCKS = {
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "list_item_open": "item",
    "table_open": "table",
    "tr_open": "row",
}


def headings(text: str) -> list[str]:
    """Return the headings of a document, as they are written: ``## Title``."""
    return [f"{token.markup} {text.content}" for token, text in pairwise(_tokens(text)) if token.type == "heading_open"]


def differences(original: str, translation: str, titles: Mapping[str, str]) -> list[str]:
    """
    Return in which lines of what is common to all languages a translation differs, as a diff.

    Args:
        original: Markdown.
        translation: Markdown.
        titles: What the original's titles are in the translation.
    """
    ours, theirs = list(_common(original, titles)), list(_common(translation, {}))
    return list(difflib.unified_diff(ours, theirs, "original", "translation", n=2, lineterm=""))


def _common(text: str, titles: Mapping[str, str]) -> Iterator[str]:
    """Yield what is the same in every language: headings, kinds of blocks, code, and the marks of prose."""
    for token, following in pairwise([*_tokens(text), Token("end", "", 0)]):
        if token.type == "heading_open":
            yield f"{token.markup} {titles.get(following.content, following.content)}"
        elif token.type == "paragraph_open" or token.type in {"th_open", "td_open"}:
            # Another language puts them in another order.
            yield " ".join(["prose", *sorted(_marks(following.children or []))])
        elif token.type in {"fence", "code_block"}:
            yield f"code {token.info}".strip()
            yield from _lines(token.content)
        elif token.type in _BLOCKS:
            yield _BLOCKS[token.type]


def _marks(tokens: Iterable[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "code_inline":
            yield f"`{token.content}`"
        elif token.type in {"link_open", "image"}:
            yield f"({token.attrs.get('href') or token.attrs['src']})"
        elif token.type == "text":
            yield from _NUMBER.findall(token.content)


def _lines(code: str) -> Iterator[str]:
    """Yield the lines without their comments, of which a sign is left; lines of comments alone are left out."""
    for line in code.splitlines():
        kept = _COMMENT.sub("", line)
        if kept.strip():
            yield kept if kept == line else f"{kept} # …"


def untranslated(translation: str) -> Iterator[str]:
    """Yield each piece of prose, and each comment in code, of a translation into Chinese that is still English."""
    for token in _tokens(translation):
        if token.type == "inline":
            # Code and addresses are the same in every language; a line's end is a blank.
            parts = (
                " " if each.type == "softbreak" else each.content if each.type in {"text", "image"} else "·"
                for each in token.children or []
            )
            texts = ["".join(parts)]
        elif token.type in {"fence", "code_block"}:
            texts = [comment.strip() for line in token.content.splitlines() for comment in _COMMENT.findall(line)]
        else:
            continue
        yield from filter(is_english, texts)


def is_english(text: str) -> bool:
    """Return whether a text has words of English in a row, but for a term of vLLM's, and no Chinese."""
    return bool(_WORDS.search(text.replace("KV cache", ""))) and not _CHINESE.search(text)


def _tokens(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)
