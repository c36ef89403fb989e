# SPDX-License-Identifier: Apache-2.0
"""
Whether a translation is in step: the same headings, blocks, code, links and figures, and a sentence for each gap.

The English text is a valid placeholder: a section, paragraph or row that is copied as it is is in step, and
`untranslated` finds it.
"""

from __future__ import annotations

import difflib
import re

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_COMMENT = re.compile(r"(?:^|\s+)#.*")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_WORDS = re.compile(r"[A-Za-z]{2,} [a-z]{2,}|^[A-Z][a-z]+$")
_CELLS = {"paragraph_open", "th_open", "td_open"}
_ROWS = {"list_item_open", "tr_open"}
_BLOCKS = {
    "paragraph_open": "paragraph",
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "table_open": "table",
}


class Cell(NamedTuple):
    """What of a piece of prose is the same in every language."""

    code: tuple[str, ...]
    links: tuple[str, ...]
    figures: tuple[str, ...]


class Block(NamedTuple):
    """
    A paragraph, list, table or code block.

    `rows` are the cells of prose: a paragraph is one, a list's item a row of one. `lines` are those of code, without
    what their comments say.
    """

    kind: str
    rows: tuple[tuple[Cell, ...], ...] = ()
    lines: tuple[str, ...] = ()


class Section(NamedTuple):
    """A heading, ``##`` and its text, with all up to the next one."""

    heading: str
    blocks: tuple[Block, ...]


def sections(text: str) -> list[Section]:
    """Return a document's sections in order."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    starts = [index for index, token in enumerate(tokens) if token.type == "heading_open"]
    ends = [*starts[1:], len(tokens)]
    return [
        Section(f"{tokens[start].markup} {tokens[start + 1].content}", tuple(_blocks(tokens[start + 3 : end])))
        for start, end in zip(starts, ends, strict=True)
    ]


def differences(original: str, translation: str, titles: Mapping[str, str]) -> Iterator[str]:
    """
    Yield a sentence for each thing in which a translation is not in step with its original.

    Args:
        original: Markdown.
        translation: Markdown.
        titles: What the original's titles are in the translation.
    """
    ours, theirs = sections(original), sections(translation)
    wanted = [_translated(section.heading, titles) for section in ours]
    yield from _steps("headings", wanted, [section.heading for section in theirs])
    found = {section.heading: section for section in theirs}
    for heading, section in zip(wanted, ours, strict=True):
        if heading in found:
            yield from _in_section(heading, section, found[heading])


def untranslated(translation: str) -> Iterator[str]:
    """Yield each piece of prose, and each comment in code, of a translation into Chinese that is still English."""
    for token in MarkdownIt("commonmark").enable("table").parse(translation):
        if token.type == "inline":
            # Code and addresses are the same in every language; a line's end is a blank.
            parts = (
                " " if each.type == "softbreak" else each.content if each.type in {"text", "image"} else "·"
                for each in token.children or []
            )
            yield from _english("".join(parts))
        elif token.type in {"fence", "code_block"}:
            for line in token.content.splitlines():
                yield from (text for comment in _COMMENT.findall(line) for text in _english(comment.strip()))


def _english(text: str) -> Iterator[str]:
    """Yield a text if it has words of English in a row, and no Chinese."""
    if _WORDS.search(text) and not _CHINESE.search(text):
        yield text


def _translated(heading: str, titles: Mapping[str, str]) -> str:
    """Return a heading in the translation; one that nobody has translated yet stays as it is."""
    level, _, title = heading.partition(" ")
    return f"{level} {titles.get(title, title)}"


def _in_section(where: str, ours: Section, theirs: Section) -> Iterator[str]:
    kinds = [[block.kind for block in section.blocks] for section in (ours, theirs)]
    if kinds[0] != kinds[1]:
        yield from _steps(
            f"{where}: blocks", *([_told(block) for block in section.blocks] for section in (ours, theirs))
        )
        return
    numbers: Counter[str] = Counter()
    for our, their in zip(ours.blocks, theirs.blocks, strict=True):
        numbers[our.kind] += 1
        yield from _in_block(f"{where}: {our.kind} {numbers[our.kind]}", our, their)


def _in_block(where: str, ours: Block, theirs: Block) -> Iterator[str]:
    yield from _steps(f"{where}: lines", ours.lines, theirs.lines)
    if len(ours.rows) != len(theirs.rows):
        yield f"{where}: {len(theirs.rows)} rows instead of {len(ours.rows)}"
        yield from _steps(f"{where}: rows", *([_marks(row) for row in block.rows] for block in (ours, theirs)))
        return
    for number, (our, their) in enumerate(zip(ours.rows, theirs.rows, strict=True), 1):
        place = where if len(ours.rows) == 1 else f"{where}, row {number}"
        if len(our) != len(their):
            yield f"{place}: {len(their)} columns instead of {len(our)}"
            continue
        for column, (one, other) in enumerate(zip(our, their, strict=True), 1):
            yield from _in_cell(place if len(our) == 1 else f"{place}, column {column}", one, other)


def _in_cell(where: str, ours: Cell, theirs: Cell) -> Iterator[str]:
    for name, wanted, found in zip(Cell._fields, ours, theirs, strict=True):
        # Another language puts them in another order.
        lacking, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
        yield from (f"{where}: {name}: lacks {each}" for each in lacking.elements())
        yield from (f"{where}: {name}: {each} is not in the original" for each in extra.elements())


def _told(block: Block) -> str:
    """Return a block's kind and what it can be known by in any language."""
    first = next(iter(block.lines), "") or " ".join(_marks(row) for row in block.rows)
    return f"{block.kind} [{first}]"


def _marks(row: Sequence[Cell]) -> str:
    """Return what a row has that every language has."""
    return " ".join(mark for cell in row for marks in cell for mark in sorted(marks))


def _steps(where: str, wanted: Sequence[str], found: Sequence[str]) -> Iterator[str]:
    """Yield what is missing from a sequence, and behind what, and what is too much."""
    for tag, start, end, other_start, other_end in difflib.SequenceMatcher(None, wanted, found, False).get_opcodes():
        if tag in {"delete", "replace"}:
            after = f"after {wanted[start - 1]}" if start else "at the beginning"
            yield from (f"{where}: lacks {each} ({after})" for each in wanted[start:end])
        if tag in {"insert", "replace"}:
            yield from (f"{where}: {each} is not in the original" for each in found[other_start:other_end])


def _blocks(tokens: Sequence[Token]) -> Iterator[Block]:
    """Yield the blocks of a section's tokens; what is inside a block belongs to it."""
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.type in {"fence", "code_block"}:
            yield Block(f"code block {token.info}".strip(), lines=tuple(_lines(token.content)))
        elif token.type in _BLOCKS:
            end = next(i for i in range(index, len(tokens)) if tokens[i].level == token.level and tokens[i].nesting < 0)
            yield Block(_BLOCKS[token.type], rows=tuple(_rows(tokens[index:end])))
            index = end
        index += 1


def _rows(tokens: Sequence[Token]) -> Iterator[tuple[Cell, ...]]:
    row: list[Cell] = []
    for token, following in pairwise(tokens):
        if token.type in _ROWS and row:
            yield tuple(row)
            row = []
        if token.type in _CELLS:
            row.append(_cell(following.children or []))
    yield tuple(row)


def _cell(tokens: Iterable[Token]) -> Cell:
    code, links, figures = [], [], []
    for token in tokens:
        if token.type == "code_inline":
            code.append(token.content)
        elif token.type == "link_open":
            links.append(str(token.attrs["href"]))
        elif token.type == "image":
            links.append(str(token.attrs["src"]))
        elif token.type == "text":
            figures += _NUMBER.findall(token.content)
    return Cell(tuple(code), tuple(links), tuple(figures))


def _lines(code: str) -> Iterator[str]:
    """Yield the lines without their comments, of which a sign is left; lines of comments alone are left out."""
    for line in code.splitlines():
        kept = _COMMENT.sub("", line)
        if kept.strip():
            yield kept if kept == line else f"{kept} # …"
