# SPDX-License-Identifier: Apache-2.0
"""What load tests of two configurations measured that differ in one flag: stronger than any rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_watch.analysis.advice.flag_texts import DRAFT_TOKENS, OFF
from vllm_watch.analysis.advice.model import Evidence
from vllm_watch.analysis.advice.rules import RULES
from vllm_watch.analysis.advice.subject import Subject
from vllm_watch.analysis.comparison.compare import compare_pair
from vllm_watch.analysis.comparison.model import Row, Side, Verdict
from vllm_watch.analysis.loadtest.load_test import Run
from vllm_watch.daemon.catalog.metric_titles import titled
from vllm_watch.daemon.catalog.number_texts import signed, significant


FLAGS = frozenset(rule.flag for rule in RULES)
"""The flags on which there is advice."""

_DRAFTS = "speculative-config"


class Tested(NamedTuple):
    """A configuration and its load tests."""

    subject: Subject
    runs: tuple[Run, ...]


class Measurement(NamedTuple):
    """
    One flag with another value, in other load tests, and what `compare` says of it.

    `evidence` has the metric that decides first, then those that were worse where that one was better.
    """

    flag: str
    now: str
    other: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]
    with_other: Tested


def measurements(tested: Tested, others: Sequence[Tested]) -> list[Measurement]:
    """Return what the load tests of others show for a configuration, where they differ from it in one flag."""
    found = [_measurement(tested, other) for other in others if other is not tested]
    return [each for each in found if each is not None]


def _measurement(one: Tested, other: Tested) -> Measurement | None:
    flag = _one_difference(one.subject.flags, other.subject.flags)
    same = (one.subject.model, one.subject.version) == (other.subject.model, other.subject.version)
    if flag is None or not same or not one.runs or not other.runs:
        return None
    compared = compare_pair(Side(name=one.subject.name, runs=one.runs), Side(name=other.subject.name, runs=other.runs))
    row = next((row for row in compared.metrics if row.is_headline), None)
    if row is None or row.verdict in {"too_few", "not_compared"} or row.percent is None:
        return None
    now, tried = (tested.subject.flags.get(flag, OFF) for tested in (one, other))
    worse = [each for each in compared.metrics if row.verdict == "better" and each.verdict == "worse"]
    evidence = tuple(found for each in (row, *worse) for found in _evidence(each, f"{flag} {tried} instead of {now}"))
    return Measurement(flag, now, tried, row.verdict, evidence, other)


def best(found: Sequence[Measurement]) -> Mapping[str, Measurement]:
    """Return the measurement of each flag whose value is the best one that was measured."""
    better = sorted((each for each in found if each.verdict == "better"), key=lambda each: abs(each.evidence[0].value))
    return {each.flag: each for each in better}


def _one_difference(one: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """Return the only flag that two configurations differ in, if there is advice on it."""
    names = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    has_drafts = [DRAFT_TOKENS in flags for flags in (one, other)]
    if names and all(name.startswith(_DRAFTS) for name in names):
        # Without drafts none of their settings is there; with other drafts it is not only their number.
        return DRAFT_TOKENS if names == {DRAFT_TOKENS} or has_drafts[0] != has_drafts[1] else None
    only = names.pop() if len(names) == 1 else None
    return only if only in FLAGS and only in one and only in other else None


def _evidence(row: Row, change: str) -> Iterator[Evidence]:
    if row.percent is not None:
        yield Evidence(series=row.metric, statistic="difference", value=row.percent, text=_text(row, change))


def _text(row: Row, change: str) -> str:
    interval = f"{signed(row.percent)} [{significant(row.low)}, {significant(row.high)}] %"
    runs = f"{row.n[1]} runs against {row.n[0]}"
    return f"measured with {change}, {titled(row.metric)}: {row.verdict.replace('_', ' ')}, {interval}, {runs}"
