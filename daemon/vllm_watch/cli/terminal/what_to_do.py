# SPDX-License-Identifier: Apache-2.0
"""What the state of a server means, for how long it has lasted, and what to do about it, as lines."""

from __future__ import annotations

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.heading import rule
from vllm_watch.cli.terminal.lines import Line, Span, line, wrapped
from vllm_watch.cli.terminal.model import ServerView


def lasts(server: ServerView, at: float, cells: Cells) -> str:
    """Return for how long a server is in its state: `` for 4 min``; empty if that is not known."""
    if server.since is None:
        return ""
    age = cells.age(max(at - server.since.at, 1.0))
    return f" for {age}" if server.since.is_exact else f" for at least {age}"


def meaning_lines(server: ServerView, width: int) -> list[Line]:
    """Return what the state means and the beginning of the first step, where not all steps are seen at once."""
    text = server.meaning
    if server.first_steps is not None:
        first, end, _ = _plain(server.first_steps.about(server.cause)[0]).partition(". ")
        text = f"{text} First step: {first}{end.strip()}"
    return wrapped(text, width) if text else []


def step_lines(server: ServerView, width: int, cells: Cells) -> list[Line]:
    """Return all that is to be done first, and where the whole runbook is; nothing for a state that needs nothing."""
    known = server.first_steps
    if known is None:
        return []
    lines = [rule("What to do first", width, cells)]
    for number, text in enumerate(known.about(server.cause), 1):
        lines += wrapped(_plain(text), width, first=Span(f"{number}. ", "label"))
    # Words are not broken at their hyphens in an address, so that its parts can be put together again.
    parts = [known.url[start : start + width] for start in range(0, len(known.url), width)]
    return [*lines, *wrapped(f"All of it, runbook {known.runbook}:", width), *(line(part) for part in parts)]


def _plain(text: str) -> str:
    """Return a text without the marks of code."""
    return text.replace("`", "")
