# SPDX-License-Identifier: Apache-2.0
"""What ran: the server, the hardware, the load, and every flag that is known."""

from __future__ import annotations

from vllm_watch.analysis.loadtest.client_texts import BENCHMARK_KINDS, load_text
from vllm_watch.analysis.loadtest.load_test import Load, Objective, Run
from vllm_watch.analysis.rendering.document import Cells, Column, Table, plain_table
from vllm_watch.daemon.catalog.metric_titles import LATENCY_LABELS
from vllm_watch.daemon.catalog.number_texts import MISSING, count, duration, limit, milliseconds, moment, significant


_FACT_COLUMNS = (Column("", is_text=True), Column("", is_text=True))


def what_ran(run: Run) -> Table:
    """Return what is known of a run besides its flags; a dash where something important is not known."""
    rows: list[Cells] = [("vLLM", run.version or MISSING), ("Model", run.model or MISSING)]
    rows += [(f"Hardware: {name}", value) for name, value in run.hardware.items()] or [("Hardware", MISSING)]
    rows.append(("Time", period(run)))
    rows += [] if run.cost_per_hour is None else [("Cost per hour", limit(run.cost_per_hour))]
    rows += load_rows(run.load)
    objective = run_objective(run)
    if objective is not None:
        rows.append(("Objective", objective_text(objective)))
    rows += [("Source", source) for source in run.source]
    return plain_table("", _FACT_COLUMNS, tuple(rows))


def flags(run: Run) -> Table:
    """Return every flag that is known, by name."""
    columns = (Column("Flag", is_text=True), Column("Value", is_text=True))
    return plain_table("", columns, tuple(sorted(run.config.items())))


def period(run: Run) -> str:
    """Return when a run was, and how long."""
    if run.start is None:
        return MISSING if run.end is None else f"until {moment(run.end)} UTC"
    if run.end is None:
        return f"from {moment(run.start)} UTC"
    return f"{moment(run.start)} to {moment(run.end)} UTC ({duration(run.end - run.start)})"


def run_start(run: Run) -> float:
    """Return when a run's load started, or its first known moment, in seconds since the epoch; 0 if none is known."""
    moments = [each.start for each in run.phases] + list(run.timeline.times[:1])
    moments += [event.at for event in run.events] if not moments else []
    return min(moments, default=0.0) if run.start is None else run.start


def load_rows(load: Load) -> list[Cells]:
    """Return the load, row by row: the most important are always there."""
    known = {
        "Benchmark": None if load.endpoint is None else BENCHMARK_KINDS[load.endpoint],
        "Backend": load.backend,
        "Burstiness": None if load.burstiness is None else significant(load.burstiness),
        "Duration": None if load.duration_s is None else duration(load.duration_s),
        "Requests arrived (1/s)": None if load.offered_request_rate is None else significant(load.offered_request_rate),
        **load.metadata,
    }
    return [
        ("Load", load_text(load) or MISSING),
        ("Requests", count(load.num_prompts)),
        ("Input tokens each", significant(load.mean_input_tokens)),
        ("Output tokens each", significant(load.mean_output_tokens)),
        ("Temperature", significant(load.temperature)),
        *((name, value) for name, value in known.items() if value is not None),
    ]


def run_objective(run: Run) -> Objective | None:
    """Return what a run had to be answered within, if that is known."""
    results = (*((run.result,) if run.result is not None else ()), *run.views)
    return next((result.goodput.objective for result in results if result.goodput is not None), None)


def objective_text(objective: Objective) -> str:
    """Return an objective in words: ``chat: TTFT within 500 ms, TPOT within 50 ms``."""
    limits = [f"{LATENCY_LABELS[name]} within {milliseconds(most)}" for name, most in objective.limits.items()]
    return f"{objective.name}: {', '.join(limits)}"
