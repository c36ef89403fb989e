# SPDX-License-Identifier: Apache-2.0
"""
An engine with continuous batching, simulated step by step in virtual time, under loads that follow one another.

A step gives each running request a token, and computes prompts within a budget. How long it takes for so many requests
is the engine's shape; it varies by chance, as do arrivals and lengths. A request starts where its prompt fits into the
KV cache; when that is full the youngest is preempted, and all of it is computed again. Nothing in it knows of a curve.
"""

from __future__ import annotations

import math
import random

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from vllm_watch.daemon.capacity.load import LoadSample


SCRAPE_SECONDS = 5.0
PAUSE_SECONDS = 10.0
"""Between two loads, after the requests of the first were finished."""


class Engine(NamedTuple):
    """
    What an engine is: the seconds that a step of so many requests takes, and its limits.

    `token` is the seconds of each prompt token in a step, `budget` how many of these a step computes at most; `prompt`
    and `answer` are mean lengths, `spread` how far they may be from them, as a part; `noise` is the sigma of the
    logarithm of a step's time.
    """

    step: Callable[[int], float]
    seats: int = 64
    kv_tokens: float = 1e6
    prompt: int = 300
    answer: int = 200
    spread: float = 0.2
    token: float = 2e-5
    budget: int = 2048
    noise: float = 0.03

    @property
    def facts(self) -> dict[str, float]:
        """What its log would tell of it."""
        return {"max_running_requests": float(self.seats), "kv_cache_capacity_tokens": self.kv_tokens}

    @property
    def fitting(self) -> float:
        """How many requests run at most, about."""
        return min(self.seats, self.kv_tokens / (self.prompt + self.answer / 2))

    def requests_per_second(self, running: float) -> float:
        """About how many requests it answers in a second while so many run."""
        prompts = self.token * self.prompt * running / self.answer
        return running / (self.step(round(running)) + prompts) / self.answer


class Load(NamedTuple):
    """Requests for so many seconds: `users` who each send the next one when they have an answer, or at a `rate`."""

    seconds: float
    users: int = 0
    rate: float = 0.0


class _Request:
    __slots__ = ("answer", "computed", "ends_at", "given", "prompt")

    def __init__(self, prompt: int, answer: int) -> None:
        self.prompt, self.answer = prompt, answer
        self.given = self.computed = 0
        self.ends_at = -1
        """The step with its last token, once its prompt is computed."""


def samples(engine: Engine, loads: Sequence[Load], seed: int = 1) -> Iterator[LoadSample]:
    """Yield what scrapes see while an engine has these loads, one after the other."""
    server = _Server(engine, random.Random(seed))
    scrape = 0.0
    for load in chain.from_iterable((each, Load(PAUSE_SECONDS)) for each in loads):
        server.begin(load)
        while server.is_busy:
            server.run_step()
            while server.at >= scrape:
                yield server.sample(scrape)
                scrape += SCRAPE_SECONDS


class _Server:
    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self._engine, self._chance = engine, chance
        self._waiting: deque[_Request] = deque()
        self._running: dict[int, _Request] = {}
        """In the order in which they began."""
        self._to_compute: deque[_Request] = deque()
        self._ending: dict[int, list[_Request]] = defaultdict(list)
        self._load, self._end, self._arrival = Load(0.0), 0.0, math.inf
        self._step_number, self._held = 0, 0.0
        self.at = 0.0
        self._generated = self._computed = self._prompted = self._answered = self._done = self._preempted = 0

    @property
    def is_busy(self) -> bool:
        """Whether the load goes on, or some of its requests are not answered."""
        return self.at < self._end or bool(self._running or self._waiting)

    def begin(self, load: Load) -> None:
        """Begin a load."""
        self._load, self._end = load, self.at + load.seconds
        self._arrival = self.at + self._chance.expovariate(load.rate) if load.rate else math.inf
        for _ in range(load.users):
            self._arrive()
        self._schedule()

    def run_step(self) -> None:
        """Compute one step, or wait for the next arrival; then start what fits."""
        if self._running:
            self._step()
        else:
            self.at = min(self._arrival, self._end)
        while self._arrival <= min(self.at, self._end):
            self._arrive()
            self._arrival += self._chance.expovariate(self._load.rate)
        self._schedule()

    def sample(self, at: float) -> LoadSample:
        """Return what a scrape would see now."""
        return LoadSample(
            at=at,
            running=float(len(self._running)),
            queued=float(len(self._waiting)),
            kv_cache_usage=self._held / self._engine.kv_tokens,
            generated=float(self._generated),
            computed=float(self._computed),
            preemptions=float(self._preempted),
            prompted=float(self._prompted),
            answered=float(self._answered),
            measured=float(self._done),
        )

    def _step(self) -> None:
        engine = self._engine
        running, computed = len(self._running), self._compute()
        # Those whose prompt is not yet computed get no token.
        given = running - len(self._to_compute)
        self._generated += given
        self._computed += computed
        self._held += given
        self.at += (engine.step(running) + engine.token * computed) * self._chance.lognormvariate(0, engine.noise)
        self._finish()
        self._step_number += 1

    def _arrive(self) -> None:
        engine, spread = self._engine, self._engine.spread
        part = self._chance.uniform
        self._waiting.append(
            _Request(
                round(engine.prompt * part(1 - spread, 1 + spread)), round(engine.answer * part(1 - spread, 1 + spread))
            )
        )

    def _compute(self) -> int:
        """Compute prompts in their order, and return how many tokens."""
        left = self._engine.budget
        while self._to_compute and left:
            request = self._to_compute[0]
            part = min(request.prompt + request.given - request.computed, left)
            request.computed += part
            left -= part
            if request.computed < request.prompt + request.given:
                break
            self._to_compute.popleft()
            request.ends_at = self._step_number + request.answer - request.given - 1
            self._ending[request.ends_at].append(request)
        return self._engine.budget - left

    def _finish(self) -> None:
        for request in self._ending.pop(self._step_number, ()):
            if request.ends_at != self._step_number or self._running.pop(id(request), None) is None:
                continue  # It was preempted meanwhile.
            self._held -= request.prompt + request.answer
            self._prompted += request.prompt
            self._answered += request.answer
            self._done += 1
            if self._load.users and self.at < self._end:
                self._arrive()

    def _schedule(self) -> None:
        """Preempt the youngest while the KV cache is too full for a step, else start what fits."""
        engine, running, waiting = self._engine, self._running, self._waiting
        while self._held + len(running) > engine.kv_tokens:
            self._preempt()
        while waiting and len(running) < engine.seats:
            needed = waiting[0].prompt + waiting[0].given
            if self._held + needed + len(running) >= engine.kv_tokens:
                break
            request = waiting.popleft()
            self._held += needed
            running[id(request)] = request
            self._to_compute.append(request)

    def _preempt(self) -> None:
        _, request = self._running.popitem()
        if request.ends_at >= 0:
            request.given = request.answer - 1 - (request.ends_at - self._step_number)
        else:
            self._to_compute.remove(request)
        self._held -= request.prompt + request.given
        request.computed, request.ends_at = 0, -1
        self._waiting.appendleft(request)
        self._preempted += 1
