# SPDX-License-Identifier: Apache-2.0
"""
Tokens and drafts by the statistics lines of a log, where there is no /metrics.

A line prints tokens per second over the time since the line before it, or, after a pause without lines, over one
interval. So the sum of rate times seconds is what was computed, but for the rounding.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping

from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.state.engine_log import name_of
from vllm_watch_parsers.events import EngineStats, SpecDecoding


_USUAL_INTERVAL = 10.0
_LONGEST_INTERVAL = 60.0
_GAPS = 9
_PAUSE = 1.6
"""A gap of so many intervals is a pause without lines."""

PROMPT_TOKENS_COMPUTED = "prompt_tokens_computed"
GENERATION_TOKENS = "generation_tokens_total"
DRAFTS = "spec_decode_drafts_total"


class LogTokens:
    """Adds up the tokens of one log, over all its engines. `counters` are by the names that points have for them."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._gaps: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=_GAPS))
        self.counters: dict[str, float] = {GENERATION_TOKENS: 0.0, PROMPT_TOKENS_COMPUTED: 0.0}

    @property
    def has_statistics(self) -> bool:
        """Whether there was any line of statistics: without one nothing was counted, and not 0."""
        return bool(self._at)

    def note(self, batch: LogBatch) -> None:
        """Take in the lines of statistics among some lines."""
        for at, event in batch.events:
            if isinstance(event, EngineStats):
                self._note_stats(at, event)
            elif isinstance(event, SpecDecoding):
                self._note_drafts(event)

    def _note_stats(self, at: float, stats: EngineStats) -> None:
        if stats.requests_running is None:
            return  # V0's line of hit ratios.
        seconds = self._covered(name_of(stats), at)
        self._add(
            {
                GENERATION_TOKENS: (stats.generation_tokens_per_second or 0.0) * seconds,
                PROMPT_TOKENS_COMPUTED: (stats.prompt_tokens_per_second or 0.0) * seconds,
            }
        )

    def _covered(self, engine: str, at: float) -> float:
        """Return the seconds that a line's rates are over."""
        last = self._at.get(engine)
        self._at[engine] = at
        gaps = self._gaps[engine]
        gap = at - last if last is not None else 0.0
        if 1 <= gap <= _LONGEST_INTERVAL:
            gaps.append(gap)
        # A line that was read late makes one gap too short: of several the shortest is left out.
        usual = sorted(gaps)[len(gaps) > 2] if gaps else _USUAL_INTERVAL
        return gap if 0 < gap <= _PAUSE * usual else usual

    def _note_drafts(self, spec: SpecDecoding) -> None:
        """Count drafts: each gives one token more than those of it that are accepted."""
        length, accepted = spec.mean_acceptance_length, spec.accepted_tokens
        if length is not None and accepted is not None and length > 1:
            self._add({DRAFTS: accepted / (length - 1)})

    def _add(self, tokens: Mapping[str, float]) -> None:
        for name, value in tokens.items():
            self.counters[name] = self.counters.get(name, 0.0) + value
