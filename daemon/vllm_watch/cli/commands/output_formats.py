# SPDX-License-Identifier: Apache-2.0
"""The output of what answers: its format, how wide its text is, where it goes, and the document on its method."""

from __future__ import annotations

import shutil
import sys

from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

import click

from vllm_watch.analysis.rendering.document import Document
from vllm_watch.analysis.rendering.html import render_html
from vllm_watch.analysis.rendering.markdown import render_markdown
from vllm_watch.analysis.rendering.text import WIDTH, render_text
from vllm_watch.cli.commands.options import ComparisonFormat, ReportFormat
from vllm_watch.daemon.catalog.language import LANGUAGES, Language, speaking
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.standard_streams import write_output
from vllm_watch.daemon.support.whole_file import write_whole


_BY_ENDING: Mapping[str, ReportFormat] = {
    ".html": "html",
    ".htm": "html",
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".txt": "text",
    "": "text",
}


_NARROWEST, _WIDEST = 60, 120
"""Columns of a text: in fewer its tables do not fit, and longer lines of prose are hard to read."""


_Command = TypeVar("_Command", bound=Callable[..., Any])

_DOCUMENTS: Mapping[str, str] = {"comparison": "COMPARING.md", "advice": "ADVISING.md"}
"""By the package that they are about. In the source tree they are links to those of ``daemon/``."""


def report_format(form: ReportFormat | None, output: str | None) -> ReportFormat:
    """Return the format that is asked for, else that of the file's ending; without one, and without a file, text."""
    return form or _of_ending(output)


def comparison_format(form: ComparisonFormat | None, output: str | None) -> ComparisonFormat:
    """Return the format of a comparison, as `report_format` does; its tables may also be CSV."""
    return form or ("csv" if PurePath(output or "").suffix.lower() == ".csv" else _of_ending(output))


def text_width(output: str | None) -> int:
    """Return how many columns a text has: those of the terminal that it is written to, within bounds, else 80."""
    if output not in (None, "-") or not sys.stdout.isatty():
        return WIDTH
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST)


def rendered(document: Document, form: Literal["text", "markdown", "html"], output: str | None = None) -> str:
    """Return a document in a format, a text as wide as the terminal that it is written to."""
    if form == "html":
        return render_html(document)
    if form == "markdown":
        return render_markdown(document)
    return render_text(document, text_width(output))


def write_answer(text: str, form: str, output: str | None) -> None:
    """Write an answer to a file, or to standard output, also named ``-``; it is a `FileError` if that fails."""
    if output is None or output == "-":
        write_output(text, is_utf8=form == "html")
    else:
        write_whole(Path(output), text.encode())


def _speak(context: click.Context, _parameter: click.Parameter, language: Language) -> None:
    context.with_resource(speaking(language))


language_option = click.option(
    "--language",
    type=click.Choice(LANGUAGES),
    default="en",
    show_default=True,
    expose_value=False,
    is_eager=True,
    callback=_speak,
    help="The language of the answer: English or Chinese.",
)


def explain_option(package: Literal["comparison", "advice"], what: str) -> Callable[[_Command], _Command]:
    """Return a decorator that gives a command ``--explain``; `what` completes the sentence of its help."""

    def explain(context: click.Context, _parameter: click.Parameter, is_asked: bool) -> None:
        if is_asked and not context.resilient_parsing:
            write_output((files(f"vllm_watch.analysis.{package}") / _DOCUMENTS[package]).read_text(encoding="utf-8"))
            context.exit()

    return click.option(
        "--explain",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=explain,
        help=f"Print {what} and exit.",
    )


def _of_ending(output: str | None) -> ReportFormat:
    ending = PurePath(output or "").suffix.lower()
    if ending not in _BY_ENDING:
        known = ", ".join(each for each in _BY_ENDING if each)
        raise UsageError(f"-o {output}: no format has the ending {ending}: use one of {known}, or give --format")
    return _BY_ENDING[ending]
