# SPDX-License-Identifier: Apache-2.0
"""
Reports and comparisons as JSON: the names of ``vllm bench serve``, what is not known absent.

A report is ``{"runs": […]}``, each run a `load_test.Run` without its timeline, with a ``plan``, and, of several loads,
``latency_turn`` and a sentence on loads that are no run, ``left_out``.
A comparison of two sides is a `comparison_model.Comparison`. Of several sides it is ``{"baseline", "comparisons": […],
"matrix": […], "decisions": […], "sweeps": […]}``: each other side compared with the baseline, then all side by side.
Advice is an `advice_model.Advised`: ``{"advice": […], "notes": […], "silent": […], "servers": […]}``.
"""

from __future__ import annotations

import json
import math

from collections.abc import Mapping
from typing import Any

import msgspec

from vllm_watch.analysis.advice.advice_model import Advised
from vllm_watch.analysis.comparison.comparison_model import Comparison, Comparisons
from vllm_watch.analysis.loadtest.load_test import Report, Run


def report_json(report: Report) -> str:
    """Return a report as JSON, in ASCII, with a line feed at the end."""
    runs = [_run(run) for run in report.runs]
    turn = {} if report.latency_turn is None else {"latency_turn": _plain(report.latency_turn)}
    left_out = {} if report.left_out is None else {"left_out": report.left_out}
    plan = {} if report.plan is None else {"plan": _plain(report.plan)}
    return encoded({"runs": runs, **plan, **turn, **left_out})


def _run(run: Run) -> dict[str, Any]:
    plain = _plain(run)
    plain.pop("timeline", None)
    return plain


def advice_json(advised: Advised) -> str:
    """Return advice as JSON; its lists are there also if they are empty, and the rules that are silent say why."""
    return encoded(_plain(advised))


def comparisons_json(comparisons: Comparisons) -> str:
    """Return two sides as one comparison, several as all that were made."""
    pairs = [_comparison(pair) for pair in comparisons.pairs]
    if len(pairs) == 1:
        return encoded(pairs[0])
    matrix = [{"name": row.name, "config": {}, "values": {}} | _plain(row) for row in comparisons.matrix]
    decisions = [_plain(decision) for decision in comparisons.decisions]
    several = {"baseline": comparisons.baseline, "comparisons": pairs, "matrix": matrix, "decisions": decisions}
    return encoded({**several, "sweeps": [_plain(sweep) for sweep in comparisons.sweeps]})


def _comparison(pair: Comparison) -> dict[str, Any]:
    """Return one comparison; its lists are there also if they are empty, and each row has its grade and its runs."""
    lists: dict[str, Any] = {"reasons": [], "warnings": [], "config": [], "metrics": []}
    plain = lists | _plain(pair)
    plain.setdefault("common_config", {})
    for row, given in zip(plain["metrics"], pair.metrics, strict=True):
        row |= {"grade": given.grade, "runs": list(given.runs)}
    return plain


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    plain: dict[str, Any] = _finite(msgspec.to_builtins(value, enc_hook=_mapping))
    return plain


def _mapping(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in JSON")


def _finite(value: Any) -> Any:  # noqa: ANN401  # Whatever JSON holds.
    """
    Return a value without numbers that JSON does not have: absent in an object, null in a list.

    Objects of which nothing is known are absent too.
    """
    if isinstance(value, dict):
        known = {key: _finite(each) for key, each in value.items() if not _is_unknown(each)}
        return {key: each for key, each in known.items() if each != {}}
    if isinstance(value, list | tuple):
        return [None if _is_unknown(each) else _finite(each) for each in value]
    return value


def _is_unknown(value: object) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def encoded(value: dict[str, Any]) -> str:
    """Return an object as JSON, in ASCII, with a line feed at the end."""
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
