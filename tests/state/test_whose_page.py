# SPDX-License-Identifier: Apache-2.0
"""Whose page it is: one server's, several servers' in turn, or one that nobody has asked for anything yet."""

from __future__ import annotations

import pytest

from tests.support.pages import ScrapedServer, histogram, page, started

from vllm_watch.daemon.state.scrape_source import ALTERNATION_SECONDS


EOF = "# EOF\n"


def source(snapshot):
    """Return whether /metrics can be read, and why it says what it says."""
    (found,) = snapshot.sources
    return (found.is_up, found.reason)


class TestSeveralServers:
    """Two servers behind one address."""

    @staticmethod
    def answer(server, which, count, after=5.0):
        """Let one of two servers answer, whose counters are far apart."""
        return server.scrape(
            page(running=2, generated=count + 100_000 * which, extra=started(1e9 + 1000 * which)), after=after
        )

    def test_a_start_time_that_comes_back_is_no_restart(self):
        """Two servers that answer in turn are one restart at most, and the reason says what they are."""
        server = ScrapedServer()
        for number in range(180):
            snapshot = self.answer(server, number // 3 % 2, number)

        assert snapshot.starts == 1
        assert source(snapshot) == (False, "several_servers")

    def test_values_of_which_nobody_knows_the_server_are_not_shown(self):
        """Gauges and counters that would jump from one server's to the other's are absent."""
        server = ScrapedServer()
        for number in range(30):
            snapshot = self.answer(server, number // 3 % 2, number)

        (engine,) = snapshot.engines
        assert (engine.state, dict(engine.gauges), dict(engine.counters)) == ("unknown", {}, {})

    def test_it_is_over_once_one_server_answers_for_minutes(self):
        """After ten minutes without another turn the page is one server's again, and no restart is counted for it."""
        server = ScrapedServer()
        for number in range(9):
            before = self.answer(server, number // 3 % 2, number)
        for number in range(9, 15):
            after = self.answer(server, 0, number, after=ALTERNATION_SECONDS / 5)

        assert source(before) == (False, "several_servers")
        assert (source(after), after.starts, after.engines[0].state) == ((True, "ok"), 1, "serving")


class TestBeforeTheFirstRequest:
    """A server of which there is nothing to count yet."""

    def test_it_is_idle_and_misses_nothing(self):
        """The Rust front end's page without any series is read: the server is idle, and nothing is missing on it."""
        snapshot = ScrapedServer().scrape(EOF)

        assert source(snapshot) == (True, "no_requests_yet")
        assert snapshot.engines[0].state == "idle"
        assert not any(snapshot.missing_metrics.values())

    def test_series_that_vanish_are_a_restart(self):
        """A page that had engines and has none was started again."""
        server = ScrapedServer()
        server.scrape(page(running=1, generated=100))
        snapshot = server.scrape(EOF)

        assert (snapshot.starts, snapshot.engines[0].state) == (1, "idle")


class TestRequiredQuantities:
    """Which quantities a page lacks."""

    def test_histograms_are_missed_once_there_are_tokens(self):
        """A server that has generated tokens, and has no histogram of them, lacks two."""
        missing = ScrapedServer().scrape(page(prompt=10, generated=5)).missing_metrics

        assert {name for name, is_missing in missing.items() if is_missing} == {
            "time_to_first_token_seconds",
            "e2e_request_latency_seconds",
        }

    @pytest.mark.parametrize("line", ["kv_cache_usage_perc", "prompt_tokens_total", "generation_tokens_total"])
    def test_gauges_and_counters_are_missed_at_once(self, line):
        """What a page has from the start is missed from the start."""
        body = "".join(each for each in page().splitlines(keepends=True) if line not in each)

        assert sum(ScrapedServer().scrape(body).missing_metrics.values()) == 1

    def test_nothing_is_missed_on_a_whole_page(self):
        """A page with all of them lacks none."""
        both = "".join(
            histogram(name, {"1.0": 1, "+Inf": 1}, 0.5)
            for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds")
        )

        assert not any(ScrapedServer().scrape(page(generated=5, extra=both)).missing_metrics.values())
