# SPDX-License-Identifier: Apache-2.0
"""What advice is for: a server with one configuration, and all the time in which it worked with it."""

from __future__ import annotations

import re

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from vllm_watch.analysis.advice.window import Window, joined
from vllm_watch.analysis.loadtest.load_test import Objective
from vllm_watch.analysis.loadtest.loads import has_work, tokens_grown
from vllm_watch.analysis.loadtest.server_history import Point, ServerHistory, typical_step


Era = Literal["V0", "V1"]

_KV_DTYPE = "kv-cache-dtype"
_WORKING = frozenset({"serving", "saturated", "idle"})
_GAP_STEPS = 5
"""A pause between two readings that is longer than so many usual ones is time of which nothing is known."""

_FIRST_V1_ALONE = (0, 11)
_LAST_V0_ALONE = (0, 7)
_RELEASE = re.compile(r"v?(\d+)\.(\d+)")


class Given(NamedTuple):
    """
    What only the user knows.

    Args:
        objective: What requests have to be answered within.
        shared_prompt_tokens: How many tokens at their beginning the prompts have in common.
    """

    objective: Objective | None = None
    shared_prompt_tokens: int | None = None


class Subject(NamedTuple):
    """
    A server with one configuration, or several alike.

    `flags` are by vLLM's names without dashes: one that is not there is not known, whatever its default is. `facts` are
    numbers by the names of the series without their prefix, those of all engines together. `is_given` is whether a flag
    that is not there was not given. `work` is the time in which it worked. `shared_prompt` is what the prompts have in
    common.
    """

    name: str
    source: tuple[str, ...]
    model: str | None
    version: str | None
    flags: Mapping[str, str]
    facts: Mapping[str, float]
    hardware: Mapping[str, str]
    era: Era | None
    work: Window
    warnings: tuple[str, ...] = ()
    objective: Objective | None = None
    shared_prompt: SharedPrompt | None = None
    is_given: bool = False

    def number(self, flag: str) -> float | None:
        """Return a flag's value as a number; `None` if it is not known, or is none."""
        try:
            return float(self.flags[flag])
        except (KeyError, ValueError):
            return None

    @property
    def device(self) -> str | None:
        """What it runs on, such as ``cuda`` or ``cpu``."""
        return self.hardware.get("device")

    @property
    def seats(self) -> float | None:
        """How many requests run at once at most, in all engines together."""
        together = self.facts.get("max_running_requests")
        return together if together is not None else self.number("max-num-seqs")

    @property
    def engines(self) -> int:
        """How many engines there are, as far as is known."""
        each, together = self.number("max-num-seqs"), self.facts.get("max_running_requests")
        return max(round(together / each), 1) if each and together else 1


class SharedPrompt(NamedTuple):
    """Which part of the prompts is the same in many of them, from 0 to 1, and how that is known."""

    ratio: float
    known_by: str


def subjects(histories: Sequence[ServerHistory], objective: Objective | None = None) -> list[Subject]:
    """Return the configurations in some histories, in order of time; histories of one configuration are one."""
    together = sorted(_with_flags_of_logs(histories), key=_configuration)
    found = [_subject(list(group), objective) for _, group in groupby(together, key=_configuration)]
    names = Counter(subject.name for subject in found)
    distinct = [
        each if names[each.name] == 1 else each._replace(name=f"{each.name} ({', '.join(each.source)})")
        for each in found
    ]
    return sorted(distinct, key=lambda subject: subject.work.start or 0.0)


def _configuration(history: ServerHistory) -> tuple[str, ...]:
    """Return what two histories have in common if they are of one configuration."""
    flags = (f"{name}={value}" for name, value in sorted(history.config.items()))
    return (history.model or "", history.version or "", history.hardware.get("device", ""), *flags)


def _subject(histories: list[ServerHistory], objective: Objective | None) -> Subject:
    histories.sort(key=lambda each: each.points[0].at if each.points else 0.0)
    first = histories[0]
    names = list(dict.fromkeys(each.name for each in histories))
    return Subject(
        name=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
        source=tuple(dict.fromkeys(each.source for each in histories)),
        model=first.model,
        version=first.version,
        flags=_flags(first),
        facts=first.facts,
        hardware=first.hardware,
        era=_era(first),
        work=joined(_work(each) for each in _once(histories)),
        warnings=tuple(dict.fromkeys(warning for each in histories for warning in each.warnings)),
        objective=objective,
        is_given=first.is_resolved or first.is_given,
    )


def _once(histories: Sequence[ServerHistory]) -> list[ServerHistory]:
    """Return the histories without copies of one under another name: what was seen twice is no more evidence."""
    found: list[ServerHistory] = []
    for history in histories:
        if not any(history.points == other.points for other in found):
            found.append(history)
    return found


def _flags(history: ServerHistory) -> Mapping[str, str]:
    """Return the flags; the precision of the KV cache is the model's where all is known and none was set."""
    return {_KV_DTYPE: "auto", **history.config} if history.is_resolved or history.is_given else history.config


def _era(history: ServerHistory) -> Era | None:
    """Return which engine a server has: from 0.8 to 0.10 there were both, and only the log says which."""
    if history.engine_generation is not None:
        return "V0" if history.engine_generation == "V0" else "V1"
    found = _RELEASE.match(history.version or "")
    if found is None:
        return None
    release = int(found[1]), int(found[2])
    if release >= _FIRST_V1_ALONE:
        return "V1"
    return "V0" if release <= _LAST_V0_ALONE else None


def _work(history: ServerHistory) -> Window:
    """Return when a server worked with the configuration that it has at the end."""
    points = [point for point in history.points if point.at >= history.config_since]
    longest = _GAP_STEPS * typical_step(points)

    def works(old: Point, new: Point) -> bool:
        is_known = new.is_fresh and new.state in _WORKING and new.at - old.at <= longest
        return is_known and (has_work(new) or tokens_grown(old, new) > 0)

    return Window((tuple(points),)).where(works) if len(points) > 1 else Window(())


def _with_flags_of_logs(histories: Sequence[ServerHistory]) -> list[ServerHistory]:
    """
    Return the histories, that of a log with that of /metrics as one if they are of the same time.

    A log has the flags, and /metrics the numbers. Which of several servers a log is of is not guessed.
    """
    logs = [each for each in histories if not each.has_metrics]
    measured = [each for each in histories if each.has_metrics]
    pairs = [(log, other) for log in logs for other in measured if _is_at_once(log, other)]
    if len(pairs) != 1:
        return list(histories)
    log, other = pairs[0]
    whole = other._replace(
        config={**other.config, **log.config},
        hardware={**other.hardware, **log.hardware},
        version=other.version or log.version,
        model=other.model or log.model,
        config_since=max(other.config_since, log.config_since),
    )
    return [whole if each is other else each for each in histories if each is not log]


def _is_at_once(one: ServerHistory, other: ServerHistory) -> bool:
    """Return whether two histories are of one time, and of one model as far as that is known."""
    if not one.points or not other.points or (one.model and other.model and one.model != other.model):
        return False
    return one.points[0].at < other.points[-1].at and other.points[0].at < one.points[-1].at
