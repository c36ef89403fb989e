# SPDX-License-Identifier: Apache-2.0
"""
What to do first about an engine in a bad state, read from the runbooks, for the daemon's status page.

These are the first items of the list in a runbook's section Mitigation, and the paragraphs before that list. Their
links become plain text; code keeps its back quotes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from vllm_watch.catalog.states import STATES


RUNBOOKS = Path(__file__).parent / "runbooks"
STEPS = 3
"""How many are shown: as many as somebody reads who was just woken."""

_SECTION = "Mitigation"


def first_steps(runbooks_url: str) -> dict[str, dict[str, object]]:
    """
    Return what to do first by state, for the states that have a runbook.

    Args:
        runbooks_url: Where the runbooks are for readers.

    Raises:
        ValueError: A runbook has no list of steps.
    """
    return {
        state: {"runbook": known.runbook, "url": f"{runbooks_url}/{known.runbook}.md", **_steps_of(known.runbook)}
        for state, known in STATES.items()
        if known.runbook
    }


def _steps_of(runbook: str) -> dict[str, object]:
    root = SyntaxTreeNode(MarkdownIt().parse((RUNBOOKS / f"{runbook}.md").read_text(encoding="utf-8")))
    nodes = list(_section(root.children))
    before = [_text(node) for node in takewhile(lambda node: node.type == "paragraph", nodes)]
    steps = next((node for node in nodes if node.type == "ordered_list"), None)
    if steps is None:
        raise ValueError(f"{runbook}.md: the section {_SECTION} has no numbered list")
    return {"before": before, "steps": [_text(item) for item in steps.children[:STEPS]]}


def _section(nodes: Sequence[SyntaxTreeNode]) -> Iterator[SyntaxTreeNode]:
    """Yield what is between the section's heading and the next one."""
    is_inside = False
    for node in nodes:
        if node.type == "heading":
            is_inside = _text(node) == _SECTION
        elif is_inside:
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
