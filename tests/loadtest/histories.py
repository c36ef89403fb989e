# SPDX-License-Identifier: Apache-2.0
"""Histories of servers for tests: recorded ones, and ones that are made up point by point."""

from __future__ import annotations

import functools
import math

from tests.support.recordings import recording

from vllm_watch.analysis.loadtest.replayed_history import read_recording
from vllm_watch.analysis.loadtest.server_history import Point, ServerHistory
from vllm_watch.analysis.replay.recording import LogWritten
from vllm_watch_parsers.scrape import Histogram


START = 1_700_000_000.0
BOUNDS = (0.01, 0.1, 1.0, 10.0, math.inf)


@functools.lru_cache
def recorded(name):
    """Return the history of a recording."""
    played = recording(name)
    return read_recording(played, name, played.servers[0])


def log_of(played):
    """Return all that was recorded of a log."""
    return b"".join(event.data for event in played.events() if isinstance(event, LogWritten))


class MadeUpServer:
    """
    A server that answers requests of ten output and twenty input tokens, scraped every two seconds.

    `after(seconds, running)` lets it work for so long with so many requests at once, each of which gives `speed` tokens
    a second.
    """

    def __init__(self, step=2.0, max_num_seqs=24):
        self.at = START
        self.step = step
        self.max_num_seqs = max_num_seqs
        self.done = self.seconds_per_token = 0.0
        self.points = [self._point("idle", 0, 0)]

    def _point(self, state, running, waiting, kv=0.0):
        latency = 0.5
        counts = tuple(0.0 if bound < latency else float(int(self.done)) for bound in BOUNDS)
        histogram = Histogram(BOUNDS, counts, latency * int(self.done))
        return Point(
            self.at,
            state,
            {"requests_running": float(running), "requests_waiting": float(waiting), "kv_cache_usage_ratio": kv},
            {
                "generation_tokens_total": 10 * self.done,
                "prompt_tokens_total": 20 * self.done,
                "prompt_tokens_computed": 20 * self.done,
                "preemptions_total": 0.0,
                "requests_finished_total.length": float(int(self.done)),
                "requests_finished_total.abort": 0.0,
            },
            {
                "e2e_request_latency_seconds": histogram,
                "time_to_first_token_seconds": histogram,
                "time_per_output_token_seconds": histogram._replace(sum=self.seconds_per_token),
                "request_prompt_tokens": histogram._replace(sum=20.0 * int(self.done)),
                "request_generation_tokens": histogram._replace(sum=10.0 * int(self.done)),
            },
        )

    def idle(self, seconds, state="idle"):
        """Let it have nothing to do."""
        for _ in range(round(seconds / self.step)):
            self.at += self.step
            self.points.append(self._point(state, 0, 0))
        return self

    def work(self, seconds, running, waiting=0, tokens_per_second=100.0, kv=0.0):
        """Let it work; the last point is without work again."""
        steps = round(seconds / self.step)
        for number in range(steps):
            self.at += self.step
            finished = int(self.done)
            self.done += tokens_per_second * self.step / 10
            self.seconds_per_token += (int(self.done) - finished) * running / tokens_per_second
            state = "saturated" if waiting else "serving"
            is_last = number == steps - 1
            self.points.append(self._point("idle", 0, 0) if is_last else self._point(state, running, waiting, kv))
        return self

    def history(self, source="made up"):
        """Return what it did."""
        return ServerHistory(
            source,
            source,
            "m",
            "0.32.0",
            {"max-num-seqs": str(self.max_num_seqs)},
            {"max_running_requests": self.max_num_seqs},
            tuple(self.points),
        )
