# SPDX-License-Identifier: Apache-2.0
"""Which engine a line of the log is of: one of several, the only one, or all of them together."""

from __future__ import annotations

import pytest

from tests.state.test_hostile_pages import shown
from tests.state.test_kv_values import MOVED
from tests.support.server_stories import READY, STARTING, Server, line, page

from vllm_watch.daemon.reading.log_reader import LogBatch, TimedEvent
from vllm_watch_parsers.events import DiffusionDecoding
from vllm_watch_parsers.scrape import EngineKey


def record(message, process="APIServer", site="loggers.py"):
    """Return a record of a process."""
    return f"({process} pid=7) INFO 11-21 02:35:10 [{site}:335] {message}".encode()


def aggregated(count=2, running=2, waiting=0, generation=5.0):
    """Return the line that --aggregate-engine-logging prints."""
    return record(
        f"{count} Engines Aggregated: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: {generation} "
        f"tokens/s, Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: 1.0%"
    )


def rust(running=2, waiting=0, generation=5.0, preemptions=""):
    """Return the line of the Rust front end."""
    return record(
        f"Avg prompt tput: 1.0 toks/s, Avg generation tput: {generation} toks/s, Reqs Running: {running}, "
        f"Waiting: {waiting}{preemptions}, GPU KV cache used: 40.0%, Prefix cache hit rate: 0.0%",
        "RustFrontend",
        "log_stats.rs",
    )


def drafts():
    """Return the Rust front end's line on drafts."""
    return record(
        "SpecDecoding metrics: Mean acceptance length: 2.00, Accepted throughput: 1.00 tokens/s, Drafted throughput: "
        "2.00 tokens/s, Accepted: 10 tokens, Drafted: 20 tokens, Avg Draft acceptance rate: 50.0%",
        "RustFrontend",
        "log_stats.rs",
    )


def sizes(rank, tokens=1000, concurrency=2.0, seconds=5.0):
    """Return what an engine prints of itself when it starts."""
    core = "EngineCore" if rank is None else f"EngineCore_DP{rank}"
    return (
        record(f"Model loading took 2.5 GiB memory and {seconds:.6f} seconds", core, "gpu_model_runner.py"),
        record(f"GPU KV cache size: {tokens:,} tokens", core, "kv_cache_utils.py"),
        record(f"Maximum concurrency for 500 tokens per request: {concurrency:.2f}x", core, "kv_cache_utils.py"),
    )


def arguments(**given):
    """Return the line of arguments."""
    return record(f"non-default args: {given}", site="api_utils.py")


def configuration(rank, size):
    """Return an engine's configuration."""
    core = "EngineCore" if rank is None else f"EngineCore_DP{rank}"
    message = f"Initializing a V1 LLM engine (v0.32.0) with config: model='m', data_parallel_size={size}"
    return record(message, core, "core.py")


class TestAggregatedLines:
    """One line for all engines."""

    def test_capacity_is_that_of_all_engines(self):
        """Tokens and concurrency are added up, and loading took as long as for the slowest."""
        server = Server(has_metrics=False).log(STARTING, arguments(data_parallel_size=2))
        server.log(*sizes(0, 1000, 2.0, 5.0), *sizes(1, 3000, 6.0, 9.0), READY, aggregated())
        engine = server.engine()

        assert "aggregated" == engine.key.engine
        assert {
            "kv_cache_capacity_tokens": 4000,
            "max_concurrency": 8.0,
            "model_load_seconds": 9.0,
        }.items() <= engine.facts.items()

    def test_capacity_of_some_engines_is_not_that_of_all(self):
        """Where an engine printed into another node's log, nobody here knows the sum."""
        server = Server(has_metrics=False).log(STARTING, arguments(data_parallel_size=4))
        server.log(*sizes(0), *sizes(1), READY, aggregated(4))

        assert not {"kv_cache_capacity_tokens", "max_concurrency"} & set(server.engine().facts)


class TestRustFrontEnd:
    """Its one line names no engine, for it sums over all."""

    def test_it_is_of_no_single_engine(self):
        """Where nothing says how many engines there are, the line is called what it is."""
        server = Server(has_metrics=False).log(rust(running=48))

        assert ("aggregated", "serving") == (server.engine().key.engine, server.engine().state)

    def test_it_is_of_the_only_engine(self):
        """A page with one engine, or one engine's start, shows whose the line is: the log stands in under its name."""
        scraped = Server().scrape(page(running=3)).log(rust(running=7)).scrape(reason="timeout", after=1)
        started = Server(has_metrics=False).log(STARTING, *sizes(None), READY, rust(running=7))

        assert EngineKey("m", "0") == scraped.engine().key
        assert (7, "log") == scraped.value("requests_running") == started.value("requests_running")
        assert "0" == started.engine().key.engine

    def test_its_preemptions_are_added_up(self):
        """It counts the preemptions of each interval, and leaves the field out where there were none."""
        server = Server(has_metrics=False).log(rust(), rust(preemptions=", Preemptions: 3"))
        server.log(rust(preemptions=", Preemptions: 4"), after=10)

        assert 7 == server.engine().counters["preemptions_total"].value

    def test_lines_of_the_python_server_count_no_preemptions(self):
        """It resets the count before it prints it: a counter that stays at 0 would be a lie."""
        server = Server(has_metrics=False).log(line(running=1, generation=1.0))

        assert "preemptions_total" not in server.engine().counters


class TestDataParallelSize:
    """Each engine of a dense model runs by itself, and says that there is no other."""

    def size(self, *lines, **settings):
        """Return the size that is shown after some lines of a start."""
        return Server(has_metrics=False, **settings).log(STARTING, *lines).engine().facts.get("data_parallel_size")

    def test_the_arguments_know(self):
        """The arguments' size holds, whatever an engine says of itself, before or after them."""
        given = arguments(data_parallel_size=2)

        assert 2 == self.size(given, configuration(0, 1)) == self.size(configuration(0, 1), given)

    def test_one_engine_is_believed(self):
        """One engine without a size among the arguments is the only one."""
        assert 1 == self.size(arguments(max_model_len=5), configuration(None, 1), *sizes(None))

    def test_one_of_several_is_not_believed(self):
        """Two engines that each say that they are alone are not: the size is absent, not 1."""
        assert self.size(configuration(0, 1), configuration(1, 1), *sizes(0), *sizes(1)) is None


class TestPartialLines:
    """0.9.1 to 0.10.1 print a line for each of several API servers, each of its own requests."""

    def api(self, number, generation):
        """Return the line of one of several API servers."""
        return line(running=4, generation=generation).replace(
            b"INFO", b"(ApiServer_%d pid=%d) INFO" % (number, number), 1
        )

    def test_parts_are_not_shown_as_the_whole(self):
        """Lines of two API servers on one engine give no gauge, and the reason is said."""
        server = Server(has_metrics=False).log(STARTING, READY)
        for _ in range(5):
            server.log(self.api(0, 10.0), self.api(1, 90.0), after=10)

        assert {} == server.engine().gauges
        assert ("unknown", "api_servers_more_than_one") == (server.engine().state, server.reason("log"))

    def test_parts_do_not_disagree_with_the_page(self):
        """The page has all requests: that each line has fewer is no disagreement."""
        server = Server().log(STARTING, READY)
        for second in range(0, 400, 5):
            server.scrape(page(running=4, generated=100 * second), after=5)
            if second % 10 == 0:
                server.log(self.api(0, 10.0), self.api(1, 90.0))

        assert not any(server.engine().disagreements.values())
        assert (100.0, "metrics") == server.value("generation_tokens_per_second")

    def test_one_api_server_for_each_engine_is_no_part(self):
        """Processes that each print of an engine of their own print all of it."""
        other = self.api(1, 5.0).replace(b"Engine 000", b"Engine 001")
        server = Server(has_metrics=False).log(self.api(0, 5.0), other)

        assert ["serving"] * 2 == [engine.state for engine in server.state.snapshot(server.now).engines]


class TestStartsOfSeveralProcesses:
    """A supervisor starts a server for each rank; they say so in any order."""

    def start(self, rank):
        """Return the first line of a rank's server."""
        return record("vLLM server version 0.30.0, serving model Qwen/Qwen3", f"APIServer_DP{rank}", "utils.py")

    def ready(self, rank):
        """Return a rank's word that it is ready."""
        return f"(APIServer_DP{rank} pid=7) INFO:     Application startup complete.".encode()

    def starts(self, server):
        """Return how many starts were counted."""
        return server.state.snapshot(server.now).starts

    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 3, 0, 2), (3, 2, 1, 0)])
    @pytest.mark.parametrize(
        "supervisor", [(), (record("vLLM server version 0.30.0, serving model m", "DPSupervisor"),)]
    )
    def test_one_start_is_one_in_any_order(self, order, supervisor):
        """Whichever rank is first, and whether the supervisor says so, too, the server has started once."""
        server = Server().log(*supervisor, *(self.start(rank) for rank in order))

        assert 1 == self.starts(server)
        assert 1 == self.starts(server.log(*(self.ready(rank) for rank in order), after=60))

    def test_a_rank_that_begins_after_another_is_ready_is_of_the_same_start(self):
        """A slow rank's first line comes after a quick one is ready, and sets nothing back."""
        server = Server().log(self.start(1), self.ready(1)).log(self.start(0), after=5)

        assert (1, "idle") == (self.starts(server), server.engine().state)

    def test_one_rank_that_is_started_anew_is_no_start_of_the_server(self):
        """The supervisor starts a rank again that has died: the others go on, and so does what is known."""
        server = Server().log(*(self.start(rank) for rank in range(4)), self.ready(0)).log(line(1, generation=5.0))
        server.log(self.start(2), after=5)

        assert (1, "serving") == (self.starts(server), server.engine().state)

    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (1, 3, 0, 2)])
    def test_each_start_of_the_whole_server_counts(self, order):
        """A killed server that comes back with all its ranks has started again, ready or not the time before."""
        server = Server()
        for _ in range(2):
            server.log(*(self.start(rank) for rank in order), self.ready(0), after=60)
        server.log(*(self.start(rank) for rank in order), after=60).log(*(self.start(rank) for rank in order), after=5)

        assert 4 == self.starts(server)


def test_the_totals_of_a_v0_engine_are_its_own():
    """V0 prints what it has drafted since its start, and how many tokens a draft has: they are shown as they are."""
    drafts = (
        "INFO 11-21 02:35:10 metrics.py:349] Speculative metrics: Draft acceptance rate: 0.500, System efficiency: "
        "0.400, Number of speculative tokens: 5, Number of accepted tokens: {}, Number of draft tokens: {}, "
        "Number of emitted tokens: 9."
    )
    server = Server(has_metrics=False)
    for accepted, drafted in ((10, 20), (30, 60)):
        server.log(drafts.format(accepted, drafted).encode(), after=5)
    engine = server.engine()

    assert (30, 60) == tuple(
        engine.counters[f"spec_decode_{kind}_tokens_total"].value for kind in ("accepted", "draft")
    )
    assert 5 == engine.facts["num_speculative_tokens"]


def test_history_takes_no_count_back():
    """F7: lines of a file that was found later change no counter of drafts, preemptions, transfers, requests."""
    answered = b'INFO:     1.1.1.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'
    lines = (rust(preemptions=", Preemptions: 3"), drafts(), MOVED, answered)
    diffusion = TimedEvent(1000.0, DiffusionDecoding(None, 8.0, 4.0, 80, 20, 640))
    server = Server(has_metrics=False).log(*lines)
    server.state.apply_log(LogBatch((diffusion,), {}, 1, 0, server.now, 0))
    before = counters(server)
    server.log(*lines, is_history=True)

    assert before == counters(server)
    assert {
        "spec_decode_draft_tokens_total",
        "preemptions_total",
        "kv_transfers_total",
        "diffusion_denoising_steps_total",
        "http_requests_total",
    } <= {name for name, *_ in before}


def counters(server):
    """Return what has been counted."""
    return {key: value for key, value in shown(server).items() if key[0].endswith("_total")}
