# SPDX-License-Identifier: Apache-2.0
"""
What to do first about an engine in a bad state, read from the runbooks, for the daemon's status page and for `top`.

These are the numbered lists of a runbook's section Mitigation. One below a line of codes (```killed`, `stopped`:``) is
for these causes, and the one without such a line for a cause that is not known. Each step is taken whole: one that
needs a restart has to say so. Links become plain text; code keeps its back quotes.
"""

from __future__ import annotations

import re

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from vllm_watch.daemon.catalog.states import CAUSES, STATES


RUNBOOKS = Path(__file__).parent / "runbooks"
MOST_STEPS = 4
"""As many as somebody reads who was just woken."""

_SECTION = "Mitigation"
_NOT_KNOWN = "a cause that is not known"
_CAUSES = re.compile(r"`\w+`(, `\w+`)*:")


def first_steps(runbooks_url: str) -> dict[str, dict[str, object]]:
    """
    Return what to do first by state and cause, for the states that have a runbook.

    Args:
        runbooks_url: Where the runbooks are for readers.

    Raises:
        ValueError: A runbook lacks the list of a cause, or has one of none.
    """
    return {
        state: {
            "runbook": known.runbook,
            "url": f"{runbooks_url}/{known.runbook}.md",
            **_steps_of(known.runbook, list(CAUSES.get(state, ()))),
        }
        for state, known in STATES.items()
        if known.runbook
    }


def _steps_of(runbook: str, causes: Sequence[str]) -> dict[str, object]:
    lists = _lists(runbook)
    for cause in ("", *causes):
        if cause not in lists:
            raise ValueError(f"{runbook}.md: no steps for {cause or _NOT_KNOWN}")
    for cause in lists:
        if cause not in ("", *causes):
            raise ValueError(f"{runbook}.md: steps for {cause}, which is no cause")
    return {"steps": lists[""], **({"by_cause": {cause: lists[cause] for cause in causes}} if causes else {})}


def _lists(runbook: str) -> dict[str, list[str]]:
    """Return the numbered lists of a runbook by cause; that for a cause which is not known has none."""
    root = SyntaxTreeNode(MarkdownIt().parse((RUNBOOKS / f"{runbook}.md").read_text(encoding="utf-8")))
    found: dict[str, list[str]] = {}
    for before, node in pairwise(_section(root.children)):
        if node.type == "ordered_list":
            text = _text(before)
            steps = [_text(item) for item in node.children]
            if len(steps) > MOST_STEPS:
                raise ValueError(f"{runbook}.md: more than {MOST_STEPS} steps below {text!r}")
            for cause in re.findall(r"\w+", text) if _CAUSES.fullmatch(text) else [""]:
                if cause in found:
                    raise ValueError(f"{runbook}.md: two lists of steps for {cause or _NOT_KNOWN}")
                found[cause] = steps
    return found


def _section(nodes: Sequence[SyntaxTreeNode]) -> Iterator[SyntaxTreeNode]:
    """Yield the section's heading, and what is between that and the next one."""
    is_inside = False
    for node in nodes:
        if node.type == "heading":
            is_inside = _text(node) == _SECTION
        if is_inside:
            yield node


def _text(node: SyntaxTreeNode) -> str:
    """Return a node's text in one line."""
    if node.type == "code_inline":
        return f"`{node.content}`"
    if node.type in {"softbreak", "hardbreak"}:
        return " "
    if node.type == "text":
        return node.content
    if node.type in {"fence", "code_block"}:
        raise ValueError(f"a step has a block of code: {node.content}")
    return "".join(_text(child) for child in node.children)
