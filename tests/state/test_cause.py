# SPDX-License-Identifier: Apache-2.0
"""Why an engine is saturated or down: by what its sources show of it, and by nothing from an earlier time."""

from __future__ import annotations

import pytest

from tests.state.test_shutdown import FINISHED, TRIGGERED
from tests.support.server_stories import BOTH, DEAD, LOG, METRICS, READY, STARTING, Server, line, page

from vllm_watch.daemon.exposition.json_view import server_view
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.state.kept_facts import RunningServer, ServerProcess
from vllm_watch_parsers.flags import CommandFacts


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


def test_deferred_requests_fill_the_batch():
    """3 running and 5 deferred requests take 8 places, as vllm-project/vllm#53130 shows; here 2 and 2 take 4."""
    server = Server().log(STARTING, ARGUMENTS, READY)
    for count in range(2):
        server.scrape(page(running=2, waiting=27, deferred=2, kv=0.2, generated=50 * count, steps=9 * count), after=5)
    only_log = Server(has_metrics=False)
    only_log.log(STARTING, ARGUMENTS, READY, line(running=2, waiting=25, generation=9.0, deferred=2))

    assert ("saturated", "batch_full") == cause(server) == cause(only_log)


LIMITS = [
    ({"max_num_seqs": 256, "max_num_active_seqs": 4}, 4),
    ({"max_num_active_seqs": 4}, 4),
    ({"max_num_seqs": 9}, 9),
]


@pytest.mark.parametrize(("flags", "limit"), LIMITS)
@pytest.mark.parametrize("is_logged", [True, False])
def test_the_smaller_limit_is_the_one_that_counts(flags, limit, is_logged):
    """--max-num-active-seqs lets fewer requests in than the batch has room for, in the log and on the command line."""
    server = Server().log(STARTING)
    if is_logged:
        server.log(f"INFO 11-21 02:35:11 [utils.py:233] non-default args: { ({'model': 'm', **flags}) }".encode())
    else:
        known = tuple((flag.replace("_", "-"), str(value)) for flag, value in flags.items())
        server.state.life.note_process(RunningServer(ServerProcess(1, 1), CommandFacts(flags=known)), server.now)
    for count in range(2):
        server.scrape(page(running=limit, waiting=7, generated=50 * count, steps=9 * count), after=5)

    assert ("saturated", "batch_full") == cause(server)
    assert limit == server.engine().facts["max_running_requests"]


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


BUSY = line(running=1, generation=9.0)
STORIES = {
    "The API server of an engine that died ends in order, a moment later: that is not what ended the server.": (
        LOG, [(STARTING, READY, DEAD), 5, (TRIGGERED, FINISHED), "= down: engine_died"]
    ),
    "Who stops the server minutes after a failure has stopped it.": (
        LOG, [(STARTING, READY, WORKER, BUSY), 720, BUSY, 10, (TRIGGERED, FINISHED), "= down: stopped"]
    ),
    "A server that crashed, was started at once and was stopped was stopped.": (
        LOG, [(STARTING, READY, DEAD), 10, (STARTING, READY, TRIGGERED, FINISHED), "= down: stopped"]
    ),
    "A log that is read to its end, and has neither a failure nor a stop, is that of a server that was killed.": (
        BOTH, [(STARTING, READY), page(running=1), 60, "refused", 5, "refused", "= down: killed"]
    ),
    "Nothing tells a crash from a stop of a server without a log that has answered.": (
        METRICS, [page(), 5, "refused", "= down: None"]
    ),
    "One that was never there has another cause.": (METRICS, ["refused", "= down: never_answered"]),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "story"), STORIES.values(), ids=STORIES)
def test_what_ended_a_server(sources, story):
    """The sentence says what is true, and the story shows it."""
    Server(**sources).tell(*story)
