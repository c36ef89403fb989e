# SPDX-License-Identifier: Apache-2.0
"""Two sources, one value: who decides, who stands in, and when nobody can say."""

from __future__ import annotations

import pytest

from tests.support.recordings import log_of

from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import LogStatus, TailCounts
from vllm_watch_parsers.scrape import Unreadable, read_metrics


def page(running=0, waiting=0, generated=0, steps=0, deferred=0, kv=0.5, start=1.0, engine="0", extra=""):
    """Return a page with these values."""
    labels = f'engine="{engine}",model_name="m"'
    return (
        f"vllm:num_requests_running{{{labels}}} {running}\n"
        f"vllm:num_requests_waiting{{{labels}}} {waiting}\n"
        f'vllm:num_requests_waiting_by_reason{{{labels},reason="deferred"}} {deferred}\n'
        f"vllm:kv_cache_usage_perc{{{labels}}} {kv}\n"
        f"vllm:prompt_tokens_total{{{labels}}} 0\n"
        f"vllm:generation_tokens_total{{{labels}}} {generated}\n"
        f'vllm:iteration_tokens_total_bucket{{{labels},le="+Inf"}} {steps}\n'
        f"vllm:iteration_tokens_total_sum{{{labels}}} {steps}\n"
        f"process_start_time_seconds {start}\n{extra}"
    ).encode()


def line(running=0, waiting=0, prompt=0.0, generation=0.0, engine="000", version=""):
    """Return a statistics line with these values."""
    return (
        f"INFO 11-21 02:35:10 [loggers.py:118] Engine {engine}: Avg prompt throughput: {prompt} tokens/s, "
        f"Avg generation throughput: {generation} tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, "
        f"GPU KV cache usage: 25.0%, Prefix cache hit rate: 10.0%{version}"
    ).encode()


class Server:
    """A server's state with a clock, driven by the test."""

    def __init__(self, has_log=True, has_metrics=True, interval=5.0, **settings):
        self.state = ServerState(ServerSettings("s", has_log, interval if has_metrics else None, **settings))
        self.state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=TailCounts()))
        self.reader = LogReader()
        self.now = 1000.0

    def log(self, *lines, after=0.0, is_history=False):
        """Let lines be written, later."""
        self.now += after
        batch = self.reader.read(lines, ArrivalTimes(self.now))
        self.state.apply_log(batch._replace(is_history=is_history))
        return self

    def scrape(self, body=None, reason="refused", after=0.0):
        """Let the page be read, later, or not."""
        self.now += after
        reading = read_metrics(body) if body is not None else None
        if isinstance(reading, Unreadable):
            reading, reason = None, reading.reason
        self.state.apply_scrape(ScrapeResult(self.now, 0.01, reading, "ok" if reading else reason))
        return self

    def engine(self, after=0.0, index=0):
        """Return what is known of an engine, later."""
        self.now += after
        return self.state.snapshot(self.now).engines[index]

    def value(self, name, after=0.0):
        """Return a gauge and who said it, later."""
        reading = self.engine(after).gauges.get(name)
        return reading and (reading.value, reading.source)

    def reason(self, source):
        """Return why a source says what it says."""
        return next(s.reason for s in self.state.snapshot(self.now).sources if s.source == source)


READY = b"INFO:     Application startup complete."
STARTING = b"INFO 11-21 02:35:10 [api_server.py:1] vLLM API server version 0.9.2"
DEAD = b"ERROR 11-21 02:35:10 [core.py:1] EngineCore encountered a fatal error."


class TestWhoDecides:
    """Which source a gauge comes from."""

    def test_the_scrape_decides_where_both_are_fresh(self):
        """A page that was just read wins over a line that was just printed."""
        server = Server().log(line(running=7, generation=1.0)).scrape(page(running=3))

        assert (3, "metrics") == server.value("requests_running")

    def test_the_log_stands_in_at_once(self):
        """When the page cannot be read any more, the log's line is shown in the same moment."""
        server = Server().log(line(running=7, generation=1.0)).scrape(page(running=3)).scrape(reason="timeout", after=1)

        assert (7, "log") == server.value("requests_running")

    def test_a_page_is_kept_for_three_intervals_without_a_log(self):
        """Without a log a failed scrape leaves the last page's values for 15 s, and nothing after that."""
        server = Server(has_log=False).scrape(page(running=3)).scrape(reason="timeout", after=5)
        kept = server.value("requests_running", after=10)

        assert ((3, "metrics"), None) == (kept, server.value("requests_running", after=1))

    def test_a_line_is_gone_after_three_intervals(self):
        """A statistics line is the present for 30 s, and nothing after that."""
        server = Server(has_metrics=False).log(line(running=7, generation=1.0))
        kept = server.value("requests_running", after=30)

        assert ((7, "log"), None) == (kept, server.value("requests_running", after=1))

    def test_the_scrape_decides_again_when_it_is_back(self):
        """A page that can be read again decides at once."""
        server = Server().log(line(running=7, generation=1.0)).scrape(reason="timeout").scrape(page(running=2), after=1)

        assert (2, "metrics") == server.value("requests_running")

    def test_what_no_page_says_may_come_from_the_log(self):
        """A quantity that this server's pages do not have is taken from the log beside them."""
        server = Server().scrape(page()).log(line(running=1, generation=1.0))

        assert (0.1, "log") == server.value("prefix_cache_hit_ratio")

    def test_the_log_says_rates_until_there_are_two_pages(self):
        """One page gives no rate: the log's stands in until 10 s of pages are read."""
        server = Server().scrape(page(generated=0)).log(line(running=1, generation=5.0))
        first = server.value("generation_tokens_per_second")
        server.scrape(page(generated=30), after=10)

        assert ((5, "log"), (3, "metrics")) == (first, server.value("generation_tokens_per_second"))

    def test_a_ratio_of_nothing_is_absent(self):
        """A hit rate without a query is not 0, and the log's older one does not stand for it."""
        counters = 'vllm:prefix_cache_queries_total{engine="0"} 5\nvllm:prefix_cache_hits_total{engine="0"} 5\n'
        body = page(extra=counters.replace('engine="0"', 'engine="0",model_name="m"'))
        server = Server().scrape(body).scrape(body, after=10).log(line(running=1, generation=1.0))

        assert server.value("prefix_cache_hit_ratio") is None

    def test_counters_never_come_from_the_log_of_a_scraped_server(self):
        """While /metrics is away its counters are away: the log's own sums are of another beginning."""
        spec = (
            b"INFO 11-21 02:35:10 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted "
            b"throughput: 1.00 tokens/s, Drafted throughput: 1.00 tokens/s, Accepted: 10 tokens, Drafted: 10 tokens, "
            b"Per-position acceptance rate: 1.000, Avg Draft acceptance rate: 100.0%"
        )
        scraped = Server().log(line(running=1, generation=1.0), spec)
        alone = Server(has_metrics=False).log(line(running=1, generation=1.0), spec)

        assert {} == scraped.engine().counters
        assert 10 == alone.engine().counters["spec_decode_accepted_tokens_total"].value

    def test_both_readings_are_shown_side_by_side(self):
        """What each source says of the main quantities can be compared."""
        server = Server().log(line(running=7, generation=1.0)).scrape(page(running=3))
        said = server.engine().by_source

        assert (7, 3) == tuple(said[source]["requests_running"].value for source in ("log", "metrics"))


class TestIdleAndStalled:
    """An idle and a wedged engine are equally silent: the last line tells them apart."""

    def test_an_idle_line_holds(self):
        """A log that ended with a line of zeros says idle for hours."""
        server = Server(has_metrics=False).log(line())

        assert "idle" == server.engine(after=36_000).state
        assert (0, "log") == server.value("requests_running")

    def test_a_line_with_work_and_no_token_is_a_stall(self):
        """A last line of 0.0 and 0.0 with a request running is a stall a minute after the last token."""
        server = Server(has_metrics=False).log(line(1, generation=5.0)).log(line(1), after=10)
        early = server.engine(after=49).state

        assert ("unknown", "stalled") == (early, server.engine(after=1).state)
        assert "log_fell_silent" == server.engine(after=3600).cause

    def test_silence_after_a_line_with_tokens_is_unknown(self):
        """An engine that printed tokens and then nothing at all is neither idle nor stalled."""
        server = Server(has_metrics=False).log(line(1, generation=5.0))

        assert "unknown" == server.engine(after=31).state
        assert "silent" == server.reason("log")

    def test_the_clock_of_a_stall_starts_with_the_work(self):
        """An engine that was idle for an hour is not stalled when its next request has just arrived."""
        server = Server(has_log=False).scrape(page(generated=1))
        server.scrape(page(generated=1), after=3600).scrape(page(running=1, generated=2), after=5)

        assert "serving" == server.engine().state
        for _ in range(6):
            server.scrape(page(running=1, generated=2), after=5)
        assert "stalled" == server.engine().state

    def test_the_time_until_a_stall_can_be_set(self):
        """A stall is as long as the configuration says."""
        body = page(running=1, generated=1)
        server = Server(has_log=False, stall_after=60).scrape(body)
        for _ in range(11):
            server.scrape(body, after=5)
        early = server.engine().state

        assert ("serving", "stalled") == (early, server.scrape(body, after=5).engine().state)

    def test_an_idle_word_means_nothing_when_the_server_hangs(self):
        """When /metrics takes connections and does not answer, an old idle line vouches for nothing."""
        server = Server().log(line()).scrape(page()).scrape(reason="timeout", after=5)
        server.scrape(reason="timeout", after=15)

        assert "unknown" == server.engine().state


class TestLifeAndDeath:
    """starting, down, and words that are not believed."""

    def test_a_start_that_never_ends_is_no_start(self):
        """A start without a word for ten minutes, while nothing listens, is a server that is down, and not sooner."""
        server = Server().log(STARTING).scrape()
        before = server.scrape(after=600).engine().state
        server.scrape(after=1)

        assert ("starting", "down") == (before, server.engine().state)

    def test_an_answering_server_is_not_starting(self):
        """Where uvicorn's word that it is ready went elsewhere, an answer shows it."""
        server = Server().log(STARTING).scrape(page(), after=20)

        assert "idle" == server.engine().state

    def test_a_fatal_error_is_the_end(self):
        """The log's fatal error is believed at once, and its values are gone."""
        server = Server(has_metrics=False).log(line(1, generation=1.0), DEAD)

        assert "down" == server.engine().state
        assert server.value("requests_running") is None

    def test_a_fatal_error_is_not_believed_of_a_server_that_goes_on(self):
        """A stranger's fatal error does no harm: tokens that come after it show that the engine lives."""
        server = Server().scrape(page(running=1, generated=5)).log(DEAD, after=1)
        server.scrape(page(running=1, generated=6), after=4)
        believed = server.engine().state
        server.scrape(page(running=1, generated=7), after=5)

        assert ("down", "serving") == (believed, server.engine().state)

    def test_a_long_prompt_shows_that_the_engine_lives(self):
        """While a long prompt is computed only the KV cache's use moves, and no dead engine moves that."""
        server = Server().scrape(page(running=1, kv=0.1)).log(DEAD, after=1)
        for kv in (0.2, 0.3):
            server.scrape(page(running=1, kv=kv), after=5)

        assert "serving" == server.engine().state

    @pytest.mark.parametrize("running", [0, 3])
    def test_a_dead_engine_behind_a_server_that_stays_is_down(self, running):
        """
        A page that stands still is no sign of life: hours later the engine is still down, and nothing disagrees.

        With VLLM_KEEP_ALIVE_ON_ENGINE_DEATH the API server answers on, and what was computed just before the engine
        died comes to light on its next page. Where requests ran they are on its page for ever.
        """
        server = Server().scrape(page(running=running, generated=5)).log(DEAD, after=4)
        for minute in range(120):
            server.scrape(page(running=running, generated=6), after=1 if minute == 0 else 4)
            engine = server.engine(after=1)
            assert ("down", False) == (engine.state, engine.disagreements.get("engine_state", False)), minute

    def test_a_server_that_shuts_down_for_its_dead_engine_stays_down(self):
        """An API server that answers once more while it stops after its engine died is not idle meanwhile."""
        server = Server().scrape(page()).log(DEAD, after=1)
        server.log(b"INFO:     Shutting down", after=1)

        assert "down" == server.scrape(page(), after=1).engine().state
        assert "down" == server.log(b"INFO:     Finished server process [7]", after=1).engine().state

    @pytest.mark.parametrize("reason", [None, "refused"])
    def test_a_server_that_was_started_since_is_not_dead(self, reason):
        """A process that was started after the fatal error, or that listens again, is another one."""
        server = Server().scrape(page()).log(DEAD, after=1)
        start = 1.0 if reason else server.now + 5
        if reason:
            server.scrape(reason=reason, after=1)

        assert "idle" == server.scrape(page(start=start), after=10).engine().state

    def test_an_end_is_not_believed_for_long_of_a_server_that_answers(self):
        """An idle server that still answers 30 s after its last word, with which its port is closed, has not ended."""
        server = Server().scrape(page()).log(b"INFO:     Finished server process [7]", after=1)
        believed = server.engine().state
        for _ in range(7):
            server.scrape(page(), after=5)

        assert ("down", "idle") == (believed, server.engine().state)

    def test_a_log_that_goes_on_shows_a_wrong_address(self):
        """A server whose log has new statistics is not down because the configured port is the wrong one."""
        server = Server().scrape().log(line(1, generation=5.0), after=10).scrape(after=1)

        assert "serving" == server.engine().state

    def test_facts_hold_until_the_next_start(self):
        """Capacity holds for days, and is forgotten when the server starts again."""
        size = b"INFO 11-21 02:35:10 [kv_cache_utils.py:634] GPU KV cache size: 648,592 tokens"
        server = Server(has_metrics=False).log(STARTING, size, READY)
        held = server.engine(after=500_000).facts

        assert 648_592 == held["kv_cache_capacity_tokens"]
        assert "kv_cache_capacity_tokens" not in server.log(STARTING).engine().facts

    def test_an_untouched_server_is_idle(self):
        """A server that is ready and was asked nothing is idle, though it never printed statistics."""
        server = Server(has_metrics=False).log(STARTING, READY)

        assert ("idle", "idle") == (server.engine(after=900).state, server.reason("log"))

    def test_answers_without_statistics_are_said(self):
        """Requests are answered and no statistics come: the reason is that they are switched off."""
        post = b'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'
        server = Server(has_metrics=False).log(STARTING, READY).log(post, after=5)

        assert "unknown" == server.engine(after=31).state
        assert "stats_disabled" == server.reason("log")

    def test_several_api_servers_are_said(self):
        """The warning that several API servers print no statistics is the reason of the silence."""
        notice = (
            b"WARNING 11-21 02:35:10 [loggers.py:1] AsyncLLM created with api_server_count more than 1; disabling "
            b"stats logging to avoid incomplete stats."
        )
        server = Server(has_metrics=False).log(STARTING, notice, READY)

        assert "api_servers_more_than_one" == server.reason("log")


class TestNames:
    """A model has one name, whichever source is there."""

    ARGUMENTS = (
        b"INFO 11-21 02:35:10 [utils.py:233] non-default args: {'model': '/data/m', 'served_model_name': ['My Model']}"
    )

    def name(self, server):
        """Return the name that the engine's series have now."""
        return server.engine().key.model_name

    def test_the_pages_name_stays_when_the_page_fails(self):
        """A served name that no log line can vouch for is known from the page: the path does not take its place."""
        server = Server().log(STARTING, self.ARGUMENTS, READY, line())
        named = page().replace(b'model_name="m"', b'model_name="My Model"')
        before = self.name(server)
        server.scrape(named, after=5).scrape(reason="timeout", after=60)

        assert ("/data/m", "My Model") == (before, self.name(server))

    def test_it_is_known_at_the_next_start(self):
        """The same model that starts again has the same name from its first words on, and another has its own."""
        named = page().replace(b'model_name="m"', b'model_name="My Model"')
        server = Server().log(STARTING, self.ARGUMENTS, READY).scrape(named, after=5).scrape(after=5)
        same = self.name(server.log(STARTING, self.ARGUMENTS, after=60))
        other = self.name(server.log(STARTING, self.ARGUMENTS.replace(b"/data/m", b"/data/n"), after=60))

        assert ("My Model", "/data/n") == (same, other)


class TestCounting:
    """Counters of the log, and restarts."""

    def test_history_is_not_counted(self):
        """Starts, failures and requests from before the daemon came are not in its counters."""
        server = Server(has_metrics=False)
        server.log(STARTING, READY, DEAD, b'INFO:     1.1.1.1:1 - "GET /health HTTP/1.1" 200 OK', is_history=True)
        snapshot = server.state.snapshot(server.now)

        assert (0, 0, {}) == (snapshot.starts, snapshot.log.events["engine_dead"], snapshot.http_requests)
        assert "down" == snapshot.engines[0].state

    def test_every_kind_of_failure_begins_at_zero(self):
        """A counter that is there from the start has a rate at its first increment."""
        events = Server().state.snapshot(0).log.events

        assert {0} == set(events.values())
        assert {"out_of_memory", "engine_dead", "nccl_error", "worker_died", "shm_timeout"} <= set(events)

    @pytest.mark.parametrize(("change", "starts"), [({"start": 9.0}, 1), ({"generated": 0}, 0)])
    def test_a_reset_begins_new_rates(self, change, starts):
        """No rate is taken across a restart, nor across counters that began anew without one."""
        server = Server(has_log=False).scrape(page(generated=500, running=1))
        server.scrape(page(generated=900, running=1), after=10)
        server.scrape(page(**{"generated": 950, "running": 1, **change}), after=10)

        assert server.value("generation_tokens_per_second") is None
        assert starts == server.state.snapshot(server.now).starts

    def test_a_page_without_an_engine_still_has_a_state(self):
        """Every server has a state, even if its page has no engine's series yet."""
        server = Server(has_log=False).scrape(b'vllm:cache_config_info{block_size="16"} 1.0\n')

        assert "unknown" == server.engine().state

    def test_a_share_is_no_more_than_all(self):
        """A page is read while its counters grow: hits that are ahead of their queries are all of them."""
        queries = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
        extra = '{0}{{engine="0",model_name="m"}} {2}\n{1}{{engine="0",model_name="m"}} {3}\n'
        server = Server(has_log=False)
        for at, counts in enumerate(((10, 10), (20, 21))):
            server.scrape(page(extra=extra.format(*queries, *counts)), after=10.0 * at)

        assert (1.0, "metrics") == server.value("prefix_cache_hit_ratio")

    @pytest.mark.parametrize(("accepted", "shown"), [((5, 4), []), ((5, 9), [1.0]), ((5, 6), [0.5])])
    def test_positions_are_shares(self, accepted, shown):
        """A position's counter that falls says nothing, and no position is accepted more often than drafted."""
        labels = 'engine="0",model_name="m"'
        server = Server(has_log=False)
        for drafts, count in enumerate(accepted):
            extra = (
                f"vllm:spec_decode_num_drafts_total{{{labels}}} {2 * drafts}\n"
                f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="0"}} {count}\n'
            )
            server.scrape(page(extra=extra), after=10.0)

        assert shown == [reading.value for reading in server.engine().position_acceptance]

    @pytest.mark.parametrize(
        ("printed", "shown"),
        [("0.500, nan, 0.250", {"0": 0.5, "2": 0.25}), ("nan, 0.125", {"1": 0.125}), ("nan, nan", {})],
    )
    def test_a_position_that_is_not_known_keeps_its_place(self, printed, shown):
        """A ``nan`` among the rates by position says nothing of its own position, and moves no other."""
        spec = (
            "INFO 11-21 02:35:10 [metrics.py:96] SpecDecoding metrics: Mean acceptance length: 2.00, Accepted "
            "throughput: 1.00 tokens/s, Drafted throughput: 1.00 tokens/s, Accepted: 10 tokens, Drafted: 10 tokens, "
            f"Per-position acceptance rate: {printed}, Avg Draft acceptance rate: 100.0%"
        )
        server = Server(has_metrics=False).log(line(running=1, generation=1.0), spec.encode())
        samples = server_samples(server.state.snapshot(server.now))

        found = {s.labels[-1]: s.value for s in samples if s.name == "spec_decode_position_acceptance_ratio"}
        assert shown == found

    def test_a_counter_that_comes_back_lower_has_no_rate(self):
        """S8: an engine that is missing on a page and begins anew has not made fewer tokens than none."""
        server = Server(has_log=False).scrape(page(generated=1000)).scrape(page(engine="1"), after=10.0)

        assert server.scrape(page(generated=10), after=10.0).value("generation_tokens_per_second") is None


class TestRefused:
    """Nothing listens: what that means depends on what was seen before."""

    @pytest.mark.parametrize("last", [line(), line(3, generation=5.0)], ids=["idle", "busy"])
    def test_a_line_that_is_read_late_keeps_no_killed_server_alive(self, last):
        """The last line of a server that was killed is read after the refusal: the server is down all the same."""
        server = Server().log(STARTING, READY, line(3, generation=5.0)).scrape(page(running=3, generated=5), after=5)
        server.scrape(after=5).log(last, after=0.5)

        assert {"down"} == {server.scrape(after=5).engine().state for _ in range(60)}

    def test_a_log_that_goes_on_and_then_ends_is_a_server_that_is_gone(self):
        """A server at another address than the configured one is down when its log falls silent, too."""
        server = Server().log(STARTING, READY, line(1, generation=5.0)).scrape()
        alive = {server.log(line(1, generation=5.0), after=10).scrape().engine().state for _ in range(5)}
        server.scrape(after=31)

        assert ({"serving"}, "down") == (alive - {"down"}, server.engine().state)

    def test_a_server_that_nobody_has_seen_may_be_starting(self):
        """A server that listens last, and whose log is still empty, is unknown for two minutes, then down."""
        server = Server().scrape()
        early = server.scrape(after=120).engine().state

        assert ("unknown", "down") == (early, server.scrape(after=1).engine().state)

    @pytest.mark.parametrize("reason", [None, "http_error", "timeout", "unreachable", "unauthorized"])
    def test_a_silent_start_is_unknown_where_nobody_says_that_nothing_listens(self, reason):
        """Killed while it loads, a server does not start for ever: after ten minutes its log is no word of a start."""
        server = Server(has_metrics=reason is not None).log(STARTING)
        if reason is not None:
            server.scrape(reason=reason)
        states = [server.engine(after=after).state for after in (0, 600, 1, 86_400)]

        assert ["starting", "starting", "unknown", "unknown"] == states
        assert "silent" == server.reason("log")

    def test_a_line_of_the_start_ends_the_doubt(self):
        """A start that prints again after ten minutes goes on."""
        server = Server(has_metrics=False).log(STARTING)
        silent = server.engine(after=700).state
        server.log(b"INFO 11-21 02:50:10 [loader.py:1] Loading weights took 690.00 seconds")

        assert ("unknown", "starting") == (silent, server.engine().state)
        assert "starting" == server.reason("log")

    def test_a_recorded_kill_while_loading_is_no_start_by_the_log_alone(self):
        """A real server's log that ends while it loads says ``starting`` for ten minutes after its last line."""
        lines = log_of("loadkill").split(b"\n")
        server = Server(has_metrics=False).log(*lines)

        assert ["starting", "starting", "unknown"] == [server.engine(after=after).state for after in (0, 600, 1)]


@pytest.mark.parametrize("news", [line(), line(1, generation=5.0), READY])
def test_after_lines_that_were_not_read_the_log_alone_knows_nothing_until_news(news):
    """Where a daemon that is far behind passes lines over, what was before them is not the present."""
    server = Server(has_metrics=False).log(STARTING, READY, line(1, generation=5.0))
    access = b'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'
    batch = server.reader.read([access], ArrivalTimes(server.now))
    server.state.apply_log(batch._replace(is_after_gap=True))
    states = {server.engine(after=after).state for after in (0, 5, 600)}

    assert {"unknown"} == states
    assert server.log(news).engine().state in {"idle", "serving", "unknown" if news == READY else "idle"}


class TestAServerThatIsGone:
    """What no server answers any more is neither idle nor now down and now not."""

    @pytest.mark.parametrize("reason", ["unreachable", "http_error", "name_not_resolved", "tls_error", "timeout"])
    def test_an_idle_log_of_a_server_that_answers_no_more_says_nothing(self, reason):
        """Where pages were read and no server has answered for three intervals, a silent log is no word of idleness."""
        server = Server().log(STARTING, READY, line()).scrape(page(generated=5))
        states = [server.scrape(reason=reason, after=5).engine().state for _ in range(100)]

        assert {"unknown"} == set(states[4:])

    def test_a_page_that_is_kept_from_the_daemon_says_nothing_of_the_server(self):
        """A server that answers, but with no page, may be idle as its log says."""
        server = Server().log(STARTING, READY, line()).scrape(page(generated=5))

        assert "idle" == [server.scrape(reason="unauthorized", after=5) for _ in range(100)][-1].engine().state

    @pytest.mark.parametrize("has_log", [True, False])
    @pytest.mark.parametrize("other", ["http_error", "unreachable", "timeout"])
    def test_down_holds_until_something_is_heard(self, other, has_log):
        """A server that nothing listened for stays down while a gateway or nothing answers, until there is a page."""
        server = Server(has_log=has_log).log(STARTING, READY, line()).scrape(page(generated=5), after=1)
        states = {server.scrape(reason=("refused", other)[turn % 2], after=5).engine().state for turn in range(50)}

        assert ({"down"}, "idle") == (states, server.scrape(page(generated=5), after=5).engine().state)

    def test_a_line_ends_it(self):
        """A line of the log after the last refusal is of a server that may be there."""
        server = Server().log(STARTING, READY, line()).scrape(page(generated=5), after=1).scrape(after=5)
        down = server.scrape(reason="http_error", after=5).engine().state

        assert ("down", "serving") == (down, server.log(line(1, generation=5.0), after=5).engine().state)


def test_a_start_that_hangs_ends():
    """Processes that say each minute that they wait for each other do not start on, and nothing listens."""
    waits = (
        b"INFO 11-21 02:35:10 [shm_broadcast.py:871] No available shared memory broadcast block found in 60 seconds. "
        b"This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation)."
    )
    server = Server().log(STARTING)
    states = [server.log(waits, after=60).scrape().engine().state for _ in range(20)]

    assert ["starting"] * 9 == states[:9]
    assert {"down"} == set(states[11:])
