# SPDX-License-Identifier: Apache-2.0
"""What the server did, during the load, in the steady window and phase by phase, and how much it can carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from vllm_watch import __version__
from vllm_watch.analysis.loadtest.load_test import (
    Capacity,
    Demand,
    Memory,
    Plan,
    Report,
    Run,
    ServerUse,
)
from vllm_watch.analysis.loadtest.planning import PLANNED, NoCapacityError, shared_capacity, why_unknown
from vllm_watch.analysis.rendering.document import (
    Block,
    Column,
    Paragraph,
    Table,
    known_table,
    plain_table,
    said_columns,
)
from vllm_watch.analysis.rendering.run_facts import objective_text, phase_text, run_start
from vllm_watch.daemon.catalog.language import N_, _, full_stop, listed, sentences
from vllm_watch.daemon.catalog.metric_titles import titled
from vllm_watch.daemon.catalog.number_texts import MISSING, count, limit, percent, significant, spread
from vllm_watch.daemon.support.printable import printable


MAX_PHASES = 60
"""How many phases a table has; of more, the longest are shown."""

_BASES = {
    "saturated": N_("the server was saturated"),
    "curve": N_("fitted to tokens per second by running requests"),
    "bench": N_("load tests"),
}

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
_PHASE_COLUMNS: Mapping[str, Column] = {
    "prompt_tokens_per_second": Column(N_("Prompts")),
    "generation_tokens_per_second": Column(N_("Output")),
    "running": Column(N_("Running")),
    "waiting": Column(N_("Waiting")),
    "kv_cache_usage_ratio": Column("KV", "%"),
    "acceptance_length": Column(N_("Accepted"), "tokens"),
}
_STOPS = ".\N{IDEOGRAPHIC FULL STOP}"
_ALWAYS_SHOWN = 8
"""The columns of a phase that are there in any case; the others if they are known of any."""


def use_block(run: Run) -> Table:
    """Return what the server did during the load, and in the steady window if there is one."""
    uses = {_("whole load"): run.use, **({} if run.steady is None else {_("steady window"): run.steady.use})}
    uses = {name: use for name, use in uses.items() if use != ServerUse()}
    rows = [(titled(name), *(_field(use, name) for use in uses.values())) for name in _FIELDS]
    rows += [(_("Accepted by position (%)"), *(positions(use) for use in uses.values()))]
    rows += [(_("Wasted drafts (%)"), *(wasted(use) for use in uses.values()))]
    columns = (Column("", is_text=True), *(Column(_("Server"), name) for name in uses))
    return plain_table("", columns, tuple(row for row in rows if set(row[1:]) - {MISSING}))


def phase_table(run: Run, most: int = MAX_PHASES) -> Table:
    """Return the longest phases with their numbers, in order of time; of caches and drafts what there is."""
    shown = sorted(sorted(enumerate(run.phases, start=1), key=lambda each: each[1].start - each[1].end)[:most])
    start = run_start(run)
    texts = [
        (
            f"{number} {phase_text(phase.phase)}",
            f"{round(phase.start - start, 1) + 0.0:,.1f}",
            f"{phase.end - phase.start:,.1f}",
            *(_field(phase.result, name) for name in _PHASE_COLUMNS),
        )
        for number, phase in shown
    ]
    columns = (
        Column(_("Phase"), is_text=True),
        Column(_("From"), "s"),
        Column(_("For"), "s"),
        *said_columns(_PHASE_COLUMNS.values()),
    )
    left_out = len(run.phases) - len(shown)
    notes: tuple[str, ...] = (_("From: since the load's start. Prompts and output: tokens/s."),)
    notes += (_("{count} shorter phases are left out.", count=left_out),) if left_out else ()
    return known_table(_("The load of each phase"), columns, texts, _ALWAYS_SHOWN)._replace(notes=notes)


def positions(use: ServerUse) -> str:
    """Return which share of the drafts was accepted, by position: ``91.0, 85.2``."""
    return listed(percent(ratio) for ratio in use.position_acceptance) or MISSING


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


def common_capacity(runs: Sequence[Run]) -> str:
    """Return what is said of the maximum of several runs if it is the same of all, as of loads of one server."""
    texts = {capacity_text(run) for run in runs} if len(runs) > 1 else set[str]()
    return texts.pop() if len(texts) == 1 else ""


def capacity_blocks(run: Run) -> tuple[Block, ...]:
    """Return the sustained maximum with the band to plan with, the memory, and the rates."""
    use = run.use if run.steady is None else run.steady.use
    names = (_("Requests offered in the steady window (1/s)"), _("Requests served in the steady window (1/s)"))
    if run.steady is None:
        names = (_("Requests offered (1/s)"), _("Requests served (1/s)"))
    offered = use.offered_requests_per_second
    rows = [
        *(() if run.capacity is None else _maximum(run.capacity, run.gpus)),
        *(() if run.memory is None else _memory(run.memory, is_cpu=run.hardware.get("device") == "cpu")),
        (names[0], significant(run.load.offered_request_rate if offered is None else offered)),
        (names[1], significant(use.requests_per_second)),
    ]
    known = tuple(row for row in rows if row[1] != MISSING)
    table = plain_table("", (Column("", is_text=True), Column("")), known)
    return (Paragraph(capacity_text(run)), table)


def capacity_text(run: Run) -> str:
    """Return how the maximum was determined, or why it is not known."""
    if run.capacity is None:
        return why_unknown(run)
    return _(
        "Determined by: {basis}. {explanation}",
        basis=_(_BASES[run.capacity.basis]),
        explanation=sentence(run.capacity.explanation),
    )


def _maximum(capacity: Capacity, gpus: int | None) -> Iterator[tuple[str, str]]:
    value, prompts = capacity.tokens_per_second, capacity.prompt_tokens_per_second
    planned = [capacity.low * part for part in PLANNED]
    yield _("Carries at least (output tokens/s)"), significant(capacity.low)
    yield _("most likely (output tokens/s)"), significant(value)
    yield _("between (output tokens/s)"), spread(capacity.low, capacity.high)
    if prompts is not None:
        at_least = prompts * capacity.low / value
        yield _("computed prompt tokens/s with at least that output"), significant(at_least)
        yield _("both together, at least (tokens/s)"), significant(capacity.low + at_least)
    yield _("plan with 70 to 85 % of at least, a server (output tokens/s)"), spread(*planned)
    if gpus is not None and gpus > 1:
        yield (
            _("the same for each of {gpus} GPUs (output tokens/s)", gpus=gpus),
            spread(*(each / gpus for each in planned)),
        )


def _memory(memory: Memory, *, is_cpu: bool) -> Iterator[tuple[str, str]]:
    part = "worker" if is_cpu else "GPU"
    yield _("Weights on each {part} (GiB)", part=part), significant(memory.weights_gib)
    yield _("KV cache on each {part} (GiB)", part=part), significant(memory.kv_cache_gib)
    by_token = memory.kv_bytes_per_token
    yield (
        _("a token's KV cache on each {part} (KiB)", part=part),
        significant(None if by_token is None else by_token / 1024),
    )
    yield _("KV cache of all engines (tokens)"), count(memory.kv_cache_tokens)
    for room in memory.room:
        yield (
            _("room for requests of {tokens} tokens without a common prefix", tokens=count(room.tokens)),
            count(room.requests),
        )


def plan_blocks(plan: Plan | None) -> tuple[Paragraph, ...]:
    """Return how many servers what was asked for needs, or why that is not known, and what one server carries."""
    if plan is None:
        return ()
    texts = [] if plan.demand is None else [_("{name}: {text}", name=_asked(plan.demand), text=_needed(plan))]
    if plan.low is not None and plan.high is not None:
        texts.append(_carried(plan, plan.low, plan.high))
    return tuple(map(Paragraph, texts))


def _asked(demand: Demand) -> str:
    if demand.users is None:
        return _("{rate} output tokens/s", rate=limit(demand.tokens_per_second or 0.0))
    return _("1 user") if demand.users == 1 else _("{count} users", count=limit(demand.users))


def _servers(least: float, most: float) -> str:
    return _("1 server") if most == 1 else _("{count} servers", count=spread(least, most))


def _gpus(least: float, most: float) -> str:
    return _("1 GPU") if most == 1 else _("{count} GPUs", count=spread(least, most))


def _needed(plan: Plan) -> str:
    least, most, gpus = plan.servers_low, plan.servers_high, plan.gpus
    if plan.problem is not None or least is None or most is None:
        return plan.problem or ""
    if not gpus:
        text = _("plan {servers}.", servers=_servers(least, most))
        why = _("How many GPUs each has is not known: neither its command line nor the log of its start is there.")
        return text if gpus == 0 else sentences([text, why])
    return _("plan {servers}, {gpus}.", servers=_servers(least, most), gpus=_gpus(least * gpus, most * gpus))


def _carried(plan: Plan, low: float, high: float) -> str:
    rate = spread(low, high)
    text = _("Plan a server with {rate} output tokens/s", rate=rate)
    if plan.gpus:
        text = _("Plan a server ({gpus}) with {rate} output tokens/s", gpus=_gpus(plan.gpus, plan.gpus), rate=rate)
    if plan.objective is not None:
        objective = objective_text(plan.objective)
        text = _("{text} within the objective ({objective})", text=text, objective=objective)
    if plan.users_low is None:
        return full_stop(text)
    return _(
        "{text}: {users} users at once who have {rate} tokens/s each, as in {load}. How long users think between two "
        "requests is not known: with pauses there may be more.",
        text=text,
        users=spread(plan.users_low, plan.users_high),
        rate=significant(plan.user_tokens_per_second),
        load=plan.run or _("this load"),
    )


def sentence(text: str) -> str:
    """Return a clause as a sentence."""
    return full_stop(f"{text[:1].upper()}{text[1:].rstrip(_STOPS)}") if text.strip() else ""


def capacity_yaml(report: Report) -> str:
    """
    Return the value of the key `capacity`, for a file of its own or to be pasted.

    Raises:
        NoCapacityError: The runs show none, or several, or one that is only estimated.
    """
    capacity = shared_capacity(report.runs)
    if capacity.basis == "curve":
        raise NoCapacityError("the maximum is only estimated by a curve, which the daemon does itself")
    run = next(run for run in report.runs if run.capacity == capacity)
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


def _decimal(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
