# SPDX-License-Identifier: Apache-2.0
"""Latencies against their objectives, and accepted drafts by position."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_watch.cli.terminal.cells import Cells
from vllm_watch.cli.terminal.lines import Line, Span, line
from vllm_watch.cli.terminal.model import STAGE_NAMES, EngineView, Latency, LatencyLevel, Stage
from vllm_watch.cli.terminal.pieces import is_in_seconds, latency_piece, ratio_bar
from vllm_watch.daemon.state.snapshot import Reading


LATENCY_WIDTH = 50
"""Columns of the table of latencies."""

_LEVELS: tuple[LatencyLevel, ...] = ("p50", "p95", "p99")
_LABEL = 16
_CELL = 8
_OBJECTIVE = 10
_DRAFT_LABEL = 8
_DRAFT_PERCENT = 7
_HITS_LABEL = 11
_ALWAYS_SHOWN: frozenset[Stage] = frozenset({"time_to_first_token", "time_per_output_token", "inter_token"})


def latency_lines(latencies: Sequence[Latency], cells: Cells, *, every: bool) -> list[Line]:
    """
    Return the latencies of the last minute, in milliseconds; a stage that takes long in seconds.

    Args:
        latencies: One for each stage.
        cells: What writes cells.
        every: Whether to show all stages that are known, not only what users feel.
    """
    levels = "".join(f"{level} ".rjust(_CELL) for level in _LEVELS)
    head = Span(f"{'ms, last minute'.ljust(_LABEL)}{levels}{'objective'.rjust(_OBJECTIVE)}", "head")
    return [
        line(head),
        *(_latency(each, cells) for each in latencies if each.stage in _ALWAYS_SHOWN or (every and _is_known(each))),
    ]


def draft_lines(engine: EngineView, width: int, cells: Cells) -> list[Line]:
    """Return how many tokens of its drafts an engine accepts; nothing if it drafts none."""
    length, drafted = engine.spec_decode_mean_acceptance_length, engine.num_speculative_tokens
    if length is None and drafted is None and not engine.position_acceptance:
        return []
    # Each step gives one token more than it accepts of its draft.
    most = f" of {cells.count(drafted + 1)}" if drafted is not None else ""
    known = cells.number(length.value if length is not None else None)
    lines = [line(Span(cells.fit(f"tokens a step {known}{most}", width), "head"))]
    for position, ratio in enumerate(engine.position_acceptance, 1):
        label = f"draft {position}"
        bar = max(width - _DRAFT_LABEL - _DRAFT_PERCENT - 1, 1)
        lines.append(
            line(
                Span(label.ljust(_DRAFT_LABEL), "label"),
                ratio_bar(ratio, bar, cells, fills=False),
                f"{cells.percent(ratio).rjust(_DRAFT_PERCENT - 1)} %",
            )
        )
    return lines


def hits_line(engine: EngineView, cells: Cells) -> Line:
    """Return how much of the prompts the caches had, in per cent."""
    caches = (
        ("prefix", engine.prefix_cache_hit_ratio),
        ("external", engine.external_prefix_cache_hit_ratio),
        ("multimodal", engine.mm_cache_hit_ratio),
    )
    pieces = [piece for name, reading in caches for piece in _hits(name, reading, cells)]
    prompt = {True: "not in prompt tok/s", False: "also in prompt tok/s", None: ""}[engine.prompt_excludes_cached]
    return line(Span("cache hits".ljust(_HITS_LABEL), "label"), *pieces, Span(prompt, "dim"))


def _hits(name: str, reading: Reading | None, cells: Cells) -> list[Span]:
    value = reading.value if reading is not None else None
    return [
        Span(f"{name} "),
        Span(f"{cells.percent(value)} %" if value is not None else cells.glyphs.dash, "strong"),
        Span("   "),
    ]


def _latency(latency: Latency, cells: Cells) -> Line:
    in_seconds = is_in_seconds(*(getattr(latency, level) for level in _LEVELS))
    pieces = [latency_piece(latency, level, cells, in_seconds=in_seconds) for level in _LEVELS]
    objective = cells.latency(latency.objective, in_seconds=in_seconds)
    return line(
        Span(STAGE_NAMES[latency.stage].ljust(_LABEL), "label"),
        *(Span(piece.text.rjust(_CELL), piece.role) for piece in pieces),
        Span(objective.rjust(_OBJECTIVE), "label"),
    )


def _is_known(latency: Latency) -> bool:
    return latency.mean is not None or latency.p50 is not None
