# SPDX-License-Identifier: Apache-2.0
"""What a runbook holds: its sections, queries, commands and links."""

from __future__ import annotations

import json
import re
import shlex
import tempfile

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import promql_parser as promql

from tests.alerts.shapes import parts
from tests.support.monitoring import promtool


ALERTS = Path(__file__).parents[2] / "alerts"
RUNBOOKS = ALERTS / "runbooks"

_ANSWER = re.compile(r'expr: "(.*)", time: .*,\n.*\n\s+got: *(.*)')
_SECTION = re.compile(r"^## (.+)\n([\s\S]*?)(?=^## |\Z)", re.MULTILINE)
_BLOCK = re.compile(r"^```(\w+)\n([\s\S]*?)^```$", re.MULTILINE)


class Grep(NamedTuple):
    """A search in a server's log, with `LOG` for its path: grep's options, and its patterns one by one."""

    options: tuple[str, ...]
    patterns: tuple[str, ...]


def sections(text: str) -> dict[str, str]:
    """Return the sections' bodies by heading, in their order."""
    return {heading: body.strip() for heading, body in _SECTION.findall(text)}


def blocks(text: str, language: str) -> list[str]:
    """Return the lines of all blocks in a language."""
    return [line for found, body in _BLOCK.findall(text) if found == language for line in body.splitlines() if line]


def greps(text: str) -> Iterator[Grep]:
    """Yield the searches in a server's log."""
    for line in blocks(text, "sh"):
        words = shlex.split(line.partition(" | ")[0])
        if words[0] == "grep" and words[-1] == "LOG":
            yield _grep(words[1:-1])


def _grep(words: list[str]) -> Grep:
    patterns = [after for word, after in pairwise(words) if word == "-e"]
    options = [word for word in words if word.startswith("-") and word != "-e"]
    return Grep(tuple(options), tuple(patterns or words[-1:]))


def named_labels(expr: promql.Expr) -> Iterator[str]:
    """Yield the labels that an expression selects, groups or matches by."""
    for part in parts(expr, promql.VectorSelector, promql.AggregateExpr, promql.BinaryExpr):
        if isinstance(part, promql.VectorSelector):
            yield from (matcher.name for matcher in part.matchers.matchers)
        elif part.modifier is not None:
            named = part.modifier if isinstance(part, promql.AggregateExpr) else part.modifier.matching
            yield from named.labels if named is not None else ()


def answered(queries: Iterable[str], series: Mapping[str, list[str]], *, step: int, second: int) -> set[str]:
    """Return the queries that have an answer at a second, over series with a value for every step, and the rules."""
    asked = sorted(set(queries))
    document = {
        "rule_files": [str(path) for path in sorted((ALERTS / "rules").glob("*.yml"), reverse=True)],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": f"{step}s",
                "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
                "promql_expr_test": [
                    {"expr": query, "eval_time": f"{second}s", "exp_samples": [{"labels": "{}", "value": -1}]}
                    for query in asked
                ],
            }
        ],
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "queries.yml"
        path.write_text(json.dumps(document))  # JSON is YAML, and written in a hundredth of the time.
        _, printed = promtool("test", "rules", path)
    found = {query.replace(r"\"", '"'): got for query, got in _ANSWER.findall(printed)}
    if set(found) != set(asked):
        raise RuntimeError(f"promtool did not evaluate {sorted(set(asked) - set(found))}: {printed[:2000]}")
    return {query for query, got in found.items() if got not in {"", "nil"}}


def compares(expr: object) -> bool:
    """Whether an expression keeps only a part of what it selects."""
    if isinstance(expr, promql.BinaryExpr):
        return str(expr.op) in {">", "<", "==", "!=", ">=", "<="} or compares(expr.lhs) or compares(expr.rhs)
    return False
