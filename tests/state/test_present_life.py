# SPDX-License-Identifier: Apache-2.0
"""Facts are of the server's present life: they survive the daemon, and never the server."""

from __future__ import annotations

import pytest

from tests.state.test_configuration import arguments, engine, version
from tests.support.server_stories import READY, Server, line, page

from vllm_watch.daemon.state.kept_facts import RunningServer
from vllm_watch_parsers.flags import CommandFacts


LOG = "/var/log/vllm.log"
FOUR, EIGHT = (CommandFacts(flags=(("max-num-seqs", number),), model="m") for number in ("4", "8"))


def limit(server):
    """Return the most requests that run at once, as far as that is known."""
    return server.state.snapshot(server.now).engines[0].facts.get("max_running_requests")


def kept(server):
    """Return what a checkpoint holds of a server."""
    return server.state.life.kept("s", LOG)


def after_restart(server, **how):
    """Return the server as the next run of the daemon sees it, before it has read anything."""
    again = Server(**how)
    again.now = server.now + 60
    again.state.life.restore(kept(server))
    return again


def runs(server, process, command=FOUR):
    """Let the process table show a server's process, or none."""
    server.now += 1
    server.state.life.note_process(None if process is None else RunningServer((process, process), command), server.now)
    return server


def started(**given):
    """Return a server whose start is in the log."""
    return Server().log(version(), arguments(**given), engine(), READY)


class TestKept:
    """What the next run of the daemon knows."""

    def test_the_log_goes_on(self):
        """Flags, version and model of a start that the log has no more are those of the earlier run."""
        before = started(max_num_seqs=4)
        server = after_restart(before)
        assert limit(server) is None
        server.state.life.resume_log(LOG, goes_on=True)
        server.log(line(running=1))
        was, now = (each.state.snapshot(each.now) for each in (before, server))

        assert 4 == limit(server)
        assert (was.version, was.engine_generation, was.model_name) == (
            now.version,
            now.engine_generation,
            now.model_name,
        )
        assert was.configuration.flags == now.configuration.flags
        assert was.configuration.digest == now.configuration.digest
        assert kept(before) == kept(server)

    def test_another_log_proves_nothing(self):
        """A configuration that gives the server another log leaves open whether it was started again."""
        server = after_restart(started(max_num_seqs=4))
        server.state.life.resume_log("/var/log/other.log", goes_on=True)

        assert limit(server) is None

    def test_a_log_with_missing_lines(self):
        """Lines that one run has missed are missing for the next one, too: only the process may still tell."""
        before = started(max_num_seqs=4)
        before.scrape(page(start=1000.0))
        missed = after_restart(before)
        missed.state.life.resume_log(LOG, goes_on=False)
        server = after_restart(missed)
        server.state.life.resume_log(LOG, goes_on=True)
        assert limit(server) is None
        server.scrape(page(start=1000.0))

        assert 4 == limit(server)

    @pytest.mark.parametrize(("start", "expected"), [(1000.0, 4), (1000.5, 4), (1200.0, None)])
    def test_the_process_that_metrics_report(self, start, expected):
        """The start that /metrics reports tells whether it is the process that the earlier run knew."""
        before = started(max_num_seqs=4)
        before.scrape(page(start=1000.0))
        server = after_restart(before)
        server.scrape(page(start=start))

        assert expected == limit(server)

    @pytest.mark.parametrize("how", ["log", "metrics"])
    def test_a_later_start_ends_what_was_kept(self, how):
        """Whichever source shows another start, nothing that the earlier run knew is left."""
        before = started(max_num_seqs=4)
        before.scrape(page(start=1000.0))
        server = after_restart(before)
        server.state.life.resume_log(LOG, goes_on=True)
        assert 4 == limit(server)
        if how == "log":
            server.log(version())
        else:
            server.scrape(page(start=1300.0))

        assert limit(server) is None
        assert "max-num-seqs" not in server.state.snapshot(server.now).configuration.flags

    def test_what_is_not_confirmed_is_kept_on(self):
        """A run that ends before any source was read costs the next one nothing."""
        server = after_restart(started(max_num_seqs=4))

        assert kept(server).facts.max_num_seqs == 4

    def test_nothing_is_kept_of_nothing(self):
        """Of a server of which nothing is known there is nothing to keep."""
        assert kept(Server()) is None

    def test_what_could_not_be_loaded_is_not_kept(self):
        """A fact that no server can have must not cost the positions of the logs."""
        server = started(max_num_seqs=4)
        server.state._sources.log.facts.max_num_seqs = -1

        assert kept(server) is None


class TestOneLife:
    """One start of the server ends what all sources have said of the former one, once."""

    def test_the_log_reports_it_first(self):
        """The command line of the old process is not that of the new one, which is asked for."""
        server = runs(Server().log(line(running=1)), 7)
        assert not server.state.life.wants_process
        server.log(version(), after=1)

        assert limit(server) is None
        assert server.state.life.wants_process
        assert 8 == limit(runs(server, 9, EIGHT))
        assert not server.state.life.wants_process

    def test_a_look_from_before_the_start_is_of_the_old_process(self):
        """A list of processes that was made before the log's line about the start is not taken for one after it."""
        server = Server().log(line(running=1))
        looked_at = server.now
        server.log(version(), after=1)
        server.state.life.note_process(RunningServer((7, 7), FOUR), looked_at)

        assert limit(server) is None

    def test_each_source_reports_the_same_start(self):
        """The process, the log and /metrics show a start one after the other, and what each says of it stays."""
        server = runs(started(max_num_seqs=4), 7, FOUR)
        server.scrape(page(start=1000.0))
        runs(server, 9, CommandFacts(flags=(("dtype", "half"),)))
        assert limit(server) is None
        server.log(version(), arguments(max_num_seqs=8), READY)
        server.scrape(page(start=server.now))
        flags = server.state.snapshot(server.now).configuration.flags

        assert (8, "log", "command line") == (limit(server), flags["max-num-seqs"].source, flags["dtype"].source)

    def test_a_page_of_the_old_process_after_the_start_of_the_new_one(self):
        """While a gateway still shows the old process, its end is not a start of the new one."""
        server = started(max_num_seqs=4)
        server.scrape(page(start=1000.0))
        server.log(version(), arguments(max_num_seqs=8), READY)
        server.scrape(page(start=1000.0))
        server.scrape(page(start=server.now))

        assert 8 == limit(server)

    def test_a_process_that_cannot_be_seen(self):
        """Where the process table shows nothing, what is known holds."""
        assert 4 == limit(runs(runs(Server(), 7), None))
