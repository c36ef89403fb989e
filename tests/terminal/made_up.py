# SPDX-License-Identifier: Apache-2.0
"""A source of frames by hand, and servers in every state."""

from __future__ import annotations

import functools

from vllm_watch.cli.terminal.frames import Frame, Lost, Point, frame_of
from vllm_watch.daemon.catalog.states import BEST_TO_WORST
from vllm_watch.daemon.exposition.document import (
    CapacityDocument,
    Document,
    EngineDocument,
    EventDocument,
    ReadingDocument,
    ServerDocument,
    SourceDocument,
)


AT = 1_790_000_000.0


class HandSource:
    """A source whose frames and time a test sets."""

    title = "http://127.0.0.1:9468"

    def __init__(self, view=None):
        self.delay = 2.0
        self.view = view
        self.time = AT
        self.changed = []
        self.asked = 0
        self.hours = []

    def now(self):
        """Return the time that the test has set."""
        return self.time

    def latest(self):
        """Return the frame that the test has set."""
        return self.view

    def subscribe(self, changed):
        """Remember whom to tell."""
        self.changed.append(changed)

    def read_now(self):
        """Count that it was asked."""
        self.asked += 1

    def show_hours(self, names):
        """Remember whose hours were asked for."""
        self.hours = sorted(names)

    def tell(self, view):
        """Have a new view, and say so."""
        self.view = view
        for each in self.changed:
            each()


def reading(value, source="metrics", age=1.0):
    """Return a reading."""
    return ReadingDocument(value, AT - age, source)


def engine(state="serving", name="0", **gauges):
    """Return an engine with all its numbers."""
    return EngineDocument(
        engine=name,
        state=state,
        gauges={
            "generation_tokens_per_second": reading(1240.0),
            "prompt_tokens_per_second": reading(8210.0),
            "requests_running": reading(12.0),
            "requests_waiting": reading(3.0),
            "requests_deferred": reading(2.0),
            "kv_cache_usage_ratio": reading(0.874, "log", 6.0),
            "prefix_cache_hit_ratio": reading(0.352),
            "spec_decode_mean_acceptance_length": reading(2.31),
            **gauges,
        },
        prompt_excludes_cached=True,
        facts={"max_running_requests": 64.0, "kv_cache_capacity_tokens": 141_312.0, "num_speculative_tokens": 4.0},
        quantiles={
            "time_to_first_token": {"0.5": 0.336, "0.95": 0.84, "0.99": 1.68},
            "time_per_output_token": {"0.5": 0.029, "0.95": 0.048, "0.99": 0.075},
            "inter_token": {"0.95": 0.046, "0.99": 0.081},
        },
        means={"time_to_first_token": 0.42, "time_per_output_token": 0.031, "inter_token": 0.0295},
        first_bounds={"inter_token": 0.01},
        position_acceptance=[0.82, 0.55, 0.31, None],
        capacity={"measured": CapacityDocument("measured while the engine was saturated", 2300.0, 2100.0, 2500.0)},
    )


def points(count=40, step=2.0, peak=1240.0):
    """Return the numbers of a server until now."""
    return tuple(
        Point(
            AT - (count - 1 - index) * step,
            peak * 6,
            peak * (index % 9) / 8,
            12.0,
            float(index % 5),
            index / count,
            0.4,
        )
        for index in range(count)
    )


def server(name="gpu-0", state="serving", engines=None, model_name="Qwen/Qwen3-8B", **changes):
    """Return a server with all its numbers; `changes` are of what the terminal makes of its document."""
    document = ServerDocument(
        name=name,
        model_name=model_name,
        version="0.32.0",
        start_time=AT - 93_000,
        starts=2,
        slo={"slo_time_to_first_token_seconds": 0.5, "slo_time_per_output_token_seconds": 0.05},
        sources=[SourceDocument("log", True, "ok", "", AT - 6), SourceDocument("metrics", True, "ok", "", AT - 1)],
        engines=engines or [engine(state)],
        events=[
            EventDocument(AT - 3100, "flags", "flags changed: max-num-seqs 32 → 64"),
            EventDocument(AT - 640, "failure", "request failed inside the engine", count=3),
            EventDocument(AT - 75, "state", "saturated", engine="0", state="saturated"),
        ],
    )
    return _seen(document)._replace(recent=points(), hour=points(360, 10.0), **changes)


def silent_server(name, state):
    """Return a server of which nothing is known but its state."""
    down = SourceDocument("metrics", False, "refused", "Nothing listens at the address.", AT - 300)
    return _seen(ServerDocument(name, sources=[down], engines=[EngineDocument("0", state=state)], events=[]))


def _seen(document):
    return frame_of(Document(AT - 1, [document]), AT - 1).servers[0]


@functools.cache
def every_state():
    """Return a frame with a server in each state, the worst first, and one with two engines."""
    servers = [
        silent_server(f"gpu-{index}", state) if state in {"down", "unknown"} else server(f"gpu-{index}", state)
        for index, state in enumerate(reversed(BEST_TO_WORST))
    ]
    both = [engine("serving"), engine("idle", "1", generation_tokens_per_second=reading(0.0))]
    return frame(*servers, server("two-engines", "serving", engines=both))


def many(count=200):
    """Return a frame with many servers."""
    states = list(reversed(BEST_TO_WORST))
    return frame(*(server(f"node{index:03}", states[min(index // 4, 7)]) for index in range(count)))


def frame(*servers):
    """Return a frame that was read one second ago."""
    return Frame(AT - 1, AT - 1, servers)


def lost(frame=None, seconds=40.0):
    """Return that nothing can be read any more."""
    return Lost(AT - seconds, "vllm-watch at http://127.0.0.1:9468 does not answer: connection refused.", frame)
