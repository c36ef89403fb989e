# SPDX-License-Identifier: Apache-2.0
"""How much a server can carry: how that was determined, how much was asked for, and the file for the configuration."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch import __version__
from vllm_watch.analysis.loadtest.load_test import Capacity, Report, Run
from vllm_watch.analysis.loadtest.run_capacity import UNKNOWN
from vllm_watch.analysis.rendering.document import Block, Column, Paragraph, plain_table
from vllm_watch.daemon.catalog.number_texts import MISSING, significant, spread
from vllm_watch.daemon.support.printable import printable


PLANNED = (0.70, 0.85)
"""Which part of the sustained maximum to plan with."""

_WITHOUT_SERVER = ("throughput", "latency")
"""The kinds of benchmark that have no server, and so no log or recording of one."""

_BASES = {
    "saturated": "the server was saturated",
    "curve": "fitted to tokens per second by running requests",
    "bench": "load tests",
}


_ABOVE = "The maximum: see above, where it is told for several runs together."


def common_capacity(runs: Sequence[Run]) -> str:
    """Return what is said of the maximum of several runs if it is the same of all, as of loads of one server."""
    texts = {capacity_text(run) for run in runs} if len(runs) > 1 else set[str]()
    return texts.pop() if len(texts) == 1 else ""


def capacity_blocks(run: Run, common: str) -> tuple[Block, ...]:
    """Return the sustained maximum with the band to plan with, and the rates; `common` is told elsewhere."""
    use = run.use if run.steady is None else run.steady.use
    offered, when = use.offered_requests_per_second, "" if run.steady is None else " in the steady window"
    rows = [
        *(() if run.capacity is None else _maximum(run.capacity)),
        (f"Requests offered{when} (1/s)", significant(run.load.offered_request_rate if offered is None else offered)),
        (f"Requests served{when} (1/s)", significant(use.requests_per_second)),
    ]
    known = tuple(row for row in rows if row[1] != MISSING)
    table = plain_table("", (Column("", is_text=True), Column("")), known)
    text = capacity_text(run)
    return (Paragraph(_ABOVE if text == common else text), table)


def capacity_text(run: Run) -> str:
    """Return how the maximum was determined, or why it is not known."""
    if run.capacity is None:
        return _why_unknown(run)
    return f"Determined by: {_BASES[run.capacity.basis]}. {sentence(run.capacity.explanation)}"


def _why_unknown(run: Run) -> str:
    """Return why there is no maximum: as its server's history says it, or that there is none."""
    reason = next((note for note in run.notes if note.startswith(UNKNOWN)), None)
    if reason is not None or run.phases:
        return reason or f"{UNKNOWN}."
    told = "one result of a benchmark does not show it"
    if run.load.endpoint in _WITHOUT_SERVER:
        return f"{UNKNOWN}: {told}."
    return f"{UNKNOWN}: {told}. Add the server's log or a recording."


def _maximum(capacity: Capacity) -> tuple[tuple[str, str], ...]:
    low, high = (capacity.low * part for part in PLANNED)
    return (
        ("Sustained maximum (tokens/s)", significant(capacity.tokens_per_second)),
        ("between (tokens/s)", spread(capacity.low, capacity.high)),
        ("plan with 70 to 85 % of the lower bound (tokens/s)", spread(low, high)),
    )


def sentence(text: str) -> str:
    """Return a clause as a sentence."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text.strip() else ""


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
        f"tokens_per_second: {_decimal(capacity.tokens_per_second)}",
        f"lower: {_decimal(capacity.low)}",
        f"upper: {_decimal(capacity.high)}",
    ]
    if capacity.prompt_tokens_per_second:
        lines.append(f"prompt_tokens_per_second: {_decimal(capacity.prompt_tokens_per_second)}")
    lines.append(f"benchmark: {_quoted(', '.join(run.source))}")
    return "".join(f"{printable(line)}\n" for line in lines)


def _measured(report: Report) -> tuple[Run, Capacity]:
    known = [(run, run.capacity) for run in report.runs if run.capacity is not None]
    if not known:
        raise NoCapacityError(capacity_text(report.runs[0]).rstrip(".") if report.runs else "there is no run")
    if len({capacity for _, capacity in known}) > 1:
        raise NoCapacityError("the runs show several maxima; give the sources of one server, with one configuration")
    run, capacity = known[0]
    if capacity.basis == "curve":
        raise NoCapacityError("the maximum is only estimated by a curve, which the daemon does itself")
    return run, capacity


def _decimal(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
