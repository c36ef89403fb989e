# SPDX-License-Identifier: Apache-2.0
"""A side as it is named on the command line: ``run.json``, ``A=run1.json,run2.json``, ``A=prom:URL/SERVER@FROM/TO``."""

from __future__ import annotations

import re

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from vllm_watch.analysis.comparison.comparison_model import BY_NAME, FEWEST_SIDES, Comparison, Row
from vllm_watch.analysis.loadtest.report_sources import without_endings
from vllm_watch.analysis.loadtest.source_names import ParseSource, Source
from vllm_watch.daemon.support.errors import UsageError


Parts: TypeAlias = tuple[str, ...]
"""A source's path in parts, the last first: ``("run1", "mtp-on", "results")``."""


BROKEN = 1
UNKNOWN = 3
"""Exit statuses of ``--fail-if``: a rule holds; none does, but of one it cannot be told. 2 is a mistaken command."""

_RULE = re.compile(r"\s*(?P<metric>[a-z0-9_.]+)\s*(?P<relation>[<>])\s*(?P<limit>[+-]?\d+(?:\.\d+)?)\s*%\s*", re.ASCII)


_DIRECTIONS = {
    True: "of this metric more is better: write < and a limit such as -5%",
    False: "of this metric less is better: write > and a limit such as +10%",
}


class SideArgument(NamedTuple):
    """The name of a side and its sources, of one run or of several."""

    name: str
    sources: tuple[Source, ...]


def parse_sides(texts: Sequence[str], exists: Callable[[str], bool], parse: ParseSource) -> tuple[SideArgument, ...]:
    """
    Read the sides of a comparison; a text that `exists` is a path, whatever signs it has. Raise `UsageError` if wrong.

    A side without a name has that of what differs in the paths, or, where nothing does, what was given.
    """
    if len(texts) < FEWEST_SIDES:
        raise UsageError(
            "give at least two sides, each a source or NAME=SOURCE,SOURCE…, as in A=a1.json,a2.json b.json"
        )
    parsed = [_parse(text, exists) for text in texts]
    sources = [tuple(dict.fromkeys(parse(each) for each in listed)) for _, listed in parsed]
    names = _names(parsed, sources)
    twins = [name for name in names if names.count(name) > 1]
    if twins:
        raise UsageError(f"two sides have the name {twins[0]}: give each its own, as in A={parsed[0][1][0]}")
    return tuple(SideArgument(name, each) for name, each in zip(names, sources, strict=True))


def _parse(text: str, exists: Callable[[str], bool]) -> tuple[str | None, tuple[str, ...]]:
    if exists(text):
        return None, (text,)
    before, separator, after = text.partition("=")
    name, listed = (before, after) if separator and "/" not in before else (None, text)
    sources = (listed,) if exists(listed) else tuple(listed.split(","))
    if name == "" or not all(sources):
        raise UsageError(f"{text!r}: expected a source, or NAME=SOURCE,SOURCE…")
    return name, sources


def _names(parsed: Sequence[tuple[str | None, tuple[str, ...]]], sources: Sequence[Sequence[Source]]) -> list[str]:
    """Return the name of each side: the one it was given, or what differs in the paths of those without one."""
    parts = [[_parts(each) for each in of_side] for (name, _), of_side in zip(parsed, sources, strict=True) if not name]
    given = [name for name, _ in parsed if name is not None]
    differing = (_differing_parts(parts) if parts else None) or []
    names = iter(differing if set(differing).isdisjoint(given) else ())
    return [name or next(names, listed[0]) for name, listed in parsed]


def _parts(source: Source) -> Parts:
    """Return a source's path in parts, the last first and without its endings; of a time of a Prometheus its server."""
    if not isinstance(source, str):
        return (source.server or source.source,)
    *folders, last = source.rstrip("/").split("/")
    return without_endings(last) or source, *reversed(folders)


def _differing_parts(sides: Sequence[Sequence[Parts]]) -> list[str] | None:
    """
    Return the names of the sides' files, or of their nearest folders, if each is another one; else `None`.

    What the sources of a side do not share is a number of a run, and names nobody:
    ``mtp-on/run1.json,mtp-on/run2.json`` is ``mtp-on``.
    """
    return _told_apart([_shared(sources) for sources in sides]) or _told_apart([sources[0] for sources in sides])


def _shared(sources: Sequence[Parts]) -> Parts:
    """Return the parts that all sources of a side have in one place; an empty text where they differ."""
    depth = min(map(len, sources))
    places = [{source[at] for source in sources} for at in range(depth)]
    return tuple(place.pop() if len(place) == 1 else "" for place in places)


def _told_apart(paths: Sequence[Parts]) -> list[str] | None:
    columns = [[path[at] for path in paths] for at in range(min(map(len, paths)))]
    return next((column for column in columns if all(column) and len(set(column)) == len(column)), None)


class Rule(NamedTuple):
    """A limit of a metric's change in per cent: beyond it is above if `is_upper`, else below."""

    metric: str
    is_upper: bool
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {'>' if self.is_upper else '<'} {self.limit:+g}%"


class Outcome(NamedTuple):
    """What became of a rule, in a sentence: `exit_status` is 1 if it holds, 3 if that cannot be told, else 0."""

    exit_status: int
    text: str


def parse_rule(text: str) -> Rule:
    """Read a rule; raise `UsageError` if it is none, of an unknown metric, or would fail for an improvement."""
    match = _RULE.fullmatch(text)
    if match is None:
        raise UsageError(f"--fail-if {text!r}: expected a metric, < or >, and per cent, such as 'ttft_ms.p99 > +10%'")
    if match["metric"] not in BY_NAME:
        raise UsageError(f"--fail-if {text!r}: no metric {match['metric']}; known are {', '.join(BY_NAME)}")
    rule = Rule(match["metric"], match["relation"] == ">", float(match["limit"]))
    if rule.is_upper == BY_NAME[rule.metric].higher_is_better:
        raise UsageError(f"--fail-if {text!r}: that is an improvement; {_DIRECTIONS[rule.is_upper]}")
    return rule


def check_rule(rule: Rule, comparison: Comparison) -> Outcome:
    """
    Return whether a comparison, for which the rule's metric was chosen, breaks the rule.

    A candidate that is dead, or was not measured, passes none.
    """
    where = f"{rule} ({comparison.candidate} against {comparison.baseline})"
    row = next((row for row in comparison.chosen if row.metric == rule.metric), None)
    if not comparison.comparable:
        return Outcome(UNKNOWN, f"cannot be told: {where}: {' '.join(comparison.reasons)}")
    if row is None:
        return Outcome(UNKNOWN, f"cannot be told: {where}: Not both sides have this metric.")
    if row.low is None and row.high is None:
        return Outcome(UNKNOWN, f"cannot be told: {where}: {row.reason or row.note}")
    measured = f"{row.percent:+.1f} % ({_bound(row.low)} to {_bound(row.high)} %)"
    if _is_beyond(rule, row):
        doubt = "" if row.grade == "shown" or row.reason is None else f"; {row.reason}"
        return Outcome(BROKEN, f"failed: {where}: {measured}{doubt}")
    if _is_within(rule, row):
        return Outcome(0, f"passed: {where}: {measured}")
    return Outcome(0, f"not shown: {where}: {measured} includes the limit; more runs are needed")


def check_loads(left_out: Sequence[str]) -> Outcome | None:
    """Return that nothing can be told of the loads that not all sides have, `None` if there are none."""
    if not left_out:
        return None
    return Outcome(UNKNOWN, f"cannot be told: not all sides have the load {', nor '.join(left_out)}")


def _is_beyond(rule: Rule, row: Row) -> bool:
    if rule.is_upper:
        return row.low is not None and row.low > rule.limit
    return row.high is not None and row.high < rule.limit


def _is_within(rule: Rule, row: Row) -> bool:
    if rule.is_upper:
        return row.high is not None and row.high <= rule.limit
    return row.low is not None and row.low >= rule.limit


def _bound(percent: float | None) -> str:
    return "open" if percent is None else f"{percent:+.1f}"
