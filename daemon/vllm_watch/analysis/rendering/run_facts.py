# SPDX-License-Identifier: Apache-2.0
"""What ran, and whether its numbers count: the load and every flag, then failures, steadiness and saturation."""

from __future__ import annotations

import re

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile

from vllm_watch.analysis.loadtest.client_texts import BENCHMARK_KINDS, load_text
from vllm_watch.analysis.loadtest.load_test import Load, Objective, PhaseName, Run
from vllm_watch.analysis.loadtest.offered_load import is_saturated, served_share
from vllm_watch.analysis.loadtest.planning import run_objective
from vllm_watch.analysis.loadtest.run_capacity import UNKNOWN
from vllm_watch.analysis.rendering.document import Cells, Column, Statement, Table, plain_table
from vllm_watch.daemon.catalog.language import N_, _, listed
from vllm_watch.daemon.catalog.metric_titles import LATENCY_LABELS
from vllm_watch.daemon.catalog.number_texts import (
    MISSING,
    count,
    duration,
    limit,
    milliseconds,
    moment,
    percent,
    significant,
)


_FACT_COLUMNS = (Column("", is_text=True), Column("", is_text=True))


def what_ran(run: Run) -> Table:
    """Return what is known of a run besides its flags; a dash where something important is not known."""
    rows: list[Cells] = [("vLLM", run.version or MISSING), (_("Model"), run.model or MISSING)]
    rows += [(_("Hardware: {name}", name=name), value) for name, value in run.hardware.items()] or [
        (_("Hardware"), MISSING)
    ]
    rows.append((_("Time"), period(run)))
    rows += [] if run.cost_per_hour is None else [(_("Cost per hour"), limit(run.cost_per_hour))]
    rows += load_rows(run.load)
    objective = run_objective(run)
    if objective is not None:
        rows.append((_("Objective"), objective_text(objective)))
    rows += [(_("Source"), source) for source in run.source]
    return plain_table("", _FACT_COLUMNS, tuple(rows))


def flags(run: Run) -> Table:
    """Return every flag that is known, by name."""
    columns = (Column(_("Flag"), is_text=True), Column(_("Value"), is_text=True))
    return plain_table("", columns, tuple(sorted(run.config.items())))


def period(run: Run) -> str:
    """Return when a run was, and how long."""
    if run.start is None:
        return MISSING if run.end is None else _("until {end} UTC", end=moment(run.end))
    if run.end is None:
        return _("from {start} UTC", start=moment(run.start))
    return _(
        "{start} to {end} UTC ({time})",
        start=moment(run.start),
        end=moment(run.end),
        time=duration(run.end - run.start),
    )


def run_start(run: Run) -> float:
    """Return when a run's load started, or its first known moment, in seconds since the epoch; 0 if none is known."""
    moments = [each.start for each in run.phases] + list(run.timeline.times[:1])
    moments += [event.at for event in run.events] if not moments else []
    return min(moments, default=0.0) if run.start is None else run.start


def load_rows(load: Load) -> list[Cells]:
    """Return the load, row by row: the most important are always there."""
    known = {
        _("Benchmark"): None if load.endpoint is None else _(BENCHMARK_KINDS[load.endpoint]),
        _("Backend"): load.backend,
        _("Burstiness"): None if load.burstiness is None else significant(load.burstiness),
        _("Duration"): None if load.duration_s is None else duration(load.duration_s),
        _("Requests arrived (1/s)"): None
        if load.offered_request_rate is None
        else significant(load.offered_request_rate),
        **load.metadata,
    }
    return [
        (_("Load"), load_text(load) or MISSING),
        (_("Requests"), count(load.num_prompts)),
        (_("Input tokens each"), significant(load.mean_input_tokens)),
        (_("Output tokens each"), significant(load.mean_output_tokens)),
        (_("Temperature"), significant(load.temperature)),
        *((name, value) for name, value in known.items() if value is not None),
    ]


def objective_text(objective: Objective) -> str:
    """Return an objective in words: ``chat: TTFT within 500 ms, TPOT within 50 ms``."""
    limits = [
        _("{name} within {most}", name=_(LATENCY_LABELS[name]), most=milliseconds(most))
        for name, most in objective.limits.items()
    ]
    return _("{name}: {text}", name=objective.name, text=listed(limits))


_PHASES: Mapping[str, str] = {
    "starting": N_("starting"),
    "idle": N_("idle"),
    "ramp": N_("ramp"),
    "steady": N_("steady"),
    "saturated": N_("saturated"),
    "stalled": N_("stalled"),
    "down": N_("down"),
    "unknown": N_("unknown"),
}


def phase_text(phase: str) -> str:
    """Return what a phase is called."""
    return _(_PHASES[phase])


def short_names(names: Sequence[str]) -> list[str]:
    """Return names without what all begin with, and without the parts of paths that all end with: ``bench1``."""
    if len(set(names)) < 2:
        return list(names)
    parts = [re.split("(?<=/)|(?<=: )", name) for name in names]
    start = _alike(parts)
    end = _alike([each[start:][::-1] for each in parts])
    short = ["".join(each[start : len(each) - end]).rstrip("/") for each in parts]
    return short if all(short) else list(names)


def _alike(parts: Sequence[Sequence[str]]) -> int:
    return sum(1 for _same in takewhile(lambda each: len(set(each)) == 1, zip(*parts, strict=False)))


def validity(run: Run) -> tuple[Statement, ...]:
    """Return the sentences, the most important first, the run's own warnings and notes last."""
    warnings = (Statement("warning", text) for text in run.warnings)
    # Why the maximum is not known is said beside it.
    notes = (Statement("note", text) for text in run.notes if not text.startswith(_(UNKNOWN)))
    return (*_requests(run), *_steadiness(run), *_phases(run), *_energy(run), *warnings, *notes)


def load_seconds(run: Run) -> float | None:
    """Return how long a run's load lasted, in seconds; `None` if that is not known."""
    return None if run.start is None or run.end is None or run.end <= run.start else run.end - run.start


def seconds_of_load(run: Run, phase: PhaseName) -> float:
    """Return how long a run was in a phase during its load, in seconds; all of the phase if that is not known."""
    if run.start is None or run.end is None:
        return sum(each.end - each.start for each in run.phases if each.phase == phase)
    parts = (min(each.end, run.end) - max(each.start, run.start) for each in run.phases if each.phase == phase)
    return sum(max(part, 0.0) for part in parts)


def _requests(run: Run) -> Iterator[Statement]:
    successful = None if run.result is None else run.result.successful
    failed = None if run.result is None else run.result.failed
    if successful is None:
        yield Statement("unknown", _("How many requests succeeded is not known."))
    elif failed is None:
        yield Statement(
            "unknown", _("{count} requests succeeded. How many failed is not known.", count=count(successful))
        )
    elif not failed and not successful:
        yield Statement("warning", _("No request was counted."))


def _steadiness(run: Run) -> Iterator[Statement]:
    steady = run.steady
    if steady is None:
        yield Statement(
            "unknown",
            _(
                "No steady window is known: the numbers include the start and the end of the load.",
            ),
        )
    elif steady.problem is not None:
        yield Statement("warning", _("The steady window says little ({problem}).", problem=_clause(steady.problem)))
    else:
        found = _(
            "The load was steady for {time} (found by {method}).",
            time=duration(steady.end - steady.start),
            method=_clause(steady.method),
        )
        yield Statement("good", found)


def _energy(run: Run) -> Iterator[Statement]:
    if run.energy_problem is not None:
        yield Statement("unknown", _("The energy of the GPUs is not known: {problem}.", problem=run.energy_problem))


def _phases(run: Run) -> Iterator[Statement]:
    if not run.phases:
        yield _by_rate(run)
        return
    saturated, load = seconds_of_load(run, "saturated"), load_seconds(run)
    if saturated:
        text = _("The server was saturated for {time}.", time=duration(saturated))
        if load is not None:
            of_load = N_("The server was saturated for {time}, {share} % of the load.")
            text = _(of_load, time=duration(saturated), share=percent(saturated / load))
        yield Statement("warning", text)


def _clause(text: str) -> str:
    return text.rstrip(".\N{IDEOGRAPHIC FULL STOP}")


def _by_rate(run: Run) -> Statement:
    is_full, served = is_saturated(run, run.result), served_share(run, run.result)
    if is_full is None or served is None:
        return Statement("unknown", _("Whether the server was saturated is not known."))
    if is_full:
        return Statement(
            "warning", _("The server was saturated: it served {served} % of the rate.", served=percent(served))
        )
    return Statement("good", _("The server kept up with the rate: it served {served} % of it.", served=percent(served)))
