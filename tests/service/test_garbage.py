# SPDX-License-Identifier: Apache-2.0
"""Servers that are not watched any more do not stay in memory, although garbage is searched for rarely."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.support.clocks import HandClock

from vllm_watch.daemon.config.model import Config, MetricsConfig, ServerConfig
from vllm_watch.daemon.service.garbage import AFTER_SECONDS, LONG_SEARCHES, RareSearch
from vllm_watch.daemon.service.supervisor import Supervisor


@pytest.fixture
def search():
    """A rare search by a clock that stands; garbage is searched for as usual afterwards."""
    before = gc.get_threshold()
    clock = HandClock()
    yield RareSearch(clock), clock
    gc.set_threshold(*before)


def config(*names):
    """Return a configuration of servers with logs, and with /metrics where nothing listens."""
    metrics = MetricsConfig(url="http://127.0.0.1:9/metrics")
    servers = tuple(ServerConfig(name=name, log=f"/nowhere/{name}.log", metrics=metrics) for name in names)
    return Config(servers=servers)


def test_all_objects_are_searched_rarely(search):
    """From the start on only new objects are searched again and again."""
    search[0].start()

    assert LONG_SEARCHES == gc.get_threshold()[2]


def test_replaced_servers_are_freed(search, monkeypatch):
    """A reload frees the servers that it replaces, some time later, and once."""
    clock = search[1]
    supervisor = Supervisor(config("a", "b"), clock)
    monkeypatch.setattr(supervisor.threads, "follow", lambda _servers: None)  # No thread is started.
    gone, kept = map(weakref.ref, supervisor.fleet.servers)
    gc.disable()
    try:
        supervisor._watch(config("b"))
        supervisor._garbage.search_if_due()
        assert gone() is not None
        clock.time += AFTER_SECONDS
        supervisor._garbage.search_if_due()
    finally:
        gc.enable()
        supervisor.fleet.close()

    assert gone() is None
    assert kept() is not None
    monkeypatch.setattr(gc, "collect", lambda: pytest.fail("nothing was replaced since"))
    clock.time += 2 * AFTER_SECONDS
    supervisor._garbage.search_if_due()
