# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch compare``: what is different between configurations, and whether it is real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vllm_watch.comparison.fail_if import Outcome, Rule, check_rule
from vllm_watch.comparison.model import Comparisons, Side
from vllm_watch.comparison.side_argument import SideArgument, parse_sides
from vllm_watch.loadtest.model import Run
from vllm_watch.loadtest.sources import ReadOptions, read_report
from vllm_watch.rendering.comparisons import comparisons_markdown, comparisons_table
from vllm_watch.rendering.comparisons_html import comparisons_html
from vllm_watch.rendering.json_output import comparisons_json
from vllm_watch.replay.replay import Progress
from vllm_watch.support.errors import UsageError
from vllm_watch.support.report_formats import ComparisonFormat
from vllm_watch.support.standard_streams import write_output
from vllm_watch.support.whole_file import write_whole


_RENDERERS: Mapping[ComparisonFormat, Callable[[Comparisons], str]] = {
    "table": comparisons_table,
    "markdown": comparisons_markdown,
    "json": comparisons_json,
    "html": comparisons_html,
}


def named_sides(texts: Sequence[str], baseline: str | None) -> tuple[SideArgument, ...]:
    """
    Return the sides that the command line names.

    Raises:
        UsageError: They are wrong, or the baseline is none of them.
    """
    sides = parse_sides(texts, lambda path: Path(path).exists())
    names = [side.name for side in sides]
    if baseline is not None and baseline not in names:
        raise UsageError(f"--baseline {baseline}: no such side; there are {', '.join(names)}")
    return sides


def read_sides(named: Sequence[SideArgument], options: ReadOptions, progress: Progress) -> tuple[Side, ...]:
    """
    Read the sources of all sides.

    Raises:
        FileError: One cannot be read, or nothing ran in those of a side.
    """
    sides = []
    for number, side in enumerate(named):

        def part(share: float, before: int = number) -> None:
            progress((before + share) / len(named))

        sides.append(Side(name=side.name, runs=_tested(read_report(side.paths, options, part).runs)))
    return tuple(sides)


def write_comparison(comparisons: Comparisons, form: ComparisonFormat, output: str | None) -> None:
    """
    Write a comparison.

    Args:
        comparisons: What was found.
        form: Of the output.
        output: A file, or `None` for standard output.

    Raises:
        FileError: The output cannot be written.
    """
    text = _RENDERERS[form](comparisons)
    if output is None:
        write_output(text, is_utf8=form == "html")
    else:
        write_whole(Path(output), text.encode())


def check_rules(rules: Sequence[Rule], comparisons: Comparisons) -> list[Outcome]:
    """Return what became of each rule in each comparison."""
    return [check_rule(rule, pair) for rule in rules for pair in comparisons.pairs]


def _tested(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Return the runs that a client measured, or all if there is none: the others are warm-ups and other users."""
    measured = [run for run in runs if any(view.view == "client" for view in (run.result, *run.views) if view)]
    return tuple(measured or runs)
