# SPDX-License-Identifier: Apache-2.0
"""
What a server was started with: every flag that any of its sources has, and what the last start has changed.

What vLLM made of a flag goes before what was given, and the log before /metrics before the command line: the engine's
configuration in the log, the log's lines about one flag, /metrics, the arguments in the log, the command line. A flag
that no source has is left out: defaults differ by release and by device.

A start is compared, place by place, with the last one before it that had any flags: a place that only one of them has
changes nothing.
"""

from __future__ import annotations

import hashlib
import math
import re

from collections.abc import Mapping

from vllm_watch.daemon.catalog.codes import CONFIG_LABELS, FLAGS_OF_FACTS
from vllm_watch.daemon.state.kept_facts import KeptFlags, Place
from vllm_watch.daemon.state.snapshot import ConfigChange, Configuration, FlagChange, FlagSource, FlagValue
from vllm_watch_parsers.events import StartupDetail, StartupFact
from vllm_watch_parsers.fields import number
from vllm_watch_parsers.flags import DRAFT_SCHEDULE, PARALLEL_SIZES, CommandFacts, Flags, least_drafted


# A value comes from the log, /metrics or a command line: what is not spelt as vLLM spells its choices is no label.
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z", re.ASCII)
_SWITCHED = {"True": "true", "False": "false"}
_SPELT = {label: value for value, label in _SWITCHED.items()}
_NO_DRAFTS, _NO_CHOICE = "none", "auto"
_NO_FLAGS = (_NO_DRAFTS, _NO_CHOICE)
_SPEC_METHOD = "spec_method"
_KV_CACHE_DTYPE = "kv_cache_dtype"
_V0_DRAFT_MODEL = "speculative-model"
_V0_NGRAM = "[ngram]"


def config_labels(flags: Mapping[str, str], *, is_resolved: bool) -> Mapping[str, str]:
    """
    Return the labels' values in the order of the labels; one is empty where it is not known.

    Args:
        flags: The flags that are known.
        is_resolved: Whether what vLLM made of all its flags is known.
    """
    found = {
        label: next((flags[name] for name in names if name in flags), "") for label, names in CONFIG_LABELS.items()
    }
    found[_SPEC_METHOD] = found[_SPEC_METHOD] or _spec_method(flags, is_resolved=is_resolved)
    if is_resolved:  # Every release prints the type, and no flag is that without a choice.
        found[_KV_CACHE_DTYPE] = found[_KV_CACHE_DTYPE] or _NO_CHOICE
    return {label: _SWITCHED.get(value, value) if _VALUE.match(value) else "" for label, value in found.items()}


def flags_of_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the flags that the labels of a `server_config_info` have, by name; of several for one label the first."""
    known = {flags[0]: labels.get(label, "") for label, flags in CONFIG_LABELS.items()}
    return {flag: _SPELT.get(value, value) for flag, value in known.items() if value and value not in _NO_FLAGS}


def are_all_known(labels: Mapping[str, str]) -> bool:
    """Return whether it shows in the labels that what vLLM made of all flags was known."""
    return labels.get(_KV_CACHE_DTYPE) == _NO_CHOICE


def _spec_method(flags: Mapping[str, str], *, is_resolved: bool) -> str:
    """Return how tokens are drafted where the method is not among the flags: before 0.8, or not at all."""
    draft = flags.get(_V0_DRAFT_MODEL)
    if draft is not None:
        return "ngram" if draft == _V0_NGRAM else "draft_model"
    return _NO_DRAFTS if is_resolved and not any("speculative" in flag for flag in flags) else ""


_PREFERENCE: tuple[tuple[Place, FlagSource], ...] = (
    ("engine", "log"),
    ("lines", "log"),
    ("metrics", "metrics"),
    ("arguments", "log"),
    ("command line", "command line"),
)
"""The places with the sources that they are parts of, the best first."""

_LINES: Place = "lines"
_MODEL = "model"
_VERSION = "version"
_GENERATION = "engine-generation"


LEAST_DRAFTED = "num_speculative_tokens_least"
"""How many tokens a draft has at least, where their number varies; a fact."""

SEATS = "max_running_requests"
_ACTIVE_SEQS = "max-num-active-seqs"
"""
How many requests the scheduler lets run at once; ``max-num-seqs`` sizes the batch, and must not be smaller.

vllm/config/scheduler.py and vllm/v1/core/sched/scheduler.py of 0.33.0. With some drafts vLLM lowers it, and says so.
"""

_MOST: Mapping[str, float] = {
    "max_model_len_tokens": 1_000_000_000_000,
    "max_running_requests": 1_000_000_000,
    "max_batched_tokens": 1_000_000_000,
    "gpu_memory_utilization_ratio": 1,
    "block_size_tokens": 1_000_000,
    "tensor_parallel_size": 65_536,
    "pipeline_parallel_size": 65_536,
    "data_parallel_size": 65_536,
    "num_speculative_tokens": 1_000_000,
}
"""The most that each fact can be; what the log says beside the flags (`state/facts.py`) goes before these."""


class SourceFlags:
    """
    The flags that one source has, start by start.

    Args:
        places: The places of this source; the last one decides.
    """

    def __init__(self, *places: Place) -> None:
        self._places = places
        self.has_started = False
        """Whether a start was seen."""
        self._started_at: float | None = None
        self._names: dict[str, str] = {}
        self._present: dict[Place, Mapping[str, str]] = {}
        self._former_names: Mapping[str, str] = {}
        self._former: Mapping[Place, Mapping[str, str]] = {}
        """What the last start before this one had that had any flags."""
        self._change: ConfigChange | None = None
        """What an earlier start has changed."""

    @property
    def is_known(self) -> bool:
        """Whether the source has had all its flags since the last start."""
        return any(place != _LINES for place in self._present)

    @property
    def was_known(self) -> bool:
        """Whether it has had them since any start."""
        return self.is_known or any(place != _LINES for place in self._former)

    def start(self, at: float | None) -> None:
        """Take in that the server starts, at a time if that is known."""
        self._change = self.change
        if self._present:
            self._former, self._former_names = self._present, self._names
        self.has_started = True
        self._started_at, self._names, self._present = at, {}, {}

    def note_name(self, name: str, value: str | None) -> None:
        """Take in the version, the engine's generation or the model, if it is known; the first one counts."""
        if value is not None:
            self._names.setdefault(name, value)

    def note(self, place: Place, flags: Mapping[str, str]) -> None:
        """Take in all flags of a place."""
        self._present[place] = flags

    def kept(self) -> KeptFlags:
        """Return what is known of the present start."""
        return KeptFlags(dict(self._names), {place: dict(flags) for place, flags in self._present.items()})

    def take_back(self, kept: KeptFlags) -> None:
        """Take back what an earlier process knew of the present start."""
        self._names, self._present = dict(kept.names), {**kept.places}

    def has(self, place: Place) -> bool:
        """Return whether a place is known, if only that it has no flags."""
        return place in self._present

    def at(self, place: Place) -> Mapping[str, str]:
        """Return the flags of a place."""
        return self._present.get(place, {})

    def digest(self) -> str:
        """Return 8 hexadecimal digits that are the same for equal flags, lines about one flag left out, and models."""
        known = {name: self._names.get(name, "") for name in (_MODEL, _GENERATION)}
        for place in self._places:
            if place != _LINES:
                known.update(_believed(place, self.at(place)))
        text = "\n".join(f"{flag}={value}" for flag, value in sorted(known.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def change(self) -> ConfigChange | None:
        """What the last start that changed anything has changed."""
        found: dict[str, tuple[str | None, str | None]] = {
            name: (self._former_names[name], value) for name, value in self._names.items() if name in self._former_names
        }
        # Another release prints other flags; a line about one flag is printed for some reasons and not for others.
        is_same_release = self._former_names.get(_VERSION) == self._names.get(_VERSION)
        for place in self._places:
            if place not in self._former or place not in self._present:
                continue
            old, new = _believed(place, self._former[place]), _believed(place, self._present[place])
            for flag in old.keys() | new.keys():
                is_whole = is_same_release and place != _LINES and flag not in found
                if is_whole or (flag in old and flag in new):
                    found[flag] = old.get(flag), new.get(flag)
        changes = tuple(FlagChange(flag, old, new) for flag, (old, new) in sorted(found.items()) if old != new)
        return ConfigChange(self._started_at, changes) if changes else self._change


def _believed(place: Place, flags: Mapping[str, str]) -> Mapping[str, str]:
    """Return the flags that a place has right."""
    return {flag: value for flag, value in flags.items() if place != "engine" or flag not in PARALLEL_SIZES}


class FlagHistory:
    """Takes in what a server's sources say of its flags, start by start."""

    def __init__(self) -> None:
        self._log = SourceFlags("arguments", _LINES, "engine")
        self._metrics = SourceFlags("metrics")
        self._command = SourceFlags("command line")
        self._sources: Mapping[FlagSource, SourceFlags] = {
            "log": self._log,
            "command line": self._command,
            "metrics": self._metrics,
        }
        """Each source, the one with the most flags first."""
        self._restored: ConfigChange | None = None
        self._whole_change: ConfigChange | None = None
        """The last change of a start that is over."""
        self._known: Configuration | None = None
        """What is known, until something else is."""

    def start(self, source: FlagSource, at: float | None) -> None:
        """Take in that the server was started, at a time if that is known: what a source has is of another process."""
        self._sources[source].start(at)
        self._known = None

    def note_fact(self, fact: StartupFact) -> None:
        """Take in a line of the start: of several engines' lines the first counts, and a draft model's come later."""
        self._log.note_name(_VERSION, fact.version)
        self._log.note_name(_GENERATION, fact.engine_generation)
        if fact.flags_of is not None:
            self._log.note_name(_MODEL, fact.model)
            if not self._log.has(fact.flags_of):
                self._log.note(fact.flags_of, dict(fact.flags))
        self._known = None

    def note_detail(self, detail: StartupDetail) -> None:
        """Take in a line about one flag; the first one counts."""
        if detail.flags:
            self._log.note(_LINES, {**dict(detail.flags), **self._log.at(_LINES)})
            self._known = None

    def note_metrics(self, flags: Flags) -> None:
        """Take in the flags of a scrape."""
        if flags and self._metrics.at("metrics") != dict(flags):
            self._metrics.note("metrics", dict(flags))
            self._known = None

    def note_command(self, command: CommandFacts) -> None:
        """Take in the server's command line, if it is known."""
        if command.flags is not None:
            self._command.note_name(_MODEL, command.model)
            self._command.note("command line", dict(command.flags))
            self._known = None

    @property
    def has_log_start(self) -> bool:
        """Whether the log has shown a start."""
        return self._log.has_started

    def kept(self) -> KeptFlags:
        """Return what the log has of the present start, for a checkpoint: the other sources say it again."""
        return self._log.kept()

    def take_back(self, kept: KeptFlags) -> None:
        """Take back what an earlier process has read in the log."""
        self._log.take_back(kept)
        self._known = None

    def restore(self, change: ConfigChange) -> None:
        """Take back what an earlier process knew of the last change."""
        self._restored = self._whole_change = change
        self._known = None

    def known(self, *, is_starting: bool, ahead: float) -> Configuration:
        """
        Return what is known.

        Args:
            is_starting: Whether lines of the start may follow.
            ahead: Seconds by which the wall clock is ahead of the clock of the times.
        """
        known = self._all()
        if is_starting:
            known = known._replace(digest=None, change=self._whole_change)
        self._whole_change = known.change
        return known if known.change is None or not ahead else known._replace(change=known.change.later(ahead))

    @property
    def whole_change(self) -> ConfigChange | None:
        """The last change of a start that was over when `known` was called last, by the clock of the times."""
        return self._whole_change

    @property
    def digest(self) -> str | None:
        """The digest of what is known so far, also while the server starts."""
        return self._all().digest

    @property
    def facts(self) -> Mapping[str, float]:
        """The numbers among the flags that are series, by their names."""
        return self._all().facts

    def value(self, flag: str) -> str:
        """Return a flag's value; nothing if it is not known."""
        known = self._all().flags.get(flag)
        return "" if known is None else known.value

    def _all(self) -> Configuration:
        if self._known is None:
            flags = self._flags()
            values = {flag: known.value for flag, known in flags.items()}
            labels = config_labels(values, is_resolved=self._log.has("engine"))
            facts = _facts({flag: known.value for flag, known in self._certain().items()})
            digest = next((source.digest() for source in self._sources.values() if source.is_known), None)
            are_all_known = self._log.is_known or self._command.is_known
            self._known = Configuration(flags, digest, self._last_change(), facts, labels, are_all_known)
        return self._known

    def _last_change(self) -> ConfigChange | None:
        """Return what the source with the most flags has had differently: a source is compared with itself."""
        found = next((source.change for source in self._sources.values() if source.was_known), None)
        known = [change for change in (self._restored, found) if change is not None]
        return max(known, key=lambda change: math.inf if change.at is None else change.at, default=None)

    def _certain(self) -> dict[str, FlagValue]:
        found: dict[str, FlagValue] = {}
        for place, source in _PREFERENCE:
            for flag, value in _believed(place, self._sources[source].at(place)).items():
                found.setdefault(flag, FlagValue(value, source))
        return found

    def _flags(self) -> Mapping[str, FlagValue]:
        found = self._certain()
        for flag, value in self._log.at("engine").items():
            found.setdefault(flag, FlagValue(value, "log"))
        return dict(sorted(found.items()))


def _facts(flags: Mapping[str, str]) -> dict[str, float]:
    found = {fact: number(flags[flag]) for fact in _MOST if (flag := FLAGS_OF_FACTS[fact]) in flags}
    known = {fact: value for fact, value in found.items() if value is not None and 0 < value <= _MOST[fact]}
    active = number(flags.get(_ACTIVE_SEQS, ""))
    if active and 0 < active <= _MOST[SEATS]:
        known[SEATS] = min(active, known.get(SEATS, active))
    least = least_drafted(flags.get(DRAFT_SCHEDULE, ""))
    # With data parallelism vLLM ignores the schedule (vllm/config/vllm.py of 0.33.0).
    is_used = flags.get("data-parallel-size", "1") == "1"
    if least is not None and is_used and least < known.get("num_speculative_tokens", math.inf):
        known[LEAST_DRAFTED] = least
    return known
