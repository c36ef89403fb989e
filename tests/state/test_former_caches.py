# SPDX-License-Identifier: Apache-2.0
"""How large the KV cache was at the last start with the same flags: over starts of the server and of the daemon."""

from __future__ import annotations

import msgspec
import pytest

from tests.state.test_configuration import arguments, engine, record, version
from tests.support.server_stories import READY, Server, line, page

from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.state.kept_facts import KeptFacts


LOG = "/var/log/vllm.log"
FORMER, PRESENT = "kv_cache_capacity_former_tokens", "kv_cache_capacity_tokens"
BOTH, LOG_ALONE = {}, {"has_metrics": False}


def start(server, tokens, at=1000.0, has_scrape=False, **flags):
    """Let a server start with a KV cache of so many tokens; `None`: it ends before it has one."""
    server.log(version(), arguments(**flags), engine(), after=30)
    if tokens is None:
        return server
    server.log(record(f"GPU KV cache size: {tokens:,} tokens", "kv_cache_utils.py"), READY, line(), after=30)
    return server.scrape(page(start=at), after=2).scrape(page(start=at), after=2) if has_scrape else server


def former(server):
    """Return the size at the former start, if it is shown."""
    return server.engine().facts.get(FORMER)


def after_restart(server, **how):
    """Return the server as the next run of the daemon sees it, with what was written into the file."""
    again = Server(**how)
    again.now = server.now + 60
    kept = msgspec.json.decode(msgspec.json.encode(server.state.life.kept("s", LOG)), type=KeptFacts)
    again.state.life.restore(kept)
    return again


@pytest.mark.parametrize("how", [BOTH, LOG_ALONE], ids=["both", "log"])
def test_the_size_at_the_last_start_with_the_same_flags(how):
    """Starts with other flags, and one that ended before it had a cache, are none of it."""
    server, has_scrape = Server(**how), how == BOTH
    sizes = []
    for at, (tokens, seqs) in enumerate([(100_000, 8), (50_000, 4), (None, 8), (None, 4), (80_000, 8), (80_000, 8)]):
        start(server, tokens, 1000.0 * (at + 1), has_scrape, max_num_seqs=seqs)
        sizes.append(former(server))

    assert sizes == [None, None, None, None, 100_000, 80_000]
    assert 80_000 in {
        sample.value for sample in server_samples(server.state.snapshot(server.now)) if sample.name == FORMER
    }


def test_a_start_that_both_sources_report_is_one():
    """/metrics shows the new process seconds after the log: the size of that start is no former one."""
    server = start(Server(), 100_000, 1000.0, has_scrape=True)
    start(server, 80_000, 2000.0, has_scrape=True)

    assert (80_000, 100_000) == tuple(server.engine().facts.get(name) for name in (PRESENT, FORMER))


@pytest.mark.parametrize("is_logged", [True, False])
def test_it_outlives_the_daemon(is_logged):
    """A start while no daemon ran is seen in the log that goes on, or by the process's start."""
    before = start(start(Server(), 120_000, 500.0, has_scrape=True), 100_000, 1000.0, has_scrape=True)
    same = after_restart(before)
    same.state.life.resume_log(LOG, goes_on=True)
    same.log(line(), after=1).scrape(page(start=1000.0))
    server = after_restart(before)
    server.state.life.resume_log(LOG, goes_on=is_logged)
    if not is_logged:
        server.scrape(page(start=2000.0), after=1)
    start(server, 80_000, 2000.0, has_scrape=True)

    assert (120_000, 100_000) == (former(same), former(server))
