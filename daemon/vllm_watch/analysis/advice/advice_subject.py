# SPDX-License-Identifier: Apache-2.0
"""What advice is for: a server with one configuration, and all the time in which it worked with it."""

from __future__ import annotations

import re

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import groupby, pairwise
from typing import Literal, NamedTuple, TypeAlias

from vllm_watch.analysis.loadtest.load_test import Objective
from vllm_watch.analysis.loadtest.loads import has_work, tokens_grown
from vllm_watch.analysis.loadtest.server_history import Growth, Point, ServerHistory, added, typical_step
from vllm_watch.daemon.catalog.event_texts import FAILURES
from vllm_watch.daemon.catalog.language import _
from vllm_watch_parsers.scrape import Histogram


Holds: TypeAlias = Callable[[Point, Point], bool]
"""Whether something holds between two points that follow each other; a gauge counts for the time before its point."""

Era = Literal["V0", "V1"]
ACTIVE_SEQS = "max-num-active-seqs"
_KV_DTYPE = "kv-cache-dtype"
_WORKING = frozenset({"serving", "saturated", "idle"})
_GAP_STEPS = 5
"""After a pause of more than five usual ones between two readings nothing is known of the time between."""

_OUT_OF_MEMORY = frozenset({"out_of_memory", "gpu_memory_too_small"})

_FIRST_V1_ALONE = (0, 11)
_LAST_V0_ALONE = (0, 7)
_RELEASE = re.compile(r"v?(\d+)\.(\d+)")


class Window(NamedTuple):
    """Time in pieces: each is at least two points that follow each other, whose intervals all count."""

    pieces: tuple[tuple[Point, ...], ...]

    @property
    def seconds(self) -> float:
        """How long it is, without what is between its pieces."""
        return sum(piece[-1].at - piece[0].at for piece in self.pieces)

    @property
    def start(self) -> float | None:
        """When the first piece begins, in seconds since the epoch; `None` of no time."""
        return min((piece[0].at for piece in self.pieces), default=None)

    @property
    def end(self) -> float | None:
        """When the last piece ends."""
        return max((piece[-1].at for piece in self.pieces), default=None)

    def where(self, holds: Holds) -> Window:
        """Return the part in which something holds."""
        return Window(tuple(found for piece in self.pieces for found in _runs(piece, holds)))

    def share(self, holds: Holds) -> float:
        """Return for which share of the time something holds; 0 of no time."""
        return self.where(holds).seconds / self.seconds if self.seconds else 0.0

    def split(self, share: float = 0.5) -> tuple[Window, Window]:
        """Return the first half of the time, or another share of it, and the rest."""
        end, done = share * self.seconds, 0.0
        parts: tuple[list[tuple[Point, ...]], list[tuple[Point, ...]]] = ([], [])
        for piece in self.pieces:
            for old, new in pairwise(piece):
                parts[done >= end].append((old, new))
                done += new.at - old.at
        first, rest = (Window(tuple(_joined(part))) for part in parts)
        return first, rest

    def mean(self, gauge: str) -> float | None:
        """Return a gauge's mean over the time at which it is known; `None` if it never is."""
        known = [(new.gauges[gauge], new.at - old.at) for old, new in self._intervals() if gauge in new.gauges]
        seconds = sum(each for _, each in known)
        return sum(value * each for value, each in known) / seconds if seconds else None

    def highest(self, gauge: str) -> float | None:
        """Return a gauge's highest value."""
        return max((new.gauges[gauge] for _, new in self._intervals() if gauge in new.gauges), default=None)

    def increase(self, counter: str) -> float | None:
        """Return how much a counter grew; `None` if it is not known in any piece."""
        known = [each for piece in self.pieces if (each := Growth(piece).counter(counter)) is not None]
        return sum(known) if known else None

    def labelled(self, counter: str) -> dict[str, float]:
        """Return how much each counter of one name grew, by its label's value."""
        found: dict[str, float] = defaultdict(float)
        for piece in self.pieces:
            for label, value in Growth(piece).labelled(counter).items():
                found[label] += value
        return dict(found)

    def mean_positions(self) -> tuple[float, ...]:
        """Return the mean acceptance at each position over the time; none if their number is not always the same."""
        known = [
            ([each for each in new.position_acceptance if each is not None], new.at - old.at)
            for old, new in self._intervals()
            if new.position_acceptance
        ]
        seconds = sum(each for _, each in known)
        if len({len(shares) for shares, _ in known}) != 1 or not seconds:
            return ()
        weighted = [[share * each for share in shares] for shares, each in known]
        return tuple(sum(column) / seconds for column in zip(*weighted, strict=True))

    def histogram(self, name: str) -> Histogram | None:
        """Return what was observed; `None` if nothing was, or buckets changed."""
        known = [each for piece in self.pieces if (each := Growth(piece).histogram(name)) is not None]
        return reduce(added, known) if known and len({each.bounds for each in known}) == 1 else None

    def _intervals(self) -> Iterator[tuple[Point, Point]]:
        return (interval for piece in self.pieces for interval in pairwise(piece))


def joined(windows: Iterable[Window]) -> Window:
    """Return several windows as one, in order of time."""
    pieces = (piece for window in windows for piece in window.pieces)
    return Window(tuple(sorted(pieces, key=lambda piece: piece[0].at)))


def _runs(piece: Sequence[Point], holds: Holds) -> Iterator[tuple[Point, ...]]:
    return _joined([interval for interval in pairwise(piece) if holds(*interval)])


def _joined(pieces: Sequence[tuple[Point, ...]]) -> Iterator[tuple[Point, ...]]:
    """Yield pieces, those as one of which each begins with the point that the one before ends with."""
    whole: list[Point] = []
    for piece in pieces:
        if whole and whole[-1] is piece[0]:
            whole += piece[1:]
            continue
        if whole:
            yield tuple(whole)
        whole = list(piece)
    if whole:
        yield tuple(whole)


class Subject(NamedTuple):
    """
    A server with one configuration, or several alike.

    `flags` are by vLLM's names without dashes: one that is not there is not known, whatever its default is. `facts` are
    numbers by the names of the series without their prefix, those of all engines together. `is_given` is whether a flag
    that is not there was not given. `work` is the time in which it worked.
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
    is_given: bool = False
    has_run_out_of_memory: bool = False
    """Whether its log tells of a lack of memory; `False` also where there is no log."""
    ran_out_at: float | None = None
    """When it did last, in seconds since the epoch, if that was seen."""

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
        return together if together is not None else self._seats_of_each

    @property
    def engines(self) -> int:
        """How many engines there are, as far as is known."""
        each, together = self._seats_of_each, self.facts.get("max_running_requests")
        return max(round(together / each), 1) if each and together else 1

    @property
    def _seats_of_each(self) -> float | None:
        limits = (self.number("max-num-seqs"), self.number(ACTIVE_SEQS))
        return min((limit for limit in limits if limit is not None), default=None)


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
    flags = (f"{name}={value}" for name, value in sorted(history.config.items()))
    return (history.model or "", history.version or "", history.hardware.get("device", ""), *flags)


def _subject(histories: list[ServerHistory], objective: Objective | None) -> Subject:
    histories.sort(key=lambda each: each.points[0].at if each.points else 0.0)
    first = histories[0]
    lacks = {_(FAILURES[kind]) for kind in _OUT_OF_MEMORY}
    names = list(dict.fromkeys(each.name for each in histories))
    return Subject(
        name=names[0] if len(names) == 1 else _("{name} and {count} more", name=names[0], count=len(names) - 1),
        source=tuple(dict.fromkeys(each.source for each in histories)),
        model=first.model,
        version=first.version,
        flags=_flags(first),
        facts=first.facts,
        hardware=first.hardware,
        era=_era(first),
        work=joined(_work(each) for each in histories),
        warnings=tuple(dict.fromkeys(warning for each in histories for warning in each.warnings)),
        objective=objective,
        is_given=first.are_all_flags_known,
        has_run_out_of_memory=any(_OUT_OF_MEMORY & each.failures for each in histories),
        ran_out_at=max((event.at for each in histories for event in each.events if event.text in lacks), default=None),
    )


def _flags(history: ServerHistory) -> Mapping[str, str]:
    """Return the flags; the precision of the KV cache is the model's where all is known and none was set."""
    return {_KV_DTYPE: "auto", **history.config} if history.are_all_flags_known else history.config


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
        events=(*other.events, *log.events),
        failures=other.failures | log.failures,
    )
    return [whole if each is other else each for each in histories if each is not log]


def _is_at_once(one: ServerHistory, other: ServerHistory) -> bool:
    """Return whether two histories are of one time, and of one model as far as that is known."""
    if not one.points or not other.points or (one.model and other.model and one.model != other.model):
        return False
    return one.points[0].at < other.points[-1].at and other.points[0].at < one.points[-1].at
