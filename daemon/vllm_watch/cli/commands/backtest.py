# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch backtest``: which alerts would have fired over a recording, an old log or a Prometheus."""

from __future__ import annotations

import sys

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import click

from vllm_watch.analysis.backtest.fired import SourceResult
from vllm_watch.analysis.backtest.judgement import backtest, selected_by
from vllm_watch.analysis.backtest.promtool import check_rules, promtool
from vllm_watch.analysis.backtest.rule_set import (
    RuleSet,
    read_thresholds,
    shipped_rules,
    shipped_thresholds,
    users_rules,
)
from vllm_watch.analysis.backtest.series_grid import Subject
from vllm_watch.analysis.backtest.subjects import SubjectOptions, file_sources, read_file_source, read_range
from vllm_watch.analysis.loadtest.load_test import Objective
from vllm_watch.analysis.loadtest.source_names import paths_of, queries_of
from vllm_watch.analysis.rendering.backtest_document import backtest_document, backtest_json
from vllm_watch.analysis.replay.finished_log import Progress
from vllm_watch.cli.commands.options import (
    BACKTEST_FORMATS,
    BacktestFormat,
    check_output,
    duration_option,
    file_option,
    output_option,
    progress_bar,
    say,
)
from vllm_watch.cli.commands.output_formats import rendered, write_answer
from vllm_watch.cli.commands.source_options import given_sources, objective_option, sources_argument
from vllm_watch.daemon.catalog.codes import SEVERITIES, severity_rank
from vllm_watch.daemon.support.errors import UsageError
from vllm_watch.daemon.support.printable import printable


_SLO = {"ttft_ms": "slo_time_to_first_token_seconds", "tpot_ms": "slo_time_per_output_token_seconds"}
"""The series of a limit."""

_Reader = Callable[[Progress], Subject]
"""Reads a source, and tells its progress."""


@click.command("backtest")
@sources_argument
@file_option("--thresholds", help="Thresholds in place of the package's, in a file as alerts/thresholds.yml.")
@file_option("--rules", "rule_files", multiple=True, help="Prometheus' rules to evaluate instead of the package's.")
@output_option
@click.option("--format", "form", type=click.Choice(BACKTEST_FORMATS), default="text", show_default=True)
@duration_option(
    "--step",
    help="Time between two scrapes of a log or recording [default: 5s].",
)
@click.option(
    "--fail-if-firing",
    "failing",
    type=click.Choice(SEVERITIES),
    help="Exit with 1 if an alert of this or a worse severity fires.",
)
@click.option("--verbose", is_flag=True, help="Also name each alert that was not judged.")
@objective_option
def command(
    sources: tuple[str, ...],
    thresholds: str | None,
    rule_files: tuple[str, ...],
    output: str | None,
    form: BacktestFormat,
    step: float | None,
    failing: str | None,
    verbose: bool,
    objective: Objective | None,
) -> None:
    """
    Tell which alerts would have fired over old data, and when.

    A SOURCE is a server's log (a rotated one by its own path), a recording, a folder of these, or a time that a
    Prometheus has, of one server or of all: prom:URL/SERVER@FROM/TO, prom:URL@FROM/TO. Each is judged by itself. The
    rules are evaluated by promtool, which comes with Prometheus.
    """
    check_output(output, (*sources, thresholds, *rule_files))
    given = given_sources(sources)
    paths, queries = paths_of(given), queries_of(given)
    if not paths and (step is not None or objective is not None):
        raise UsageError(f"{'--step' if step is not None else '--objective'} is for a log or a recording")
    options = SubjectOptions(step or 5.0, _slo(objective))
    values = shipped_thresholds() if thresholds is None else read_thresholds(thresholds)
    rules = users_rules(rule_files, values) if rule_files else shipped_rules(values).without_unused()
    readers: dict[str, _Reader] = {
        source.name: partial(read_file_source, source, options) for source in file_sources(paths)
    }
    readers |= {query.source: partial(read_range, query, selected_by(rules)) for query in queries}
    results = _evaluated(readers, rules, are_shipped=not rule_files)
    _write(results, form, output, is_verbose=verbose)
    if failing is not None:
        _check(results, failing)


def _evaluated(readers: Mapping[str, _Reader], rules: RuleSet, *, are_shipped: bool) -> list[SourceResult]:
    results = []
    with promtool() as tool:
        check_rules(tool, rules)
        for name, reader in readers.items():
            with progress_bar(f"read {printable(name)}") as progress:
                subject = reader(progress)
            results.append(backtest(tool, subject, rules, are_shipped=are_shipped))
    return results


def _slo(objective: Objective | None) -> dict[str, float]:
    if objective is None:
        return {}
    unknown = sorted(objective.limits.keys() - _SLO.keys())
    if unknown:
        raise UsageError("--objective: alerts have objectives for ttft and tpot only")
    return {_SLO[name]: milliseconds / 1000 for name, milliseconds in objective.limits.items()}


def _write(results: Sequence[SourceResult], form: BacktestFormat, output: str | None, *, is_verbose: bool) -> None:
    if form == "json":
        text = backtest_json(results)
    else:
        text = rendered(backtest_document(results, is_verbose=is_verbose), form, output)
    write_answer(text, form, output)


def _check(results: Sequence[SourceResult], severity: str) -> None:
    """Exit with 1 if an alert of a severity or a worse one fires; if none does, name those that a flag would decide."""
    if any(_is_as_bad(alert.severity, severity) for result in results for alert in result.alerts):
        sys.exit(1)
    undecided = [
        alert
        for result in results
        for alert in result.not_judged
        if alert.unknown and _is_as_bad(alert.severity, severity)
    ]
    if undecided:
        names = ", ".join(dict.fromkeys(alert.alertname for alert in undecided))
        flags = ", ".join(dict.fromkeys(flag for alert in undecided for flag in alert.unknown))
        text = f"--fail-if-firing {severity}: none fired, but without {flags} these could not be judged: {names}"
        say(text)


def _is_as_bad(severity: str, limit: str) -> bool:
    return severity_rank(severity) <= severity_rank(limit)
