# SPDX-License-Identifier: Apache-2.0
"""What is counted from the lines of one log, within limits: clients choose some of the names."""

from __future__ import annotations

from collections import Counter

from vllm_watch.daemon.catalog.codes import MAX_ENGINES
from vllm_watch.daemon.state.http_labels import ANY_OTHER
from vllm_watch.daemon.state.kv_totals import KvTotals
from vllm_watch.daemon.state.snapshot import HttpRequestKey
from vllm_watch_parsers.events import AdapterChangeKind, DiffusionDecoding, EngineStats, SpecDecoding


MAX_UNKNOWN_FIELDS = 20
MAX_REQUEST_KEYS = 512


class LogTotals:
    """Adds up what the lines of one log report."""

    def __init__(self) -> None:
        self.requests: Counter[HttpRequestKey] = Counter()
        self.out_of_range: Counter[str] = Counter()
        """Values out of range, by quantity."""
        self.unparsed = 0
        """Lines of statistics that could not be parsed."""
        self.unknown_fields: Counter[str] = Counter()
        self.continuation_lines = self.rejected_lines = 0
        self.dropped = 0
        """Names that were over a limit."""
        self.draft_tokens: dict[str, tuple[int, int]] = {}
        """Tokens accepted and drafted, by engine."""
        self.preemptions: dict[str, int] = {}
        """Preemptions by engine, where lines count them."""
        self.emitted_tokens: dict[str, int] = {}
        """V0's tokens of speculative decoding by engine, since its start."""
        self.diffusion: dict[str, tuple[int, int, int]] = {}
        """A diffusion model's committed tokens, denoising steps and positions of canvases, by engine."""
        self.adapter_changes: Counter[AdapterChangeKind] = Counter()
        """LoRA adapters that were loaded and removed."""
        self.kv = KvTotals()

    def add_request(self, key: HttpRequestKey, count: int) -> None:
        """Count requests of one kind."""
        if key in self.requests or len(self.requests) < MAX_REQUEST_KEYS:
            self.requests[key] += count
        else:
            self.requests[ANY_OTHER] += count
            self.dropped += 1

    def add_unknown_fields(self, names: tuple[str, ...]) -> None:
        """Count the fields of a line that no table has."""
        for name in names:
            if name in self.unknown_fields or len(self.unknown_fields) < MAX_UNKNOWN_FIELDS:
                self.unknown_fields[name] += 1
            else:
                self.dropped += 1

    def add_preemptions(self, engine: str, stats: EngineStats) -> None:
        """Count the preemptions of an interval, which only the Rust front end prints."""
        if stats.is_rust and (engine in self.preemptions or len(self.preemptions) < MAX_ENGINES):
            self.preemptions[engine] = self.preemptions.get(engine, 0) + (stats.preemptions or 0)

    def add_drafts(self, engine: str, spec: SpecDecoding) -> None:
        """Count accepted and drafted tokens: V1 prints those of the interval, V0 all since its start."""
        if engine not in self.draft_tokens and len(self.draft_tokens) >= MAX_ENGINES:
            return
        if spec.accepted_tokens_cumulative is not None and spec.drafted_tokens_cumulative is not None:
            self.draft_tokens[engine] = (spec.accepted_tokens_cumulative, spec.drafted_tokens_cumulative)
            if spec.emitted_tokens_cumulative is not None:
                self.emitted_tokens[engine] = spec.emitted_tokens_cumulative
        elif spec.accepted_tokens is not None and spec.drafted_tokens is not None:
            accepted, drafted = self.draft_tokens.get(engine, (0, 0))
            self.draft_tokens[engine] = (accepted + spec.accepted_tokens, drafted + spec.drafted_tokens)

    def add_diffusion(self, engine: str, line: DiffusionDecoding) -> None:
        """Count what a diffusion model did in an interval."""
        if line.unknown_fields:
            self.add_unknown_fields(line.unknown_fields)
        if engine in self.diffusion or len(self.diffusion) < MAX_ENGINES:
            new = (line.committed_tokens or 0, line.denoising_steps or 0, line.canvas_positions or 0)
            tokens, steps, positions = map(sum, zip(self.diffusion.get(engine, (0, 0, 0)), new, strict=True))
            self.diffusion[engine] = (tokens, steps, positions)
