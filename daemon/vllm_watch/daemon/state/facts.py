# SPDX-License-Identifier: Apache-2.0
"""What a server reported about itself when it started: valid until it starts again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from vllm_watch.daemon.catalog.codes import MAX_ENGINES
from vllm_watch_parsers.events import AGGREGATED, StartupDetail, StartupFact
from vllm_watch_parsers.exposition import DEFAULT_ENGINE
from vllm_watch_parsers.flags import FLAG_TEXT


Size = TypeVar("Size", int, float)

# What a checkpoint may hold: more than any server has, and little enough to be shown.
Text = Annotated[str, msgspec.Meta(pattern=FLAG_TEXT)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class EngineFacts(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """
    What one engine reported.

    Several workers may print their own: of the KV cache the smallest is the one that counts, of weights and times the
    greatest. Sizes of memory are those of one worker.
    """

    kv_cache_tokens: Count | None = None
    max_concurrency: Amount | None = None
    kv_cache_memory_gib: Amount | None = None
    model_load_gib: Amount | None = None
    model_load_seconds: Amount | None = None
    weights_load_seconds: Amount | None = None
    compile_seconds: Amount | None = None
    graph_capture_seconds: Amount | None = None
    engine_init_seconds: Amount | None = None

    def learn(self, fact: StartupFact) -> None:
        """Take in one line."""
        for name, deciding in _DECIDING.items():
            values = [value for value in (getattr(self, name), getattr(fact, name)) if value is not None]
            setattr(self, name, deciding(values, default=None))

    def completed_by(self, other: EngineFacts) -> EngineFacts:
        """Return these with those of another engine that they lack."""
        values = {name: getattr(self, name) for name in _DECIDING}
        return EngineFacts(**{name: getattr(other, name) if value is None else value for name, value in values.items()})

    @property
    def startup_seconds(self) -> dict[str, float]:
        """How long the phases of the start took that are known."""
        phases = {
            "load": self.model_load_seconds,
            "weights": self.weights_load_seconds,
            "compile": self.compile_seconds,
            "graphs": self.graph_capture_seconds,
            "init": self.engine_init_seconds,
        }
        return {phase: seconds for phase, seconds in phases.items() if seconds is not None}


_DECIDING: dict[str, Callable[..., Any]] = {
    name: min if name in {"kv_cache_tokens", "max_concurrency", "kv_cache_memory_gib"} else max
    for name in EngineFacts.__struct_fields__
}
"""Which of several values of a fact counts."""


class Facts(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """The facts of one server's present life by its log."""

    version: Text | None = None
    engine_generation: Text | None = None
    model: Text | None = None
    served_model_name: Text | None = None
    max_model_len: Count | None = None
    max_num_seqs: Count | None = None
    tensor_parallel_size: Count | None = None
    data_parallel_size: Count | None = None
    api_server_count: Count | None = None
    num_speculative_tokens: Count | None = None
    block_size: Count | None = None
    num_gpu_blocks: Count | None = None
    log_stats_disabled: bool = False
    engines: Annotated[dict[Text, EngineFacts], msgspec.Meta(max_length=MAX_ENGINES)] = {}
    _max_model_len_is_final: bool = False
    _ranked: Annotated[set[Text], msgspec.Meta(max_length=MAX_ENGINES)] = msgspec.field(default_factory=set)
    """The engines whose processes print their rank; their workers may not."""
    _reports_alone: bool = False
    """Whether an engine's configuration has no other engine; that of a dense model never has."""

    @property
    def model_name(self) -> str:
        """The name that clients use, or nothing if the log does not have it."""
        return self.served_model_name or self.model or ""

    def learn(self, fact: StartupFact) -> None:
        """Take in one line."""
        self._learn_first(fact)
        self._learn_max_model_len(fact)
        if fact.num_gpu_blocks is not None:
            self.num_gpu_blocks = fact.num_gpu_blocks
        if fact.log_stats_disabled:
            self.log_stats_disabled = True
        self._learn_data_parallel_size(fact)
        self._learn_of_engine(fact)

    def learn_detail(self, detail: StartupDetail) -> None:
        """Take in a line with a detail."""
        if detail.compile_seconds is not None:
            self._learn_of_engine(StartupFact(engine=detail.engine, compile_seconds=detail.compile_seconds))

    def _learn_of_engine(self, fact: StartupFact) -> None:
        if any(getattr(fact, name) is not None for name in _DECIDING):
            engine = fact.engine or DEFAULT_ENGINE
            if engine in self.engines or len(self.engines) < MAX_ENGINES:
                self.engines.setdefault(engine, EngineFacts()).learn(fact)
                self._ranked.update(() if fact.engine is None else {engine})

    def _learn_first(self, fact: StartupFact) -> None:
        """Keep the first value: a draft model's lines look like the main model's and come after them."""
        for name in _FIRST_COUNTS:
            if getattr(self, name) is None:
                setattr(self, name, getattr(fact, name))

    def _learn_data_parallel_size(self, fact: StartupFact) -> None:
        size = fact.data_parallel_size
        if size == 1 and fact.engine_generation is not None:
            self._reports_alone = True
        elif size is not None and self.data_parallel_size is None:
            self.data_parallel_size = size

    def _learn_max_model_len(self, fact: StartupFact) -> None:
        length = fact.max_model_len
        # The engine's own configuration and the line on concurrency are final; the rest are steps on the way.
        is_final = fact.engine_generation is not None or fact.max_concurrency is not None
        if length is not None and (is_final or self.max_model_len is None) and not self._max_model_len_is_final:
            self.max_model_len = length
            self._max_model_len_is_final = is_final

    @property
    def lone_engine(self) -> str | None:
        """The only engine, or `None` if there are several, or none is known."""
        is_lone = self.data_parallel_size in {None, 1} and len(self.engines) == 1
        return next(iter(self.engines)) if is_lone else None

    def is_believed_alone(self) -> bool:
        """Whether an engine has reported that there is no other, and no other is known."""
        return self._reports_alone and len(self.engines) <= 1

    def of_engine(self, engine: str) -> EngineFacts | None:
        """
        Return what an engine reported, or all of them together where lines are about all engines.

        Sizes are added up only if every engine has reported its own: some may print into another node's log.
        """
        if self._ranked == {engine} and engine != DEFAULT_ENGINE and DEFAULT_ENGINE in self.engines:
            return self.engines[engine].completed_by(self.engines[DEFAULT_ENGINE])  # What its workers reported.
        if engine != AGGREGATED or engine in self.engines:
            return self.engines.get(engine)
        every = list(self.engines.values())
        if not every or (self.data_parallel_size or len(every)) != len(every):
            return None
        values = {name: [getattr(facts, name) for facts in every] for name in _DECIDING}
        facts = {
            name: _DECIDING[name]((value for value in of_engines if value is not None), default=None)
            for name, of_engines in values.items()
        }
        totals = {name: _total(values[name]) for name in ("kv_cache_tokens", "max_concurrency")}
        return EngineFacts(**{**facts, **totals})

    def capacity_tokens(self, engine: str) -> int | None:
        """Return an engine's KV cache in tokens: as printed, or V0's blocks by their size."""
        facts = self.of_engine(engine)
        if facts is not None and facts.kv_cache_tokens is not None:
            return facts.kv_cache_tokens
        if self.num_gpu_blocks is None or self.data_parallel_size not in {None, 1}:
            return None
        size = self.block_size
        if size is None and facts is not None and facts.max_concurrency and self.max_model_len:
            size = round(facts.max_concurrency * self.max_model_len / self.num_gpu_blocks)
        return self.num_gpu_blocks * size if size else None

    def by_series(self, engine: str) -> dict[str, float | None]:
        """Return what an engine was started with, by series; `None` where the log does not have it."""
        reported = self.of_engine(engine) or EngineFacts()
        return {
            "kv_cache_capacity_tokens": self.capacity_tokens(engine),
            "max_concurrency": reported.max_concurrency,
            "model_load_seconds": reported.model_load_seconds,
            "model_weights_bytes": _bytes(reported.model_load_gib),
            "kv_cache_bytes": _bytes(reported.kv_cache_memory_gib),
            "max_running_requests": self.max_num_seqs,
            "max_model_len_tokens": self.max_model_len,
            "num_speculative_tokens": self.num_speculative_tokens,
            "tensor_parallel_size": self.tensor_parallel_size,
            "data_parallel_size": self.data_parallel_size,
            "api_servers": self.api_server_count,
        }


_FIRST_COUNTS = (
    "version",
    "engine_generation",
    "model",
    "served_model_name",
    "max_num_seqs",
    "tensor_parallel_size",
    "api_server_count",
    "num_speculative_tokens",
    "block_size",
)


def _bytes(gib: float | None) -> float | None:
    return None if gib is None else round(gib * 2**30)


def _total(sizes: Sequence[Size | None]) -> Size | None:
    known = [size for size in sizes if size is not None]
    return sum(known, start=known[0] * 0) if known and len(known) == len(sizes) else None
