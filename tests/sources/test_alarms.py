# SPDX-License-Identifier: Apache-2.0
"""Calls at a later time, all from one thread."""

from __future__ import annotations

import threading

from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.sources.alarms import Alarms


def test_calls_come_in_the_order_in_which_they_are_due():
    """One that is due earlier than all others comes first, whenever it was set; one that is cancelled never comes."""
    alarms, called, is_last = Alarms(), [], threading.Event()
    cancelled = alarms.set(0.02, lambda: called.append("cancelled"))
    alarms.set(60.0, lambda: called.append("late"))
    alarms.set(0.2, is_last.set)
    alarms.set(0.1, lambda: called.append("second"))
    alarms.set(0.05, lambda: called.append("first"))
    cancelled.cancel()

    assert is_last.wait(SECONDS)
    assert ["first", "second"] == called


def test_one_thread_makes_all_calls():
    """However many alarms are set, one thread waits for them, and it goes on after it had nothing to wait for."""
    alarms, callers = Alarms(), []
    for count in (20, 40):
        for _ in range(20):
            alarms.set(0.0, lambda: callers.append(threading.current_thread()))
        until(lambda count=count: len(callers) == count)

    assert 1 == len(set(callers))
    assert "alarms" == callers[0].name


def test_a_call_that_fails_takes_no_other_with_it():
    """A call that raises is logged, and those after it come: else no request would have a deadline any more."""
    alarms, is_last = Alarms(), threading.Event()

    def fail():
        raise ValueError("made up")

    alarms.set(0.0, fail)
    alarms.set(0.02, is_last.set)

    assert is_last.wait(SECONDS)
