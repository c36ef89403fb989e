# SPDX-License-Identifier: Apache-2.0
"""What a server ran with: version, model, flags, sizes and hardware, as far as its sources show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from vllm_watch.daemon.catalog.codes import FLAGS_OF_FACTS
from vllm_watch.daemon.reading.log_reader import TimedEvent
from vllm_watch.daemon.state.config_labels import are_all_known
from vllm_watch.daemon.state.snapshot import ServerSnapshot
from vllm_watch_parsers.events import Lifecycle, StartupFact


_DEVICE = "device"
_SIZES = {
    "model_load_gib": "model_memory_gib",
    "kv_cache_memory_gib": "kv_cache_memory_gib",
}
"""What the log prints of memory, and what it is called among the hardware."""

_OF_EACH_ENGINE = ("max_running_requests", "kv_cache_capacity_tokens")
"""Facts that each engine of a data-parallel server has for itself."""


class StartedWith:
    """
    Gathers what is known of a server; a new start replaces what the one before it reported.

    `config` has flags by name. `hardware` has what the log shows: the device (``cpu``, ``cuda``), the GPU's
    name where a kernel is configured for it, and memory in GiB.
    """

    def __init__(self) -> None:
        self.version: str | None = None
        self.model: str | None = None
        self.engine_generation: str | None = None
        self.facts: dict[str, float] = {}
        self._together: dict[str, float] = {}
        self._flags: Mapping[str, str] = {}
        self.is_resolved = self.is_given = False
        self._memory: dict[str, str] = {}
        self._gpu: str | None = None
        self.revision = 0
        """Grows whenever `config` may have changed."""

    def note_events(self, events: Iterable[TimedEvent]) -> None:
        """Take in events of the log, in order."""
        for _, event in events:
            if isinstance(event, StartupFact):
                self._note_fact(event)
            elif isinstance(event, Lifecycle) and event.phase == "starting":
                self._memory, self._gpu = {}, None
                self.facts, self._together = {}, {}
                self.revision += 1

    def note_snapshot(self, snapshot: ServerSnapshot) -> None:
        """Take in the server's names, flags and facts."""
        self.note_flags({flag: known.value for flag, known in snapshot.configuration.flags.items()})
        self.is_resolved = are_all_known(snapshot.configuration.labels)
        self.is_given = any(each.source == "command line" for each in snapshot.configuration.flags.values())
        self.version = snapshot.version or self.version
        self.model = snapshot.model_name or self.model
        self.engine_generation = snapshot.engine_generation or self.engine_generation
        for engine in snapshot.engines:
            if engine.facts and not engine.facts.items() <= self.facts.items():
                self.facts.update(engine.facts)
                self.revision += 1
        for name in _OF_EACH_ENGINE:
            self.note_engines(name, [engine.facts[name] for engine in snapshot.engines if name in engine.facts])

    def note_flags(self, flags: Mapping[str, str]) -> None:
        """Take in all flags that are known now."""
        self.revision += flags != self._flags
        self._flags = flags

    def note_engines(self, name: str, values: Sequence[float]) -> None:
        """Take in a fact of each engine that has it."""
        if name in _OF_EACH_ENGINE and values:
            self._together[name] = sum(values)

    @property
    def facts_together(self) -> Mapping[str, float]:
        """The facts, those of the engines added up: what all of them hold together, as their gauges are."""
        return {**self.facts, **self._together}

    @property
    def config(self) -> Mapping[str, str]:
        """Every flag that is known."""
        known = dict(self._flags)
        for fact, flag in FLAGS_OF_FACTS.items():
            if fact in self.facts:
                known.setdefault(flag, f"{self.facts[fact]:g}")
        known.pop(_DEVICE, None)
        return dict(sorted(known.items()))

    @property
    def hardware(self) -> Mapping[str, str]:
        """What is known of the machine."""
        known = {_DEVICE: self._flags.get(_DEVICE), "gpu": self._gpu}
        return {**{name: value for name, value in known.items() if value}, **self._memory}

    def _note_fact(self, fact: StartupFact) -> None:
        self._gpu = fact.gpu or self._gpu
        for field, name in _SIZES.items():
            value = getattr(fact, field)
            # A draft model's line looks like the main model's and comes after it.
            if value is not None:
                self._memory.setdefault(name, f"{value:g}")
