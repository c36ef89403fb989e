# SPDX-License-Identifier: Apache-2.0
"""What the server did: during the load, in the steady window, and phase by phase."""

from __future__ import annotations

from collections.abc import Callable

from vllm_watch.loadtest.metric_titles import titled
from vllm_watch.loadtest.model import Distribution, Phase, PhaseName, Run, ServerUse
from vllm_watch.loadtest.number_texts import MISSING, bounded, count, duration, percent, significant
from vllm_watch.rendering.distributions import is_known, quantile_bounds
from vllm_watch.rendering.document import Cells, Column, Table, plain_table
from vllm_watch.rendering.setup import run_start
from vllm_watch.rendering.validity import phase_seconds


MAX_PHASES = 60
"""How many phases a table has; of more, the longest are shown."""

_COUNTS = ("preemptions", "drafted_tokens", "wasted_draft_tokens", "max_running", "max_waiting")
_FIELDS = (
    "prompt_tokens_per_second",
    "generation_tokens_per_second",
    "requests_per_second",
    "offered_requests_per_second",
    "running",
    "max_running",
    "waiting",
    "max_waiting",
    "kv_cache_usage_ratio",
    "max_kv_cache_usage_ratio",
    "preemptions",
    "prefix_cache_hit_ratio",
    "mm_cache_hit_ratio",
    "acceptance_length",
    "drafted_tokens",
    "wasted_draft_tokens",
)
_BATCH_QUANTILES = {"P50": 0.5, "P95": 0.95, "P99": 0.99}


def use_block(run: Run) -> Table:
    """Return what the server did during the load, and in the steady window if there is one."""
    uses = {"whole load": run.use, **({} if run.steady is None else {"steady window": run.steady.use})}
    uses = {name: use for name, use in uses.items() if use != ServerUse()}
    rows = [(titled(name), *(_field(use, name) for use in uses.values())) for name in _FIELDS]
    rows += [("Accepted by position (%)", *(positions(use) for use in uses.values()))]
    rows += [("Wasted drafts (%)", *(wasted(use) for use in uses.values()))]
    rows += [
        (f"Batch size {label} (tokens)", *(_batch(use, at) for use in uses.values()))
        for label, at in _BATCH_QUANTILES.items()
    ]
    columns = (Column("", is_text=True), *(Column("Server", name) for name in uses))
    return plain_table("", columns, tuple(row for row in rows if set(row[1:]) - {MISSING}))


def phase_totals(run: Run) -> Table:
    """Return how long the run was in each phase."""
    whole = sum(each.end - each.start for each in run.phases)
    names: list[PhaseName] = list(dict.fromkeys(each.phase for each in run.phases))
    rows = [
        (name, duration(phase_seconds(run, name)), percent(phase_seconds(run, name) / whole) if whole else MISSING)
        for name in names
    ]
    return plain_table("", (Column("Phase", is_text=True), Column("Time"), Column("Share", "%")), tuple(rows))


def phase_tables(run: Run, limit: int = MAX_PHASES) -> tuple[Table, ...]:
    """Return the phases with their numbers: load first, then caches and drafts, then batch sizes, as far as known."""
    shown = _longest(run.phases, limit)
    left_out = len(run.phases) - len(shown)
    notes: tuple[str, ...] = ("Times are since the start of the load.",)
    notes += (f"{left_out} shorter phases are left out.",) if left_out else ()
    load = _phase_table(run, shown, "The load of each phase", _LOAD_COLUMNS)
    rest = [_phase_table(run, shown, caption, columns) for caption, columns in _MORE_COLUMNS]
    return (load._replace(notes=notes), *(table for table in rest if not table.is_empty)) if shown else ()


def positions(use: ServerUse) -> str:
    """Return which share of the drafts was accepted, by position: ``91.0, 85.2``."""
    return ", ".join(percent(ratio) for ratio in use.position_acceptance) or MISSING


def wasted(use: ServerUse) -> str:
    """Return which share of the drafted tokens was rejected, as per cent."""
    if not use.drafted_tokens or use.wasted_draft_tokens is None:
        return MISSING
    return percent(use.wasted_draft_tokens / use.drafted_tokens)


def _field(use: ServerUse, name: str) -> str:
    value: float | None = getattr(use, name)
    if name.endswith("_ratio"):
        return percent(value)
    return count(value) if name in _COUNTS else significant(value)


def _batch(use: ServerUse, quantile: float) -> str:
    return MISSING if use.batch_size is None else bounded(quantile_bounds(use.batch_size, quantile))


def _steps(distribution: Distribution | None) -> str:
    return MISSING if distribution is None or not is_known(distribution) else count(sum(distribution.counts))


_Show = Callable[[ServerUse], str]
_PhaseColumns = tuple[tuple[Column, _Show], ...]


def _shown(name: str) -> _Show:
    return lambda use: _field(use, name)


def _batch_shown(quantile: float) -> _Show:
    return lambda use: _batch(use, quantile)


_LOAD_COLUMNS: _PhaseColumns = (
    (Column("Prompts", "tokens/s"), _shown("prompt_tokens_per_second")),
    (Column("Output", "tokens/s"), _shown("generation_tokens_per_second")),
    (Column("Running"), _shown("running")),
    (Column("Waiting"), _shown("waiting")),
    (Column("KV", "%"), _shown("kv_cache_usage_ratio")),
)
_MORE_COLUMNS: tuple[tuple[str, _PhaseColumns], ...] = (
    (
        "Caches of each phase",
        (
            (Column("Preemptions"), _shown("preemptions")),
            (Column("Prefix hits", "%"), _shown("prefix_cache_hit_ratio")),
            (Column("Multimodal hits", "%"), _shown("mm_cache_hit_ratio")),
        ),
    ),
    (
        "Drafts of each phase",
        (
            (Column("Acceptance", "tokens"), _shown("acceptance_length")),
            (Column("Wasted", "%"), wasted),
            (Column("Accepted by position", "%", is_text=True), positions),
        ),
    ),
    (
        "Batch sizes of each phase, in tokens",
        (
            (Column("Steps"), lambda use: _steps(use.batch_size)),
            *((Column(label), _batch_shown(at)) for label, at in _BATCH_QUANTILES.items()),
        ),
    ),
)


def _phase_table(run: Run, phases: tuple[Phase, ...], caption: str, columns: _PhaseColumns) -> Table:
    """Return a table of phases: all of them with their load, else those of which there is a number."""
    start = run_start(run)
    if columns is not _LOAD_COLUMNS:
        columns = tuple(each for each in columns if any(each[1](phase.result) != MISSING for phase in phases))
    heads = (Column("Phase", is_text=True), Column("From"), Column("For"), *(column for column, _ in columns))
    rows: list[Cells] = [
        (
            each.phase,
            duration(each.start - start),
            duration(each.end - each.start),
            *(show(each.result) for _, show in columns),
        )
        for each in phases
    ]
    known = rows if columns is _LOAD_COLUMNS else [row for row in rows if set(row[3:]) - {MISSING}]
    return plain_table(caption, heads, tuple(known))


def _longest(phases: tuple[Phase, ...], limit: int) -> tuple[Phase, ...]:
    """Return the longest phases, in order of time."""
    longest = sorted(phases, key=lambda each: each.start - each.end)[:limit]
    return tuple(sorted(longest, key=lambda each: each.start))
