# SPDX-License-Identifier: Apache-2.0
"""
A server with continuous batching, in virtual time, whose truth is known: what a load test of it should find.

Requests arrive as a Poisson process, or from users who each send the next one when theirs is answered. They queue until
there is room in the batch; a step of the engine gives each running request a token and takes longer the larger the
batch is. So requests of one run share a queue and a batch, and resemble their neighbours, as those of a real server do.
"""

from __future__ import annotations

import heapq
import math
import random

from statistics import fmean
from typing import NamedTuple

from vllm_watch.analysis.loadtest.load_test import Latency, Load, Phase, Result, Run, ServerUse
from vllm_watch.daemon.statistics.percentiles import percentile


_LENGTH_MEAN, _LENGTH_SIGMA = 128, 0.6
_LONGEST = 2000


class Server(NamedTuple):
    """A step takes `fixed` seconds, `per_request` for each running one, and `prefill` for each that is admitted."""

    fixed: float = 0.008
    per_request: float = 0.0004
    prefill: float = 0.004
    slots: int = 32

    def faster_by(self, factor):
        """Return a server whose steps take 1/factor of the time."""
        return Server(self.fixed / factor, self.per_request / factor, self.prefill / factor, self.slots)

    @property
    def capacity(self):
        """Requests a second with a full batch."""
        seconds = self.fixed + self.per_request * self.slots
        return self.slots / (_LENGTH_MEAN * seconds + self.slots * self.prefill)


class Request(NamedTuple):
    """When it arrived, left the queue, got its first token and its last, and how many tokens it got."""

    arrival: float
    admitted: float
    first: float
    last: float
    tokens: int


def simulate(generator, server, number, rate=None, users=None):
    """Return the requests of one run, by arrival: at a rate, or of so many users."""
    arrivals = [0.0] * users if users else _poisson(generator, rate, number)
    sent = len(arrivals)
    waiting, running, done = list(arrivals), [], []
    heapq.heapify(waiting)
    now, step = 0.0, 0
    while waiting or running:
        if not running and waiting[0] > now:
            now = waiting[0]
        admitted = []
        while waiting and waiting[0] <= now and len(running) + len(admitted) < server.slots:
            admitted.append(heapq.heappop(waiting))
        began = now
        seconds = server.fixed + server.per_request * (len(running) + len(admitted))
        steps = 1 if admitted else _equal_steps(server, waiting, running, step, (now, seconds))
        step, now = step + steps, now + steps * seconds + server.prefill * len(admitted)
        for arrival in admitted:
            tokens = _length(generator)
            heapq.heappush(running, (step + tokens - 1, Request(arrival, began, now, now, tokens)))
        while running and running[0][0] <= step:
            _, request = heapq.heappop(running)
            done.append(request._replace(last=now))
            if users and sent < number:
                sent += 1
                heapq.heappush(waiting, now)
    return sorted(done)


def as_run(requests, name, rate=None, users=None, model="model"):
    """Return what a client's benchmark says of simulated requests."""
    start, end = requests[0].arrival, max(request.last for request in requests)
    middle = requests[len(requests) // 10 : -len(requests) // 10]
    return Run(
        source=(name,),
        name=name,
        model=model,
        load=Load(
            endpoint="online",
            request_rate=rate or "inf",
            max_concurrency=users,
            num_prompts=len(requests),
            mean_input_tokens=200,
            mean_output_tokens=_LENGTH_MEAN,
            temperature=0.0,
        ),
        config={"max-num-seqs": "32"},
        use=_use(requests, middle),
        result=_result(requests, end - start),
        phases=(Phase(phase="steady", start=middle[0].arrival, end=middle[-1].arrival),),
    )


def _equal_steps(server, waiting, running, step, clock):
    """Return how many steps have this batch: until its next request is done, or one that there is room for arrives."""
    steps = running[0][0] - step
    if waiting and len(running) < server.slots:
        now, seconds = clock
        steps = min(steps, math.ceil((waiting[0] - now) / seconds))
    return max(steps, 1)


def _poisson(generator, rate, number):
    arrivals, at = [], 0.0
    for _ in range(number):
        at += generator.expovariate(rate)
        arrivals.append(at)
    return arrivals


def _length(generator):
    mu = math.log(_LENGTH_MEAN) - _LENGTH_SIGMA**2 / 2
    return min(max(round(generator.lognormvariate(mu, _LENGTH_SIGMA)), 2), _LONGEST)


def _ttft(request):
    return (request.first - request.arrival) * 1000


def _tpot(request):
    return (request.last - request.first) / (request.tokens - 1) * 1000


def _e2el(request):
    return (request.last - request.arrival) * 1000


def _latency(values):
    ordered = sorted(values)
    return Latency(
        mean=fmean(ordered),
        count=len(ordered),
        **{f"p{each}": percentile(ordered, each / 100) for each in (50, 90, 95, 99)},
    )


def _result(requests, seconds):
    tokens = sum(request.tokens for request in requests)
    return Result(
        view="client",
        successful=len(requests),
        failed=0,
        duration_s=seconds,
        total_output_tokens=tokens,
        request_throughput=len(requests) / seconds,
        output_throughput=tokens / seconds,
        ttft_ms=_latency(map(_ttft, requests)),
        tpot_ms=_latency(map(_tpot, requests)),
        e2el_ms=_latency(map(_e2el, requests)),
    )


def _use(requests, middle):
    """Return how many requests waited and ran on average in the steady window."""
    start, end = middle[0].arrival, middle[-1].arrival
    waiting = sum(_inside(each.arrival, each.admitted, start, end) for each in requests)
    running = sum(_inside(each.admitted, each.last, start, end) for each in requests)
    return ServerUse(waiting=waiting / (end - start), running=running / (end - start))


def _inside(low, high, start, end):
    """Return how many of the seconds from `low` to `high` are in a window."""
    return max(min(high, end) - max(low, start), 0.0)


def noisy_run(seed, server, cv, number, rate=None, users=None, name="run"):
    """Return a run of a server whose speed varies between runs by a factor."""
    generator = random.Random(seed)
    actual = server.faster_by(math.exp(generator.gauss(0, cv)))
    return as_run(simulate(generator, actual, number, rate, users), f"{name}-{seed}", rate, users)
