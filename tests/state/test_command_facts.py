# SPDX-License-Identifier: Apache-2.0
"""What a command line says stands in for what the log does not say, and never goes before it."""

from __future__ import annotations

import pytest

from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus, TailCounts, TimedEvent
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.events import EngineStats, Lifecycle, StartupFact
from vllm_watch_parsers.flags import CommandFacts


COMMAND = CommandFacts(
    model_name="qwen",
    flags=(
        ("data-parallel-size", "3"),
        ("max-model-len", "32768"),
        ("max-num-seqs", "24"),
        ("speculative-config.num_speculative_tokens", "4"),
        ("tensor-parallel-size", "2"),
    ),
)


def after(*events, command=COMMAND, has_log=True):
    """Return a server's state at time 1 after these events of its log."""
    state = ServerState(ServerSettings("s", has_log=has_log, metrics_interval=5.0, command=command))
    timed = tuple(TimedEvent(0.0, event) for event in events)
    state.apply_log(LogBatch(timed, requests={}, lines=len(timed), size=0, end=0.0, continuation_lines=0))
    state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
    return state


def facts(state):
    """Return the facts of its only engine."""
    (engine,) = state.snapshot(1.0).engines
    return engine.facts


@pytest.mark.parametrize("has_log", [True, False])
def test_what_nothing_else_says(has_log):
    """Limits and the model's name come from the command line where a log is silent or there is none."""
    state = after(has_log=has_log)

    assert {
        "max_running_requests": 24,
        "max_model_len_tokens": 32768,
        "num_speculative_tokens": 4,
        "tensor_parallel_size": 2,
        "data_parallel_size": 3,
    } == facts(state)
    assert "qwen" == state.snapshot(1.0).model_name


def test_the_log_goes_before():
    """What the log says holds, and what it does not say comes from the command line all the same."""
    said = StartupFact(max_num_seqs=8, served_model_name="other")
    found = facts(state := after(said))

    assert (8, 4) == (found["max_running_requests"], found["num_speculative_tokens"])
    assert "other" == after(said, EngineStats(engine="0")).snapshot(1.0).model_name
    assert state.snapshot(1.0).name == "s"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (CommandFacts(log_stats_disabled=True), "stats_disabled"),
        (CommandFacts(has_several_api_servers=True), "api_servers_more_than_one"),
        (CommandFacts(), "idle"),
    ],
)
def test_why_a_log_has_no_statistics(command, reason):
    """Before a request has shown that a log has no statistics, the command line says so."""
    state = after(Lifecycle("ready"), command=command)

    assert reason == state.snapshot(1.0).sources[0].reason
