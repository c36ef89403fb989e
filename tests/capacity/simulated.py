# SPDX-License-Identifier: Apache-2.0
"""
An engine with continuous batching, simulated step by step, whose traffic grows until it is saturated.

A step gives each running request a token, and computes prompts within a budget. It takes a fixed time, more for each
request and for each prompt token, and varies by chance, as do arrivals and lengths. A request starts where its prompt
fits into the KV cache; when that is full the youngest is preempted, and all of it is computed again. Nothing in it
knows of a curve.
"""

from __future__ import annotations

import random

from collections import deque
from typing import NamedTuple

from vllm_watch.daemon.capacity.windows import LoadSample


BUDGET = 2048
"""Prompt tokens that one step computes at most."""

SCRAPE_SECONDS = 5.0


class Engine(NamedTuple):
    """
    What an engine is: seconds of a step, of each request and of each prompt token in it, and its limits.

    `prompt` and `answer` are mean lengths, `spread` the sigma of their logarithms, `noise` that of a step's time.
    """

    step: float = 0.02
    request: float = 0.0005
    token: float = 2e-5
    seats: int = 48
    kv_tokens: float = 1e6
    prompt: int = 200
    answer: int = 150
    spread: float = 0.0
    noise: float = 0.05

    @property
    def facts(self):
        """What its log would tell of it."""
        return {"max_running_requests": float(self.seats), "kv_cache_capacity_tokens": self.kv_tokens}

    @property
    def most_requests_per_second(self):
        """About how many requests it answers at most."""
        running = min(self.seats, self.kv_tokens / (self.prompt + self.answer))
        prompts = self.token * self.prompt * running / self.answer
        return running / (self.step + self.request * running + prompts) / self.answer


class _Request:
    def __init__(self, prompt, answer):
        self.prompt, self.answer = prompt, answer
        self.to_compute, self.left = prompt, answer

    @property
    def held(self):
        """The tokens that it has in the KV cache once its prompt is computed."""
        return self.prompt + self.answer - self.left


def samples(engine, rates, seconds, seed=1):
    """Yield what scrapes see while requests arrive at each of some rates for so long, by chance."""
    chance = random.Random(seed)
    server = _Server(engine, chance)
    arrival, scrape = 0.0, 0.0
    for number, rate in enumerate(rates):
        end = (number + 1) * seconds
        arrival = server.at + chance.expovariate(rate)
        while server.at < end:
            while arrival <= server.at:
                server.arrive()
                arrival += chance.expovariate(rate)
            server.run_step(until=arrival)
            while server.at >= scrape:
                yield server.sample(scrape)
                scrape += SCRAPE_SECONDS


class _Server:
    def __init__(self, engine, chance):
        self._engine, self._chance = engine, chance
        self._waiting, self._running = deque(), []
        self.at = 0.0
        self._generated = self._computed = self._prompted = self._answered = self._done = self._preempted = 0

    def arrive(self):
        engine, chance = self._engine, self._chance
        lengths = [
            max(1, round(mean * chance.lognormvariate(-(engine.spread**2) / 2, engine.spread)))
            for mean in (engine.prompt, engine.answer)
        ]
        self._waiting.append(_Request(*lengths))

    def run_step(self, until):
        """Compute one step, or wait for the next arrival."""
        self._schedule()
        if not self._running:
            self.at = until
            return
        engine, budget = self._engine, BUDGET
        for request in self._running:
            part = min(request.to_compute, budget)
            request.to_compute -= part
            budget -= part
            if not request.to_compute:
                request.left -= 1
                self._generated += 1
        computed = BUDGET - budget
        self._computed += computed
        cost = engine.step + engine.request * len(self._running) + engine.token * computed
        self.at += cost * self._chance.lognormvariate(0, engine.noise)
        for request in self._running:
            if request.left <= 0:
                self._prompted, self._answered = self._prompted + request.prompt, self._answered + request.answer
                self._done += 1
        self._running = [request for request in self._running if request.left > 0]

    def _schedule(self):
        """Preempt the youngest while the KV cache is too full for a step, else start what fits."""
        engine, running, waiting = self._engine, self._running, self._waiting
        held = sum(request.held for request in running)
        while held + len(running) > engine.kv_tokens:
            youngest = running.pop()
            held -= youngest.held
            youngest.to_compute = youngest.held
            waiting.appendleft(youngest)
            self._preempted += 1
        while waiting and len(running) < engine.seats and held + waiting[0].held + len(running) < engine.kv_tokens:
            held += waiting[0].held
            running.append(waiting.popleft())

    def sample(self, at):
        """Return what a scrape would see now."""
        return LoadSample(
            at=at,
            running=float(len(self._running)),
            queued=float(len(self._waiting)),
            kv_cache_usage=sum(request.held for request in self._running) / self._engine.kv_tokens,
            generated=float(self._generated),
            computed=float(self._computed),
            preemptions=float(self._preempted),
            prompted=float(self._prompted),
            answered=float(self._answered),
            measured=float(self._done),
        )
