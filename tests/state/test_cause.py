# SPDX-License-Identifier: Apache-2.0
"""Why an engine is saturated or down: by what its sources show of it, and by nothing from an earlier time."""

from __future__ import annotations

import pytest

from tests.state.test_shutdown import FINISHED, TRIGGERED
from tests.support.server_stories import DEAD, READY, STARTING, Server, line, page

from vllm_watch.daemon.catalog.states import STATES
from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.exposition.samples import server_samples


ARGUMENTS = b"(APIServer pid=1) INFO 11-21 02:35:11 [utils.py:233] non-default args: {'model': 'm', 'max_num_seqs': 4}"
WORKER = b"ERROR 11-21 02:35:10 [multiproc_executor.py:1] Worker proc VllmWorker-1 died unexpectedly, shutting down."
MEMORY = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def cause(server, after=0.0):
    """Return a server's state and its cause."""
    engine = server.engine(after)
    return engine.state, engine.cause


@pytest.mark.parametrize(
    ("running", "kv", "is_known", "why"),
    [
        (4, 0.26, True, "batch_full"),
        (3, 0.95, True, "kv_cache_full"),
        (4, 0.95, True, "both_full"),
        (1, 0.26, True, "neither_full"),
        (4, 0.26, False, None),
        (4, 0.95, False, "kv_cache_full"),
    ],
)
def test_what_requests_wait_for(running, kv, is_known, why):
    """The batch is full at --max-num-seqs and the cache at 90 %; a limit that is not known is not reached."""
    server = Server().log(STARTING, *([ARGUMENTS] if is_known else []), READY)
    server.scrape(page(running=running, waiting=7, kv=kv)).scrape(
        page(running=running, waiting=7, kv=kv, generated=50, steps=9), after=5
    )

    assert ("saturated", why) == cause(server)
    shown = server_view(server.state.snapshot(server.now))["engines"][0]
    assert why == shown.get("cause", {}).get("reason")


def test_the_cause_does_not_swing_with_one_scrape():
    """A cache that preempts is full on average: the means of the time in which requests wait decide."""
    server = Server().log(STARTING, ARGUMENTS, READY)
    found = []
    for count, kv in enumerate([0.99, 0.99, 0.86, 0.99, 0.86]):
        server.scrape(page(running=2, waiting=7, kv=kv, generated=50 * count, steps=9 * count), after=5)
        found.append(cause(server))

    assert {("saturated", "kv_cache_full")} == set(found)


def test_the_log_alone_tells_what_requests_wait_for():
    """Without /metrics the last line of statistics decides."""
    server = Server(has_metrics=False).log(STARTING, ARGUMENTS, READY, line(running=4, waiting=9, generation=9.0))

    assert ("saturated", "batch_full") == cause(server)


ENDS = {
    "engine_died": [DEAD],
    "worker_failed": [WORKER, DEAD],
    "out_of_memory": [DEAD, MEMORY],
    "stopped": [TRIGGERED, FINISHED],
}


@pytest.mark.parametrize("why", ENDS)
@pytest.mark.parametrize("has_metrics", [True, False])
def test_how_a_server_ended(why, has_metrics):
    """The log tells a crash, and of what, from an orderly stop."""
    server = Server(has_metrics=has_metrics).log(STARTING, READY, line(running=1, generation=9.0))
    if has_metrics:
        server.scrape(page(running=1))
    server.log(*ENDS[why], after=60)
    if has_metrics:
        server.scrape(after=5)

    assert ("down", why) == cause(server, after=5)
    samples = server_samples(server.state.snapshot(server.now))
    assert [why] == [each.labels[-1] for each in samples if each.name == "engine_down_info"]


def test_a_crash_after_which_the_api_server_stops_is_a_crash():
    """The API server of an engine that died ends in order, a moment later: that is not what ended the server."""
    server = Server(has_metrics=False).log(STARTING, READY, DEAD).log(TRIGGERED, FINISHED, after=5)

    assert ("down", "engine_died") == cause(server)


def test_a_later_stop_does_not_inherit_a_failure():
    """A failure belongs to the time in which it happened: who stops the server minutes later has stopped it."""
    server = Server(has_metrics=False).log(STARTING, READY, WORKER, line(running=1, generation=9.0))
    server.log(line(running=1, generation=9.0), after=720).log(TRIGGERED, FINISHED, after=10)

    assert ("down", "stopped") == cause(server)


def test_the_next_life_does_not_inherit_a_failure():
    """A server that crashed, was started at once and was stopped was stopped."""
    server = Server(has_metrics=False).log(STARTING, READY, DEAD).log(STARTING, READY, TRIGGERED, FINISHED, after=10)

    assert ("down", "stopped") == cause(server)


def test_a_server_whose_log_just_ends_was_killed():
    """A log that is read to its end, and has neither a failure nor a stop, is that of a server that was killed."""
    server = Server().log(STARTING, READY).scrape(page(running=1)).scrape(after=60).scrape(after=5)

    assert ("down", "killed") == cause(server)


def test_a_server_without_a_log_that_has_answered_may_have_ended_in_any_way():
    """Nothing tells a crash from a stop then; one that was never there has another cause."""
    gone, never = Server(has_log=False).scrape(page()).scrape(after=5), Server(has_log=False).scrape()

    assert [("down", None), ("down", "never_answered")] == [cause(gone), cause(never)]


def test_no_other_state_has_a_cause():
    """A server that serves has none, nor one that starts or sleeps."""
    server = Server().log(STARTING)

    assert ("starting", None) == cause(server)
    assert ("serving", None) == cause(server.log(READY).scrape(page(running=1)))
    assert "cause" not in server_view(server.state.snapshot(server.now))["engines"][0]
    assert STATES["down"].text
