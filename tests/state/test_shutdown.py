# SPDX-License-Identifier: Apache-2.0
"""An orderly stop is no crash, and a crash while stopping is one; processes that wait while they compile are none."""

from __future__ import annotations

import pytest

from tests.state.test_sources_together import DEAD, READY, STARTING, Server, line, page


SHUTTING_DOWN = b"INFO:     Shutting down"
TRIGGERED = b"(APIServer pid=1) INFO 11-21 23:13:43 [launcher.py:254] [shutdown] API server: shutdown triggered"
COMPLETE = b"INFO:     Application shutdown complete."
FINISHED = b"INFO:     Finished server process [7]"
HANDLER = b"ERROR 11-21 02:35:10 [async_llm.py:890] AsyncLLM output_handler failed."


def died(server, after=0.0):
    """Return how often the engine is said to have died."""
    server.now += after
    return server.state.snapshot(server.now).log.events["engine_dead"]


def started(**settings):
    """Return a server that has a request running."""
    return Server(has_metrics=False, **settings).log(STARTING, READY, line(1, generation=5.0))


@pytest.mark.parametrize("begin", [SHUTTING_DOWN, TRIGGERED])
@pytest.mark.parametrize("end", [[HANDLER, FINISHED], [HANDLER, COMPLETE, FINISHED], [COMPLETE, HANDLER, FINISHED]])
def test_an_orderly_stop_is_no_crash(begin, end):
    """What fails between the beginning of a shutdown and its end, or just after it, is part of it."""
    server = started().log(begin, after=5).log(*end, after=2)

    assert 0 == died(server, after=600)
    assert "down" == server.engine().state


def test_a_shutdown_without_an_end_is_a_crash():
    """A server that fails while it shuts down, and says nothing of its end for two minutes, has crashed."""
    server = started().log(SHUTTING_DOWN, after=5).log(HANDLER, after=2)

    assert (0, 1) == (died(server, after=120), died(server, after=1))
    assert 1 == died(server.log(FINISHED, after=60), after=600)


def test_a_strangers_word_hides_no_dead_engine_for_long():
    """
    An engine that died after a word of a shutdown, and whose end does not follow, is down while its server answers.

    One that only shuts down is not: it serves while it answers.
    """
    server = Server().log(STARTING, READY).scrape(page()).log(TRIGGERED, after=5).log(HANDLER, after=2)
    for _ in range(26):
        server.scrape(page(), after=5).engine()
    orderly = Server().log(STARTING, READY).scrape(page()).log(TRIGGERED, after=5).scrape(page(), after=130)

    assert ("down", "idle") == (server.engine().state, orderly.engine().state)


@pytest.mark.parametrize("end", [FINISHED, STARTING])
def test_a_crash_that_was_counted_stays_counted(end):
    """A counter never falls, though an end was written in time: it is read after the crash was counted."""
    server = started().log(SHUTTING_DOWN, after=5).log(HANDLER, after=2)
    counted = died(server, after=121)
    server.now -= 60
    server.log(end)

    assert (1, 1) == (counted, died(server, after=120))


@pytest.mark.parametrize(("seconds", "crashes"), [(90, 0), (121, 1)])
def test_the_next_start_is_an_end(seconds, crashes):
    """A server that is killed since it does not end by itself, and soon starts again, was stopped; later it crashed."""
    server = started().log(SHUTTING_DOWN, after=5).log(HANDLER, after=2).log(STARTING, after=seconds)

    assert crashes == died(server, after=600)


def test_a_crash_that_ends_in_order_is_a_crash():
    """A server whose engine died shuts down after it: that makes the death no part of the shutdown."""
    server = started().log(DEAD, after=5).log(TRIGGERED, SHUTTING_DOWN, COMPLETE, FINISHED, after=2)

    assert 1 == died(server, after=600)


def test_the_next_life_counts_again():
    """A crash of the server that was started after an orderly stop is counted at once."""
    server = started().log(SHUTTING_DOWN, HANDLER, FINISHED, after=5).log(STARTING, READY, after=5)

    assert 1 == died(server.log(DEAD, after=5))


def test_a_strangers_word_hides_no_crash_for_long():
    """A server that computes prompts minutes after it is said to shut down does not; its crash counts at once."""
    server = started().log(SHUTTING_DOWN, after=5).log(line(1, prompt=9.0, generation=5.0), after=130)

    assert 1 == died(server.log(DEAD, after=5))


def test_what_failed_before_anyone_watched_is_not_counted():
    """A shutdown that the daemon finds in the log's past counts nothing, and its end counts nothing later."""
    server = Server(has_metrics=False).log(STARTING, READY, SHUTTING_DOWN, HANDLER, is_history=True)

    assert 0 == died(server, after=600)


def test_a_finished_log_that_ends_without_an_end_tells_of_a_crash():
    """Of a log that is read when all is over no end can follow."""
    assert 1 == died(started(keeps_stale=True).log(SHUTTING_DOWN, HANDLER, after=5))


def test_a_server_that_finishes_what_runs_is_not_down_by_its_log():
    """From the log alone a server that was told to stop is not down while its statistics tell of tokens."""
    server = started().log(TRIGGERED, after=5)
    finishing = server.engine(after=5).state
    server.log(line(0), after=10)

    assert ("serving", "down") == (finishing, server.engine().state)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_shutdown_that_does_not_end_is_none(is_busy):
    """A crash ten minutes after a word of a shutdown counts at once, unless the server finished what ran until then."""
    server = started().log(TRIGGERED, after=5)
    for _ in range(70):
        server.log(line(1, generation=5.0 * is_busy), after=10)

    assert (0 if is_busy else 1) == died(server.log(DEAD, after=5).log(FINISHED, after=5), after=1)


LATE = (
    b"(EngineCore pid=7) INFO 11-21 02:35:10 [shm_broadcast.py:681] No available shared memory broadcast block found "
    b"in 60 seconds. This typically happens when some processes are hanging or doing some time-consuming work."
)


def late(server):
    """Return how often processes are said to have waited for each other."""
    return server.state.snapshot(server.now).log.events["shm_timeout"]


def test_a_start_that_compiles_counts_no_wait():
    """Between the start's first words and its last they may wait as often as they like."""
    server = Server(has_metrics=False).log(STARTING).log(LATE, after=60).log(LATE, after=60).log(READY, after=60)

    assert 0 == late(server)


def test_first_requests_that_compile_count_no_wait():
    """Until its first token, and for five minutes at most, a server that is ready may compile."""
    server = Server(has_metrics=False).log(STARTING).log(READY, after=60).log(LATE, after=100)

    assert (0, 1) == (late(server), late(server.log(LATE, after=201)))


def test_a_server_that_has_served_counts_them():
    """A wait after tokens have come is counted, also soon after the start."""
    server = Server(has_metrics=False).log(STARTING, READY, line(1, generation=5.0)).log(LATE, after=60)

    assert 1 == late(server)


def test_a_server_whose_start_nobody_saw_counts_them():
    """Where the start is not known nothing is taken for compiling."""
    assert 1 == late(Server(has_metrics=False).log(LATE))
