# SPDX-License-Identifier: Apache-2.0
"""The daemon's time goes on while the machine is suspended, as that of a server elsewhere does."""

from __future__ import annotations

import time

import pytest

from tests.support.pages import ScrapedServer, page

from vllm_watch.daemon.support.clock import SystemClock, steady_seconds


class Machine:
    """A machine's clocks, and a suspension of it."""

    def __init__(self, monkeypatch):
        self.boot = self.monotonic = 5000.0
        self.wall = 1_795_000_000.0
        monkeypatch.setattr(time, "clock_gettime", lambda clock: self.boot if clock == time.CLOCK_BOOTTIME else None)
        monkeypatch.setattr(time, "monotonic", lambda: self.monotonic)
        monkeypatch.setattr(time, "time", lambda: self.wall)

    def run(self, seconds):
        """Let time pass."""
        self.sleep(seconds)
        self.monotonic += seconds

    def sleep(self, seconds):
        """Let time pass while the machine is suspended."""
        self.boot += seconds
        self.wall += seconds


@pytest.fixture
def machine(monkeypatch):
    """Return the machine that this process runs on."""
    return Machine(monkeypatch)


def test_it_goes_on_while_the_machine_is_suspended(machine):
    """An hour of suspension is an hour of the daemon's time, and nothing makes that differ from the wall clock's."""
    clock = SystemClock()
    machine.run(10)
    before = clock.now()
    machine.sleep(3600)

    assert clock.now() - before == 3600
    assert clock.wall(clock.now()) == machine.wall


def test_a_corrected_wall_clock_changes_nothing(machine):
    """A wall clock that is set moves no age."""
    clock = SystemClock()
    before = clock.now()
    machine.wall += 7200

    assert clock.now() == before


def test_it_never_goes_back():
    """The machine's own clock only grows."""
    readings = [steady_seconds() for _ in range(1000)]

    assert readings == sorted(readings)


def test_what_a_remote_server_did_meanwhile_is_no_rate_of_now(machine):
    """After an hour of suspension the tokens of that hour are not those of the last ten seconds."""
    clock, server = SystemClock(), ScrapedServer()
    for second in (0, 5, 10, 3610, 3615, 3620):
        (machine.sleep if second == 3610 else machine.run)(3600 if second == 3610 else 5)
        engine = server.scrape(page(running=1, generated=100 * second), after=clock.now() - server.now).engines[0]
        rate = engine.gauges.get("generation_tokens_per_second")

        assert rate is None or rate.value == pytest.approx(100, rel=0.2)
