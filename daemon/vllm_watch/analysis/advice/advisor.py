# SPDX-License-Identifier: Apache-2.0
"""All sources of `advise` together: configurations, what the rules say of each, what was measured, how to check it."""

from __future__ import annotations

import json
import shlex

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from vllm_watch.analysis.advice.advice_model import Advice, Advised, Evidence, Observed, Silence
from vllm_watch.analysis.advice.advice_subject import Subject, subjects
from vllm_watch.analysis.advice.judge import MOST, RULES, Judged, expectations, judge, notes
from vllm_watch.analysis.advice.rule import DRAFT_TOKENS, OFF
from vllm_watch.analysis.comparison.compare_sides import compare_pair
from vllm_watch.analysis.comparison.comparison_model import Row, Side
from vllm_watch.analysis.loadtest.load_test import Objective, Report, Run
from vllm_watch.analysis.loadtest.prometheus_source import SCHEME
from vllm_watch.analysis.loadtest.server_history import ServerHistory
from vllm_watch.daemon.catalog.language import N_, _
from vllm_watch.daemon.catalog.metric_titles import titled
from vllm_watch.daemon.catalog.number_texts import signed, significant


FLAGS = frozenset(rule.flag for rule in RULES)
"""The flags on which there is advice."""

_DRAFTS = "speculative-config"

_SWITCH = "enforce-eager"
_FIELDS = ("method", "model")

_VERDICTS = {True: N_("better"), False: N_("worse"), None: N_("not decided")}

_RUNS = 5
"""Five runs of each side find a difference of a few per cent, as `compare` says."""


class Configuration(NamedTuple):
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
    is_better: bool | None
    evidence: tuple[Evidence, ...]
    with_other: Configuration


def measurements(tested: Configuration, others: Sequence[Configuration]) -> list[Measurement]:
    """Return what the load tests of others show for a configuration, where they differ from it in one flag."""
    found = [_measurement(tested, other) for other in others if other is not tested]
    return [each for each in found if each is not None]


def _measurement(one: Configuration, other: Configuration) -> Measurement | None:
    flag = _one_difference(one.subject.flags, other.subject.flags)
    same = (one.subject.model, one.subject.version) == (other.subject.model, other.subject.version)
    if flag is None or not same or not one.runs or not other.runs:
        return None
    compared = compare_pair(Side(name=one.subject.name, runs=one.runs), Side(name=other.subject.name, runs=other.runs))
    row = next((row for row in compared.metrics if row.is_headline), None)
    if row is None or row.confidence is None:
        return None
    now, tried = (tested.subject.flags.get(flag, OFF) for tested in (one, other))
    is_better = _shown(row)
    worse = [each for each in compared.metrics if is_better and _shown(each) is False]
    change = _("{flag} {other} instead of {now}", flag=flag, other=tried, now=now)
    evidence = tuple(_row_evidence(each, change) for each in (row, *worse) if each.percent is not None)
    return Measurement(flag, now, tried, is_better, evidence, other)


def _shown(row: Row) -> bool | None:
    """Return whether the other value is the better one, `None` if no difference is shown."""
    return row.is_better if row.grade == "shown" else None


def best(found: Sequence[Measurement]) -> Mapping[str, Measurement]:
    """Return the measurement of each flag whose value is the best one that was measured."""
    better = sorted((each for each in found if each.is_better), key=lambda each: abs(each.evidence[0].value))
    return {each.flag: each for each in better}


def _one_difference(one: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    names = {name for name in {*one, *other} if one.get(name) != other.get(name)}
    has_drafts = [DRAFT_TOKENS in flags for flags in (one, other)]
    if names and all(name.startswith(_DRAFTS) for name in names):
        # Without drafts none of their settings is there; with other drafts it is not only their number.
        return DRAFT_TOKENS if names == {DRAFT_TOKENS} or has_drafts[0] != has_drafts[1] else None
    only = names.pop() if len(names) == 1 else None
    return only if only in FLAGS and only in one and only in other else None


def _row_evidence(row: Row, change: str) -> Evidence:
    text = _(
        "measured with {change}, {metric}: {verdict}, {interval} %, {other} runs against {runs}",
        change=change,
        metric=titled(row.metric),
        verdict=_(_VERDICTS[_shown(row)]),
        interval=f"{signed(row.percent)} [{significant(row.low)}, {significant(row.high)}]",
        other=row.runs[1],
        runs=row.runs[0],
    )
    return Evidence(series=row.metric, statistic="difference", value=row.percent or 0.0, text=text)


def advise(histories: Sequence[ServerHistory], report: Report, objective: Objective | None = None) -> Advised:
    """Return the advice that histories and their load tests give; some rules hold latencies against an objective."""
    tested = [_tested(subject, report) for subject in subjects(histories, objective)]
    each = [_advised(one, tested) for one in tested]
    return Advised(
        advice=tuple(advice for judged in each for advice in judged.advice),
        notes=tuple(
            note for one, judged in zip(tested, each, strict=True) for note in notes(one.subject, judged.advice)
        ),
        silent=tuple(silence for judged in each for silence in judged.silent),
        servers=tuple(_observed(one.subject) for one in tested),
    )


def _tested(subject: Subject, report: Report) -> Configuration:
    """Return a configuration with its runs: those of a client, or all if no client measured any."""
    runs = [run for run in report.runs if set(run.source) & set(subject.source)]
    measured = [run for run in runs if any(view.view == "client" for view in run.views)]
    return Configuration(subject, tuple(measured or runs))


def _advised(one: Configuration, every: Sequence[Configuration]) -> Judged:
    """Return the advice for a configuration, with what was measured and with the commands that check it."""
    judged = judge(one.subject)
    measured = measurements(one, every)
    better = best(measured)
    tried = {(each.flag, each.other): each for each in measured if not each.is_better}
    advice = [_measured_advice(each, judged.advice, one) for each in better.values()]
    silent = [silence for silence in judged.silent if silence.flag not in better]
    for each in judged.advice:
        test = tried.get((each.flag, each.proposed))
        if test is not None and test.is_better is False:
            reason = _("load tests with {flag} {value} were worse", flag=each.flag, value=each.proposed)
            silent.append(Silence(rule=each.rule, flag=each.flag, reason=reason, server=each.server))
        elif each.flag not in better:
            advice.append(_with_check(each, one) if test is None else _with_tests(each, one, test))
    return Judged(tuple(advice[:MOST]), tuple(silent))


def _measured_advice(found: Measurement, judged: Sequence[Advice], one: Configuration) -> Advice:
    """Return what was measured as advice, with the evidence of a rule that says the same."""
    same = next((each for each in judged if each.flag == found.flag), None)
    rule = next(rule for rule in RULES if rule.flag == found.flag and (same is None or same.rule == rule.name))
    return Advice(
        flag=found.flag,
        now=found.now,
        proposed=found.other,
        says=_("Load tests with another value of this flag alone were better."),
        expected=_("What was measured, under the load of these tests."),
        risk=_(rule.risk),
        evidence=(*found.evidence, *(() if same is None else same.evidence)),
        check=(_compare_command(_files(one), _files(found.with_other)),),
        rule="measured",
        cause=rule.cause,
        expects=expectations(rule),
        server=one.subject.name,
    )


def _with_tests(advice: Advice, one: Configuration, found: Measurement) -> Advice:
    """Return advice whose value was tried already, with a result that decides nothing."""
    caveat = _("Your load tests do not decide it: {evidence}.", evidence=found.evidence[0].text)
    check = (_("# More runs of both sides decide. So far:"), _compare_command(_files(one), _files(found.with_other)))
    return replace(advice, caveats=(*advice.caveats, caveat), check=check)


def _with_check(advice: Advice, one: Configuration) -> Advice:
    guard = next(rule.guard for rule in RULES if rule.name == advice.rule)
    is_tested = any(view.view == "client" for run in one.runs for view in run.views)
    # A recording of several servers is no side of a comparison.
    is_alone = not any(": " in source for source in one.subject.source)
    tests = _files(one) if is_tested and is_alone else ()
    started = _argument(advice.flag, advice.proposed, one.subject.flags)
    time = next((source for source in one.subject.source if source.startswith(SCHEME)), None)
    return replace(advice, check=_check_commands(started, guard, tests, time))


def _files(one: Configuration) -> tuple[str, ...]:
    files = (source.partition(": ")[0] for run in one.runs for source in run.source)
    return tuple(dict.fromkeys(files))


def _observed(subject: Subject) -> Observed:
    return Observed(
        name=subject.name,
        source=subject.source,
        seconds=subject.work.seconds,
        model=subject.model,
        version=subject.version,
        start=subject.work.start,
        end=subject.work.end,
        warnings=subject.warnings,
    )


def _argument(flag: str, value: str, flags: Mapping[str, str]) -> str:
    """Return what to start the server with: ``with --max-num-seqs 8``, ``without --enforce-eager``."""
    outer = flag.partition(".")[0]
    if value == OFF or (flag == _SWITCH and value == "False"):
        return _("without {argument}", argument=f"--{outer}")
    if flag == _SWITCH:
        return _("with {argument}", argument=f"--{flag}")
    if flag == DRAFT_TOKENS:
        known = {name: flags[f"{outer}.{name}"] for name in _FIELDS if f"{outer}.{name}" in flags}
        drafts = json.dumps({**known, "num_speculative_tokens": int(value)})
        return _("with {argument}", argument=f"--{outer} '{drafts}'")
    return _("with {argument}", argument=f"--{flag} {value}")


def _check_commands(started: str, guarded: str, tests: Sequence[str] = (), time: str | None = None) -> tuple[str, ...]:
    """Return the commands that measure a change: from load tests that are there, or from a time of a Prometheus."""
    guard = f"--fail-if {shlex.quote(guarded)}"
    if time is not None and not tests:
        return (
            _("# Start the server {how}, and let it work as long under the same load, FROM to TO:", how=started),
            _compare_command((time,), (f"{time.rpartition('@')[0]}@FROM/TO",), guard),
        )
    changed = _recordings("changed")
    if tests:
        return (
            _("# Start the server {how}, and send it the same load {count} times:", how=started, count=_RUNS),
            _record("changed"),
            _compare_command(tests, changed, guard),
        )
    turns = N_("# Send the same load to the server as it is and to one {how}, {count} times each, taking turns:")
    return (
        _(turns, how=started, count=_RUNS),
        _record("now"),
        _record("changed"),
        _compare_command(_recordings("now"), changed, guard),
    )


def _compare_command(now: Sequence[str], changed: Sequence[str], guard: str = "") -> str:
    sides = (f"now={','.join(now)}", f"changed={','.join(changed)}")
    return " ".join(["vllm-watch compare", *map(shlex.quote, sides), *([guard] if guard else [])])


def _record(side: str) -> str:
    return f"vllm-watch record -o {side}-1.jsonl.xz -- vllm bench serve ARGUMENTS"


def _recordings(side: str) -> tuple[str, ...]:
    return tuple(f"{side}-{number}.jsonl.xz" for number in range(1, _RUNS + 1))
