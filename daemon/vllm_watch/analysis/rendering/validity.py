# SPDX-License-Identifier: Apache-2.0
"""What a reader must know before any number of a run: did it work, was it steady, was the server saturated."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_watch.analysis.loadtest.load_test import PhaseName, Run
from vllm_watch.analysis.loadtest.run_capacity import UNKNOWN
from vllm_watch.analysis.rendering.document import Statement
from vllm_watch.daemon.catalog.number_texts import count, duration, percent, significant


_TROUBLE: tuple[PhaseName, ...] = ("stalled", "down")


def validity(run: Run) -> tuple[Statement, ...]:
    """Return the sentences, the most important first, the run's own warnings and notes last."""
    warnings = (Statement("warning", text) for text in run.warnings)
    # Why the maximum is not known is said beside it.
    notes = (Statement("note", text) for text in run.notes if not text.startswith(UNKNOWN))
    return (*_requests(run), *_steadiness(run), *_phases(run), *_energy(run), *warnings, *notes)


def phase_seconds(run: Run, phase: PhaseName) -> float:
    """Return how long a run was in a phase, in seconds."""
    return sum(each.end - each.start for each in run.phases if each.phase == phase)


def load_seconds(run: Run) -> float | None:
    """Return how long a run's load lasted, in seconds; `None` if that is not known."""
    return None if run.start is None or run.end is None or run.end <= run.start else run.end - run.start


def seconds_of_load(run: Run, phase: PhaseName) -> float:
    """Return how long a run was in a phase during its load, in seconds; all of the phase if that is not known."""
    if run.start is None or run.end is None:
        return phase_seconds(run, phase)
    parts = (min(each.end, run.end) - max(each.start, run.start) for each in run.phases if each.phase == phase)
    return sum(max(part, 0.0) for part in parts)


def _requests(run: Run) -> Iterator[Statement]:
    successful = None if run.result is None else run.result.successful
    failed = None if run.result is None else run.result.failed
    if successful is None:
        yield Statement("unknown", "How many requests succeeded is not known.")
    elif failed is None:
        yield Statement("unknown", f"{count(successful)} requests succeeded. How many failed is not known.")
    elif failed and not successful:
        yield Statement("warning", _all_failed(failed))
    elif failed:
        share = significant(100 * failed / (successful + failed))
        failures = f"{count(failed)} of {count(successful + failed)} requests failed ({share} %)"
        yield Statement("warning", f"{failures}: tokens, rates and latencies are those of the others.")
    elif successful:
        yield Statement("good", f"All {count(successful)} requests succeeded.")
    else:
        yield Statement("warning", "No request was counted.")


def _all_failed(failed: int) -> str:
    return "The only request failed." if failed == 1 else f"All {count(failed)} requests failed."


def _steadiness(run: Run) -> Iterator[Statement]:
    steady = run.steady
    if steady is None:
        yield Statement("unknown", "No steady window is known: the numbers include the start and the end of the load.")
    elif steady.problem is not None:
        yield Statement("warning", f"The steady window says little ({steady.problem.rstrip('.')}).")
    else:
        found = f"The load was steady for {duration(steady.end - steady.start)} (found by {steady.method.rstrip('.')})."
        yield Statement("good", found)


def _energy(run: Run) -> Iterator[Statement]:
    if run.energy_problem is not None:
        yield Statement("unknown", f"The energy of the GPUs is not known: {run.energy_problem}.")


def _phases(run: Run) -> Iterator[Statement]:
    if not run.phases:
        yield Statement("unknown", "Whether the server was saturated is not known.")
        return
    saturated, load = seconds_of_load(run, "saturated"), load_seconds(run)
    if saturated:
        part = "" if load is None else f", {percent(saturated / load)} % of the load"
        yield Statement("warning", f"The server was saturated for {duration(saturated)}{part}.")
    else:
        yield Statement("good", "The server was not saturated.")
    for phase in _TROUBLE:
        seconds = phase_seconds(run, phase)
        if seconds:
            yield Statement("warning", f"The server was {phase} for {duration(seconds)}.")
