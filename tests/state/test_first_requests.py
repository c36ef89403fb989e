# SPDX-License-Identifier: Apache-2.0
"""Processes that wait for each other while they compile are not counted."""

from __future__ import annotations

from tests.state.test_sources_together import READY, STARTING, Server, line


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
