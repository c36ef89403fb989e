# SPDX-License-Identifier: Apache-2.0
"""The capacity that a load test has measured, as the configuration takes it."""

from __future__ import annotations

from vllm_watch import __version__
from vllm_watch.analysis.loadtest.load_test import Capacity, Report, Run
from vllm_watch.analysis.rendering.capacity_blocks import capacity_text
from vllm_watch.daemon.support.printable import printable


class NoCapacityError(Exception):
    """The load test has measured no capacity; the message is a sentence without its full stop, and says why."""


def capacity_yaml(report: Report) -> str:
    """
    Return the value of the key `capacity`, for a file of its own or to be pasted.

    Raises:
        NoCapacityError: The runs show none, or several, or one that is only estimated.
    """
    run, capacity = _measured(report)
    lines = [
        f"# How many tokens per second {run.name} sustains: {capacity.explanation}.",
        f"# Written by vllm-watch {__version__}. Give a server the path of this file as its `capacity`.",
        f"tokens_per_second: {_number(capacity.tokens_per_second)}",
        f"lower: {_number(capacity.low)}",
        f"upper: {_number(capacity.high)}",
    ]
    if capacity.prompt_tokens_per_second:
        lines.append(f"prompt_tokens_per_second: {_number(capacity.prompt_tokens_per_second)}")
    lines.append(f"benchmark: {_quoted(', '.join(run.source))}")
    return "".join(f"{printable(line)}\n" for line in lines)


def _measured(report: Report) -> tuple[Run, Capacity]:
    """Return the one capacity of all runs, with the first run that has it."""
    known = [(run, run.capacity) for run in report.runs if run.capacity is not None]
    if not known:
        raise NoCapacityError(capacity_text(report.runs[0]).rstrip(".") if report.runs else "there is no run")
    if len({capacity for _, capacity in known}) > 1:
        raise NoCapacityError("the runs show several maxima; give the sources of one server, with one configuration")
    run, capacity = known[0]
    if capacity.basis == "curve":
        raise NoCapacityError("the maximum is only estimated by a curve, which the daemon does itself")
    return run, capacity


def _number(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    """Return a text as YAML has it between single quotes."""
    return "'" + text.replace("'", "''") + "'"
