# SPDX-License-Identifier: Apache-2.0
"""Two sources, one value: who decides, who stands in, and when nobody can say."""

from __future__ import annotations

import pytest

from tests.support.server_stories import BOTH, DEAD, LOG, METRICS, READY, STARTING, Server, line, page

from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.engine_log import GAUGES_OF_FIRST_LINE


BUSY, DONE = line(1, generation=5.0), page(generated=5)
STOPPED = b"INFO:     Finished server process [7]"
ANSWERED = b'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'
LOADED = b"INFO 11-21 02:50:10 [loader.py:1] Loading weights took 690.00 seconds"
SEVERAL = (
    b"WARNING 11-21 02:35:10 [loggers.py:1] AsyncLLM created with api_server_count more than 1; disabling "
    b"stats logging to avoid incomplete stats."
)
WAITS = (
    b"INFO 11-21 02:35:10 [shm_broadcast.py:871] No available shared memory broadcast block found in 60 seconds. "
    b"This typically happens when some processes are hanging or doing some time-consuming work (e.g. compilation)."
)

STORIES = {
    # An idle and a wedged engine are equally silent: the last line tells them apart.
    "A log that ended with a line of zeros says idle for hours.": (LOG, [line(), 36_000, "= idle"]),
    "A last line of 0.0 and 0.0 with a request running is a stall a minute after the last token.": (
        LOG, [BUSY, 10, line(1), 49, "= unknown", 1, "= stalled", 3600, "= stalled: log_fell_silent"]
    ),
    "An engine that printed tokens and then nothing at all is neither idle nor stalled.": (
        LOG, [BUSY, 31, "= unknown", "log = silent"]
    ),
    "An engine that was idle for an hour is not stalled when its next request has just arrived.": (
        METRICS,
        [page(generated=1), 3600, page(generated=1), 5, page(1, generated=2), "= serving"]
        + [5, page(1, generated=2)] * 6 + ["= stalled"],
    ),
    "A stall is as long as the configuration says.": (
        {**METRICS, "stall_after": 60},
        [page(1, generated=1)] + [5, page(1, generated=1)] * 11 + ["= serving", 5, page(1, generated=1), "= stalled"],
    ),
    "When /metrics takes connections and does not answer, an old idle line vouches for nothing.": (
        BOTH, [line(), page(), 5, "timeout", 15, "timeout", "= unknown"]
    ),
    # Starting, down, and words that are not believed.
    "A start without a word for ten minutes, while nothing listens, is a server that is down, and not sooner.": (
        BOTH, [STARTING, "refused", "= starting", 600, "refused", "= starting", 1, "refused", "= down"]
    ),
    "Where uvicorn's word that it is ready went elsewhere, an answer shows it.": (
        BOTH, [STARTING, 20, page(), "= idle"]
    ),
    "A stranger's fatal error does no harm: tokens that come after it show that the engine lives.": (
        BOTH,
        [page(1, generated=5), 1, DEAD, 4, page(1, generated=6), "= down", 5, page(1, generated=7), "= serving"],
    ),
    "While a long prompt is computed only the KV cache's use moves, and no dead engine moves that.": (
        BOTH, [page(1, kv=0.1), 1, DEAD, 5, page(1, kv=0.2), 5, page(1, kv=0.3), "= serving"]
    ),
    "An API server that answers once more while it stops after its engine died is not idle meanwhile.": (
        BOTH, [page(), 1, DEAD, 1, b"INFO:     Shutting down", 1, page(), "= down", 1, STOPPED, "= down"]
    ),
    "A process that was started after the fatal error is another one.": (
        BOTH, [page(), 1, DEAD, 10, page(start=1006.0), "= idle"]
    ),
    "One that listens again is another one.": (BOTH, [page(), 1, DEAD, 1, "refused", 10, page(), "= idle"]),
    "An idle server that still answers 30 s after its last word, with which its port is closed, has not ended.": (
        BOTH, [page(), 1, STOPPED, "= down", *[5, page()] * 7, "= idle"]
    ),
    "A server whose log has new statistics is not down because the configured port is the wrong one.": (
        BOTH, ["refused", 10, BUSY, 1, "refused", "= serving"]
    ),
    "A server that is ready and was asked nothing is idle, though it never printed statistics.": (
        LOG, [STARTING, READY, 900, "= idle", "log = idle"]
    ),
    "Requests are answered and no statistics come: the reason is that they are switched off.": (
        LOG, [STARTING, READY, 5, ANSWERED, 31, "= unknown", "log = stats_disabled"]
    ),
    "The warning that several API servers print no statistics is the reason of the silence.": (
        LOG, [STARTING, SEVERAL, READY, "log = api_servers_more_than_one"]
    ),
    "Every server has a state, even if its page has no engine's series yet.": (
        METRICS, [b'vllm:cache_config_info{block_size="16"} 1.0\n', "= unknown"]
    ),
    # Nothing listens: what that means depends on what was seen before.
    "The last line of a server that was killed is read after the refusal: the server is down all the same.": (
        BOTH,
        [STARTING, READY, line(3, generation=5.0), 5, page(3, generated=5), 5, "refused", 0.5, line()]
        + [5, "refused", "= down"] * 60,
    ),
    "So it is if that line has work.": (
        BOTH,
        [
            STARTING, READY, line(3, generation=5.0), 5, page(3, generated=5), 5, "refused", 0.5,
            line(3, generation=5.0), *[5, "refused", "= down"] * 60,
        ],
    ),
    "A server at another address than the configured one is down when its log falls silent, too.": (
        BOTH,
        [
            STARTING, READY, BUSY, "refused", *[10, BUSY, "refused"] * 2, *[10, BUSY, "refused", "= serving"] * 3,
            31, "refused", "= down",
        ],
    ),
    "A server that listens last, and whose log is still empty, is unknown for two minutes, then down.": (
        BOTH, ["refused", 120, "refused", "= unknown", 1, "refused", "= down"]
    ),
    "A start that prints again after ten minutes goes on.": (
        LOG, [STARTING, 700, "= unknown", LOADED, "= starting", "log = starting"]
    ),
    "Processes that say each minute that they wait for each other do not start on, and nothing listens.": (
        BOTH, [STARTING, *[60, WAITS, "refused", "= starting"] * 9, *[60, WAITS, "refused"] * 3, "= down"]
    ),
    # What no server answers any more is neither idle nor now down and now not.
    "A server that answers, but with no page, may be idle as its log says.": (
        BOTH, [STARTING, READY, line(), DONE, *[5, "unauthorized"] * 100, "= idle"]
    ),
    "A line of the log after the last refusal is of a server that may be there.": (
        BOTH, [STARTING, READY, line(), 1, DONE, 5, "refused", 5, "http_error", "= down", 5, BUSY, "= serving"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "story"), STORIES.values(), ids=STORIES)
def test_what_a_server_is(sources, story):
    """The sentence says what is true, and the story shows it."""
    Server(**sources).tell(*story)


@pytest.mark.parametrize("reason", ["unreachable", "http_error", "name_not_resolved", "tls_error", "timeout"])
def test_an_idle_log_of_a_server_that_answers_no_more_says_nothing(reason):
    """Where pages were read and no server has answered for three intervals, a silent log is no word of idleness."""
    Server().tell(STARTING, READY, line(), DONE, *[5, reason] * 4, *[5, reason, "= unknown"] * 96)


@pytest.mark.parametrize("sources", [BOTH, METRICS], ids=["both", "metrics"])
@pytest.mark.parametrize("other", ["http_error", "unreachable", "timeout"])
def test_down_holds_until_something_is_heard(other, sources):
    """A server that nothing listened for stays down while a gateway or nothing answers, until there is a page."""
    server = Server(**sources).tell(STARTING, READY, line(), 1, DONE)

    server.tell(*[5, "refused", "= down", 5, other, "= down"] * 25, 5, DONE, "= idle")


@pytest.mark.parametrize("news", [line(), BUSY, READY])
def test_after_lines_that_were_not_read_the_log_alone_knows_nothing_until_news(news):
    """Where a daemon that is far behind passes lines over, what was before them is not the present."""
    server = Server(**LOG).tell(STARTING, READY, BUSY)
    access = b'INFO:     127.0.0.1:1 - "GET /health HTTP/1.1" 200 OK'
    batch = server.reader.read([access], ArrivalTimes(server.now))
    server.state.apply_log(batch._replace(is_after_gap=True))
    server.tell("= unknown", 5, "= unknown", 600, "= unknown")

    assert server.log(news).engine().state in {"idle", "serving", "unknown" if news == READY else "idle"}


LINE = line(running=7, generation=1.0)
HITS = 'vllm:prefix_cache_{}_total{{engine="0",model_name="m"}} 5\n'
ALL_HIT = page(extra=HITS.format("queries") + HITS.format("hits"))
DECIDING = {
    "A page that was just read wins over a line that was just printed.": (
        BOTH, [LINE, page(running=3), "requests_running = 3 metrics"]
    ),
    "When the page cannot be read any more, the log's line is shown in the same moment.": (
        BOTH, [LINE, page(running=3), 1, "timeout", "requests_running = 7 log"]
    ),
    "Without a log a failed scrape leaves the last page's values for 15 s, and nothing after that.": (
        METRICS,
        [page(running=3), 5, "timeout", 10, "requests_running = 3 metrics", 1, "requests_running = absent"],
    ),
    "A statistics line is the present for 30 s, and nothing after that.": (
        LOG, [LINE, 30, "requests_running = 7 log", 1, "requests_running = absent"]
    ),
    "A page that can be read again decides at once.": (
        BOTH, [LINE, "timeout", 1, page(running=2), "requests_running = 2 metrics"]
    ),
    "A quantity that this server's pages do not have is taken from the log beside them.": (
        BOTH, [page(), LINE, "prefix_cache_hit_ratio = 0.1 log"]
    ),
    "One page gives no rate: the log's stands in until 10 s of pages are read.": (
        BOTH,
        [
            page(), BUSY, "generation_tokens_per_second = 5 log", 10, page(generated=30),
            "generation_tokens_per_second = 3 metrics",
        ],
    ),
    "A hit rate without a query is not 0, and the log's older one does not stand for it.": (
        BOTH, [ALL_HIT, 10, ALL_HIT, LINE, "prefix_cache_hit_ratio = absent"]
    ),
    "The log's fatal error is believed at once: nothing more is known of requests.": (
        LOG, [BUSY, DEAD, "= down", "requests_running = absent"]
    ),
    "So is a refusal.": (METRICS, [page(running=3), 5, "refused", "= down", "requests_running = absent"]),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "story"), DECIDING.values(), ids=DECIDING)
def test_who_decides(sources, story):
    """The sentence says what is true, and the story shows it."""
    Server(**sources).tell(*story)


class TestFromEach:
    """What is of one source, or of both."""

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

    def test_facts_hold_until_the_next_start(self):
        """Capacity holds for days, and is forgotten when the server starts again."""
        size = b"INFO 11-21 02:35:10 [kv_cache_utils.py:634] GPU KV cache size: 648,592 tokens"
        server = Server(has_metrics=False).log(STARTING, size, READY)
        held = server.engine(after=500_000).facts

        assert 648_592 == held["kv_cache_capacity_tokens"]
        assert "kv_cache_capacity_tokens" not in server.log(STARTING).engine().facts


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


class TestCounting:
    """Counters of the log, and restarts."""

    @pytest.mark.parametrize(("change", "starts"), [({"start": 9.0}, 1), ({"generated": 0}, 0)])
    def test_a_reset_begins_new_rates(self, change, starts):
        """No rate is taken across a restart, nor across counters that began anew without one."""
        server = Server(has_log=False).scrape(page(generated=500, running=1))
        server.scrape(page(generated=900, running=1), after=10)
        server.scrape(page(**{"generated": 950, "running": 1, **change}), after=10)

        assert server.value("generation_tokens_per_second") is None
        assert starts == server.state.snapshot(server.now).starts

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


@pytest.mark.parametrize(
    ("sources", "story", "wanted"),
    [
        (METRICS, [ALL_HIT], {"generation_tokens_per_second", "prompt_tokens_per_second", "prefix_cache_hit_ratio"}),
        (LOG, [STARTING, READY], GAUGES_OF_FIRST_LINE),
        (LOG, [STARTING, READY, line()], set()),
        (LOG, [STARTING, SEVERAL, READY], set()),
    ],
)
def test_what_there_will_be_once_there_is_traffic(sources, story, wanted):
    """What follows from the counters that a page has, or is in lines of statistics; nothing of a log without them."""
    server = Server(**sources).tell(*story)
    before, (known, names) = server.engine(), server.state.foresee(server.now)

    assert wanted == names
    assert (known.engines[0].state, server.engine()) == (before.state, before)
