# SPDX-License-Identifier: Apache-2.0
"""
Prometheus' own tool: its runs, which end with the process that started them, its check of rules, and its evaluation.

Rules are evaluated over series in virtual time by ``promtool test rules``: Prometheus' own engine, rules and clocks. An
evaluation expects what no query gives, because promtool prints only what is not as expected: that is how it shows a
value. Its time begins at 0, in 1970, and every group of rules is evaluated at the same moments.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from vllm_watch.analysis.backtest.expressions import ANY_NAME, duration_seconds, selected_names
from vllm_watch.analysis.backtest.rule_set import Group, RuleSet
from vllm_watch.daemon.support.errors import ConfigError, ToolError
from vllm_watch.daemon.support.printable import printable
from vllm_watch.daemon.support.whole_file import cleaned_up, held_back


NAME = "promtool"
HOW_TO_INSTALL = "apt-get install prometheus, or https://prometheus.io/download/"
_CHECK_SECONDS = 0.1
_END_SECONDS = 5

STALE = "stale"
NOTHING = "_"
FIRING = 'ALERTS{alertstate="firing"}'
PENDING = 'ALERTS{alertstate="pending"}'

_NEVER = {"labels": "{}", "value": -987654321}
_LONGEST_OUTPUT = 500

_GOT = re.compile(r'expr: (".*?"), time: (\w+),\n.*?\n\s+got: ?(.*)')
_FAILED_RULE = re.compile(r"rule: (\S+), time: (\S+), err: (.*)")
_SAMPLE = re.compile(r'\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\} ([^\s,]+)')
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')

Labels = tuple[tuple[str, str], ...]
"""Names and values, the series' name as ``__name__``."""

Answers = dict[int, dict[Labels, float]]
"""What a query gives after each evaluation of the rules, by second."""


class Ended(NamedTuple):
    """A run that has ended: whether all was well, and what it printed."""

    is_well: bool
    printed: str


class Promtool:
    """Runs promtool; `folder` is for files of its runs, and there as long as they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = _found()
        self._running: list[subprocess.Popen[bytes]] = []

    def run(self, *arguments: str | Path) -> Ended:
        """Run it once."""
        return self.run_all([arguments])[0]

    def run_all(self, commands: Sequence[Sequence[str | Path]]) -> list[Ended]:
        """Run it several times at once; return how each run ended, in this order."""
        outputs = [self.folder / f"output{number}" for number, _ in enumerate(commands)]
        for arguments, output in zip(commands, outputs, strict=True):
            self._start(arguments, output)
        for running in self._running:
            while running.poll() is None:
                time.sleep(_CHECK_SECONDS)  # `wait` would hold the lock that `end` needs when a signal comes.
        ended = [
            Ended(running.returncode == 0, output.read_text(encoding="utf-8", errors="replace"))
            for running, output in zip(self._running, outputs, strict=True)
        ]
        self._running = []
        return ended

    def end(self) -> None:
        """End all runs."""
        for running in self._running:
            running.terminate()
        for running in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.wait(_END_SECONDS)
                continue
            running.kill()
            running.wait()

    def _start(self, arguments: Sequence[str | Path], output: Path) -> None:
        # What it stores meanwhile lies in a temporary folder, which it leaves behind if it is ended.
        environment = {**os.environ, "TMPDIR": str(self.folder)}
        try:
            with output.open("wb") as file, held_back() as let_through:
                self._running.append(
                    subprocess.Popen(  # noqa: S603 - A program of this name, with paths of ours.
                        [self._path, *map(str, arguments)],
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        env=environment,
                        preexec_fn=let_through,  # noqa: PLW1509 - It takes no lock, and there is no other thread.
                    )
                )
        except OSError as error:
            raise ToolError(f"{self._path}: cannot be run: {error.strerror}") from error


@contextmanager
def promtool() -> Iterator[Promtool]:
    """
    Yield what runs promtool; its runs and files end with the block, and with the process.

    Raises:
        ToolError: It is not installed.
    """
    folder = Path(tempfile.mkdtemp(prefix="vllm-watch-"))
    tool: Promtool | None = None

    def clean_up() -> None:
        if tool is not None:
            tool.end()
        shutil.rmtree(folder, ignore_errors=True)

    with cleaned_up(clean_up):
        tool = Promtool(folder)
        yield tool


def _found() -> str:
    path = shutil.which(NAME)
    if path is None:
        raise ToolError(f"{NAME} is missing, which evaluates the rules as Prometheus does: {HOW_TO_INSTALL}")
    return path


def check_rules(tool: Promtool, rules: RuleSet) -> None:
    """
    Check the files of a set of rules.

    Raises:
        ConfigError: Prometheus does not accept them; a message names the file, and the group and rule as promtool does.
    """
    for number, file in enumerate(rules.files):
        path = tool.folder / f"rules{number}.yml"
        path.write_text(file.text, encoding="utf-8")
        ended = tool.run("check", "rules", path)
        if not ended.is_well:
            lines = [line.strip() for line in ended.printed.splitlines()]
            said = [line.removeprefix(f"{path}: ") for line in lines if line.startswith(f"{path}: ")]
            messages = said or [f"promtool rejects it: {' '.join(lines)}"]
            raise ConfigError(*dict.fromkeys(f"{file.name}: {printable(message)}" for message in messages))


class Evaluation(NamedTuple):
    """
    What is evaluated: rules every `interval` seconds, over series with a value every `step` seconds.

    A value is a number, `STALE` or `NOTHING`. What a group of rules records, later groups see at the same moment. The
    queries are asked after each evaluation.
    """

    series: Mapping[str, Sequence[str]]
    steps: int
    step: float
    interval: int
    groups: Sequence[Group]
    queries: Sequence[str]

    @property
    def moments(self) -> range:
        """The seconds at which the rules are evaluated."""
        return range(0, max(int((self.steps - 1) * self.step) + 1, 1), self.interval)


def evaluate(tool: Promtool, evaluations: Sequence[Evaluation]) -> list[dict[str, Answers]]:
    """
    Return what the queries of each evaluation give, by the query; all are evaluated at once, each in its own process.

    Raises:
        ToolError: A rule cannot be evaluated over these series, or promtool prints what is not understood.
    """
    paths = [_write(tool.folder / f"evaluation{number}", each) for number, each in enumerate(evaluations)]
    ended = tool.run_all([("test", "rules", path) for path in paths])
    return [_answers(each, run.printed) for each, run in zip(evaluations, ended, strict=True)]


def _write(folder: Path, evaluation: Evaluation) -> Path:
    """
    Write the files of an evaluation; return the one that is given to promtool.

    Series that nothing selects are most of a server's, and would cost promtool most of its time.
    """
    folder.mkdir(exist_ok=True)
    expressions = [*evaluation.queries, *(rule["expr"] for group in evaluation.groups for rule in group["rules"])]
    selected = {name for expression in expressions for name in selected_names(expression)}
    groups = [{"name": str(number), "rules": group["rules"]} for number, group in enumerate(evaluation.groups)]
    (folder / "rules.json").write_text(json.dumps({"groups": groups}))  # JSON is YAML, and written sooner.
    test = {
        "interval": f"{round(evaluation.step * 1000)}ms",
        "input_series": [
            {"series": name, "values": values_text(each)}
            for name, each in evaluation.series.items()
            if ANY_NAME in selected or name.partition("{")[0] in selected
        ],
        "promql_expr_test": [
            {"expr": query, "eval_time": f"{moment}s", "exp_samples": [_NEVER]}
            for query in evaluation.queries
            for moment in evaluation.moments
        ],
    }
    document = {
        "rule_files": ["rules.json"],
        "evaluation_interval": f"{evaluation.interval}s",
        "group_eval_order": [group["name"] for group in groups],
        "tests": [test],
    }
    path = folder / "test.json"
    path.write_text(json.dumps(document))
    return path


def values_text(values: Iterable[str]) -> str:
    """Return values as promtool reads them, equal ones together: ``1+0x3`` for four times 1."""
    return " ".join(_run_text(value, sum(1 for _ in run)) for value, run in groupby(values))


def _run_text(value: str, count: int) -> str:
    if count == 1 or value == STALE:
        return " ".join([value] * count)
    if value == NOTHING:
        return f"_x{count}"
    return f"{value}+0x{count - 1}" if value[-1].isdigit() else " ".join([value] * count)


def _answers(evaluation: Evaluation, printed: str) -> dict[str, Answers]:
    failed = _FAILED_RULE.search(printed)
    if failed is not None:
        raise ToolError(f"the rule {printable(failed[1])} cannot be evaluated: {printable(failed[3])}")
    answers = {
        (json.loads(query), int(duration_seconds(moment))): dict(_samples(got))
        for query, moment, got in _GOT.findall(printed)
    }
    asked = {(query, moment) for query in evaluation.queries for moment in evaluation.moments}
    if answers.keys() != asked:
        raise ToolError(f"promtool prints what is not understood: {printable(printed[:_LONGEST_OUTPUT])}")
    return {query: {moment: answers[query, moment] for moment in evaluation.moments} for query in evaluation.queries}


def _samples(text: str) -> Iterator[tuple[Labels, float]]:
    for labels, value in _SAMPLE.findall(text):
        # Go quotes a text as Python does.
        yield tuple((name, ast.literal_eval(quoted)) for name, quoted in _LABEL.findall(labels)), float(value)
