# SPDX-License-Identifier: Apache-2.0
"""What a reader must know before any number of a run: did it work, was it steady, was the server saturated."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_watch.loadtest.model import PhaseName, Run
from vllm_watch.loadtest.number_texts import count, duration, significant
from vllm_watch.rendering.document import Statement


_TROUBLE: tuple[PhaseName, ...] = ("stalled", "down")


def validity(run: Run) -> tuple[Statement, ...]:
    """Return the sentences, the most important first, the run's own warnings and notes last."""
    warnings = (Statement("warning", text) for text in run.warnings)
    notes = (Statement("note", text) for text in run.notes)
    return (*_requests(run), *_steadiness(run), *_phases(run), *warnings, *notes)


def phase_seconds(run: Run, phase: PhaseName) -> float:
    """Return how long a run was in a phase, in seconds."""
    return sum(each.end - each.start for each in run.phases if each.phase == phase)


def _requests(run: Run) -> Iterator[Statement]:
    successful = None if run.result is None else run.result.successful
    failed = None if run.result is None else run.result.failed
    if successful is None:
        yield Statement("unknown", "How many requests succeeded is not known.")
    elif failed is None:
        yield Statement("unknown", f"{count(successful)} requests succeeded. How many failed is not known.")
    elif failed:
        share = significant(100 * failed / (successful + failed))
        yield Statement("warning", f"{count(failed)} of {count(successful + failed)} requests failed ({share} %).")
    elif successful:
        yield Statement("good", f"All {count(successful)} requests succeeded.")
    else:
        yield Statement("warning", "No request was counted.")


def _steadiness(run: Run) -> Iterator[Statement]:
    steady = run.steady
    if steady is None:
        yield Statement("unknown", "No steady window is known: the numbers include the start and the end of the load.")
    elif steady.problem is not None:
        yield Statement("warning", f"The steady window says little: {steady.problem.rstrip('.')}.")
    else:
        found = f"The load was steady for {duration(steady.end - steady.start)} (found by {steady.method.rstrip('.')})."
        yield Statement("good", found)


def _phases(run: Run) -> Iterator[Statement]:
    if not run.phases:
        yield Statement("unknown", "Whether the server was saturated is not known.")
        return
    saturated = phase_seconds(run, "saturated")
    if saturated:
        whole = sum(each.end - each.start for each in run.phases)
        yield Statement("warning", f"The server was saturated for {duration(saturated)} of {duration(whole)}.")
    else:
        yield Statement("good", "The server was not saturated.")
    for phase in _TROUBLE:
        seconds = phase_seconds(run, phase)
        if seconds:
            yield Statement("warning", f"The server was {phase} for {duration(seconds)}.")
