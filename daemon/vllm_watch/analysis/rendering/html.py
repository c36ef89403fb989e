# SPDX-License-Identifier: Apache-2.0
"""A document as one page of HTML that needs nothing else: no network, no script, no font."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from itertools import groupby

import vllm_watch

from vllm_watch.analysis.rendering.document import (
    Block,
    Column,
    Commands,
    Document,
    Entry,
    Figure,
    Group,
    Section,
    Statement,
    Table,
    Tone,
)
from vllm_watch.analysis.rendering.run_facts import phase_text
from vllm_watch.analysis.rendering.svg import escaped, sample, style_rules
from vllm_watch.daemon.catalog.language import N_, _, language_tag


_TONES: dict[Tone, str] = {
    "good": N_("OK"),
    "warning": N_("Warning"),
    "note": N_("Note"),
    "undecided": N_("Not proved"),
    "unknown": N_("Unknown"),
}
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_LAST_LEVEL = 6
_AROUND: dict[type, str] = {
    Statement: '<ul class="statements">{}</ul>\n',
    Table: '<div class="tables">\n{}</div>\n',
}
"""What is around blocks of one kind that follow each other."""


def render_html(document: Document) -> str:
    """Return a document as a whole page."""
    ids = [f"section-{at}" for at in range(len(document.sections))]
    links = "".join(
        f'<li><a href="#{key}">{escaped(section.title)}</a></li>'
        for key, section in zip(ids, document.sections, strict=True)
    )
    made_by = _("Made by vllm-watch {version}.", version=vllm_watch.__version__)
    body = "".join("".join(_section(section, 2, key)) for key, section in zip(ids, document.sections, strict=True))
    return (
        f'<!DOCTYPE html>\n<html lang="{language_tag()}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escaped(document.title)}</title>\n<style>{style_sheet()}</style>\n</head>\n<body>\n"
        f'<header>\n<h1>{escaped(document.title)}</h1>\n<p class="lead">{escaped(document.lead)}</p>\n'
        f'<nav aria-label="{_("Contents")}"><ul>{links}</ul></nav>\n</header>\n<main>\n{body}</main>\n'
        f"<footer>{escaped(made_by)}</footer>\n</body>\n</html>\n"
    )


def style_sheet() -> str:
    """Return the page's style sheet, with the styles of the drawings' lines."""
    page: str = (files(__package__) / "report.css").read_text(encoding="utf-8")
    return page + style_rules()


def _section(section: Section, level: int, key: str) -> Iterator[str]:
    heading = _heading(section.title, level)
    if section.is_folded:
        yield f'<details class="run" id="{key}"{" open" if section.is_open else ""}><summary>{heading}</summary>\n'
    else:
        yield f'<section id="{key}">\n{heading}\n'
    for kind, blocks in groupby(section.blocks, key=type):
        parts = "".join(_block(block, level + 1, section.title) for block in blocks)
        yield _AROUND.get(kind, "{}").format(parts)
    for at, inner in enumerate(section.sections):
        yield from _section(inner, level + 1, f"{key}-{at}")
    yield "</details>\n" if section.is_folded else "</section>\n"


def _heading(title: str, level: int) -> str:
    level = min(level, _LAST_LEVEL)
    return f"<h{level}>{escaped(title)}</h{level}>"


def _block(block: Block, level: int, title: str) -> str:
    if isinstance(block, Figure):
        return _figure(block, level)
    if isinstance(block, Table):
        return "" if block.is_empty else _table(block, title)
    if isinstance(block, Statement):
        tone = f'<span class="tone">{_(_TONES[block.tone])}</span>'
        return f'<li class="{block.tone}">{tone}<span>{escaped(block.text)}</span></li>'
    if isinstance(block, Commands):
        lines = "\n".join(map(escaped, block.lines))
        return f'<pre role="group" aria-label="{_("Commands")}" tabindex="0">{lines}</pre>\n'
    return f"<p>{escaped(block.text)}</p>\n" if block.text else ""


def _table(table: Table, name: str) -> str:
    """Return a table in a part that scrolls where it is too wide, which the keyboard reaches."""
    caption = f"<caption>{escaped(table.caption)}</caption>" if table.caption else ""
    head = (
        f"<thead><tr>{''.join(map(_head, table.columns))}</tr></thead>"
        if any(each.head for each in table.columns)
        else ""
    )
    body = "".join(_group(group, table.columns) for group in table.groups)
    notes = "".join(f'<p class="note">{escaped(note)}</p>\n' for note in table.notes)
    named = escaped(table.caption or name)
    part = f'<div class="scroll" role="group" aria-label="{named}" tabindex="0">'
    return f'<div class="table">{part}<table>{caption}{head}{body}</table></div>\n{notes}</div>\n'


def _head(column: Column) -> str:
    if not column.head:
        return "<td></td>"
    unit = f'<span class="unit">{escaped(column.unit)}</span>' if column.unit else ""
    return f'<th scope="col"{_text(column)}>{escaped(column.head)}{unit}</th>'


def _group(group: Group, columns: tuple[Column, ...]) -> str:
    title = f'<tr><th scope="rowgroup" colspan="{len(columns)}">{escaped(group.title)}</th></tr>' if group.title else ""
    rows = []
    for first, *rest in group.rows:
        cells = "".join(
            f"<td{_text(column)}>{escaped(cell)}</td>" for cell, column in zip(rest, columns[1:], strict=True)
        )
        rows.append(f'<tr><th scope="row">{escaped(first)}</th>{cells}</tr>')
    return f"<tbody>{title}{''.join(rows)}</tbody>"


def _text(column: Column) -> str:
    return ' class="text"' if column.is_text else ""


def _figure(figure: Figure, level: int) -> str:
    entries = [*map(_entry, figure.legend), *map(_phase_entry, figure.phases)]
    legend = f'<ul class="legend">{"".join(entries)}</ul>' if entries else ""
    notes = "".join(f'<p class="note">{escaped(note)}</p>' for note in figure.notes)
    table = "" if figure.table is None else _table(figure.table, figure.title)
    numbers = escaped(_("Numbers of: {title}", title=figure.title))
    folded = f"<details><summary>{numbers}</summary>\n{table}</details>\n" if table else ""
    caption = f"<figcaption>{_heading(figure.title, level)}{legend}</figcaption>"
    return f"<figure>\n{caption}\n{figure.svg}\n{notes}{folded}</figure>\n"


def _phase_entry(phase: str) -> str:
    return f'<li><span class="swatch {phase}" aria-hidden="true"></span>{escaped(phase_text(phase))}</li>'


def _entry(entry: Entry) -> str:
    return f"<li>{sample(entry.style, is_marked=entry.is_marked)}{escaped(entry.label)}</li>"
