# SPDX-License-Identifier: Apache-2.0
"""When a server is probed, and what is shown of it: in time that the test lets pass."""

from __future__ import annotations

import pytest

from tests.support.server_stories import DEAD, READY, Server, page

from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.state.probe_source import LEAST_PAUSE, ProbeResult


class Probed(Server):
    """A server with a page that is read all the time, perhaps a log, and with a probe of every minute."""

    def __init__(self, every=60.0, has_log=False):
        super().__init__(has_log=has_log, probe_every=every)

    def probe(self, reason="ok", seconds=None, takes=0.0):
        """Let a probe begin now and end so."""
        self.state.start_probe(self.now)
        self.now += takes
        self.state.apply_probe(ProbeResult(self.now, reason, 0.2 if reason == "ok" else seconds))

    @property
    def wait(self):
        """The seconds until the next probe."""
        return self.state.next_probe(self.now) - self.now

    def shown(self):
        """Return the series on the probe by name and reason."""
        samples = server_samples(self.state.snapshot(self.now))
        return {
            (sample.name, *sample.labels[1:]): sample.value
            for sample in samples
            if sample.name.startswith("probe") or "probe" in sample.labels
        }


class TestTurns:
    """A sick server is left in peace, a new one is asked soon."""

    def test_failures_are_repeated_at_growing_distances(self):
        """After a failure the next probe comes at the next turn, then later and later, up to five minutes."""
        server, waits = Probed(), []
        for _ in range(6):
            server.probe("timeout", takes=20.0)
            waits.append(server.wait + 20)
            server.now += server.wait
        server.probe("ok", takes=0.2)

        assert [60, 120, 240, 300, 300, 300] == waits
        assert 59.8 == pytest.approx(server.wait)

    def test_none_is_due_while_one_is_under_way(self):
        """The turn counts from a probe's beginning, so that none is due while one takes its time."""
        server = Probed()
        server.state.start_probe(server.now)
        server.now += 59
        assert server.wait == 1

    def test_a_server_that_comes_back_is_asked_soon(self):
        """Once a server is up again its old failures are void: nothing is said until it was asked, which is soon."""
        server = Probed().scrape(page())
        for _ in range(4):
            server.probe("timeout")
            server.now += server.wait
        server.probe("timeout")
        server.scrape(reason="refused", after=5)
        waits_while_down = server.wait
        server.scrape(page(), after=5)

        assert waits_while_down > 200
        assert server.wait <= LEAST_PAUSE
        assert server.shown() == {("source_up", "probe"): 0, ("source_info", "probe", "starting"): 1}

    def test_an_engine_that_its_log_calls_dead_is_asked(self):
        """Whether the word was true nobody but a probe can tell where nothing else is asked; an answer ends it."""
        server = Probed(has_log=True).log(READY).scrape(page())
        server.probe()
        server.log(DEAD, after=1).scrape(page(), after=4)
        called, wait = server.engine().state, server.wait
        server.now += wait
        server.probe()
        server.scrape(page(generated=1), after=5)

        assert ("down", "serving") == (called, server.engine().state)
        assert wait <= 60


class TestShown:
    """What is shown is so now, or it is not shown."""

    def test_a_timeout_beside_an_idle_page(self):
        """A failed probe is shown as one and has no time; the state stays what the page says."""
        server = Probed().scrape(page())
        server.probe("ok")
        server.now += 60
        server.probe("timeout", takes=20)
        server.scrape(page())
        shown = server.shown()

        assert "idle" == server.state.snapshot(server.now).engines[0].state
        assert (0, 0) == (shown["probe_success",], shown["source_up", "probe"])
        assert ("source_info", "probe", "timeout") in shown
        assert ("probe_time_to_first_token_seconds",) not in shown
        assert 1000 == shown["source_last_reading_timestamp_seconds", "probe"]

    @pytest.mark.parametrize(("reason", "after"), [("ok", 181), ("timeout", 181)])
    def test_a_result_that_is_old_is_gone(self, reason, after):
        """Where no probe ends any more, the last one's result is gone after three turns, and the reason says why."""
        server = Probed().scrape(page())
        server.probe(reason)
        server.scrape(page(), after=after - 1)
        shown_before = server.shown()
        server.scrape(page(), after=2)
        shown = server.shown()

        assert ("probe_success",) in shown_before
        assert ("probe_success",) not in shown
        assert ("source_info", "probe", "overdue") in shown
        assert 0 == shown["source_up", "probe"]
