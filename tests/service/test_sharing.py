# SPDX-License-Identifier: Apache-2.0
"""What all servers show is made once for all who ask together, and never older than a second."""

from __future__ import annotations

import gzip
import threading

from collections import Counter

import msgspec
import pytest
import structlog

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.clocks import HandClock
from tests.support.pages import page
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.catalog.limits import FEW_SERVERS, MAX_AGE
from vllm_watch.daemon.config.model import Config, MetricsConfig, ServerConfig
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.service.sharing import Shared, shared_seconds
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.state.scrape_source import scrape_result
from vllm_watch_parsers.scrape import read_metrics


INTERVAL = 5.0
GZIP = "gzip"


@pytest.fixture(autouse=True)
def _quiet():
    """Keep the log of hundreds of servers away."""
    with structlog.testing.capture_logs():
        yield


class Maker:
    """Makes numbers, and takes its time for it."""

    def __init__(self, clock, takes=0.0):
        self.clock = clock
        self.takes = takes
        self.made = 0

    def __call__(self, _key):
        """Return the next number."""
        self.clock.time += self.takes
        self.made += 1
        return self.made


class Fleet:
    """A daemon of many servers that nothing has started: the test scrapes them and lets time pass."""

    def __init__(self, count):
        self.clock = HandClock()
        metrics = MetricsConfig(url="http://127.0.0.1:9/metrics", interval=INTERVAL)
        servers = [ServerConfig(name=f"s{number}", metrics=metrics) for number in range(count)]
        self.service = Supervisor(Config(listen="127.0.0.1:0", servers=servers), self.clock)

    def scrape(self, **values):
        """Let every server be scraped now."""
        for server in self.service.fleet.servers:
            server._apply_scrape(scrape_result(self.clock.time, 0.01, read_metrics(page(**values).encode())))

    def metrics(self, encoding=""):
        """Return /metrics."""
        body = self.service.endpoints.metrics("", encoding).body
        return gzip.decompress(body) if encoding else body

    def running(self):
        """Return the requests that run by server, as /metrics and as the JSON have them; both must say the same."""
        by_text = {
            sample.labels["server"]: sample.value
            for family in parse_text(self.metrics().decode())
            for sample in family.samples
            if sample.name == "vllm_watch_requests_running"
        }
        servers = msgspec.json.decode(self.service.endpoints.snapshot(frozenset()).body)["servers"]
        gauges = {server["name"]: server["engines"][0]["gauges"].get("requests_running") for server in servers}
        assert by_text == {name: gauge["value"] for name, gauge in gauges.items() if gauge is not None}
        return by_text


@pytest.fixture
def snapshots(monkeypatch):
    """Count the snapshots that are taken, by server."""
    taken = Counter()
    take = ServerMonitor.snapshot
    monkeypatch.setattr(ServerMonitor, "snapshot", lambda self: (taken.update([self.name]), take(self))[1])
    return taken


def test_few_servers_are_shown_anew_and_many_once_a_second():
    """How old an answer may be grows with the number of servers, from nothing to a second."""
    ages = [shared_seconds(count) for count in range(1000)]

    assert [0.0] * (FEW_SERVERS + 1) == ages[: FEW_SERVERS + 1]
    assert sorted(ages) == ages
    assert 0.9 < ages[200] <= MAX_AGE == ages[-1] == 1.0


def test_it_is_made_once_within_its_age():
    """Who asks within the age gets what is there; its age counts from before it was made."""
    clock = HandClock()
    maker = Maker(clock, takes=0.3)
    shared = Shared(clock, maker)
    ages = []
    for _ in range(8):
        ages.append(shared.get("a", 1.0))
        clock.time += 0.25

    assert [1, 1, 1, 2, 2, 2, 3, 3] == ages
    assert (4, 4) == (shared.get("b", 1.0), shared.get("b", 1.0))


def test_with_no_age_it_is_made_each_time():
    """An age of 0 is for nobody but who asks."""
    shared = Shared(HandClock(), maker := Maker(HandClock()))

    assert [1, 2, 3] == [shared.get("a", 0.0) for _ in range(3)]
    assert 3 == maker.made


def test_a_failure_is_not_kept():
    """If it cannot be made, the next one who asks tries again."""
    shared = Shared(HandClock(), lambda _: 1 // len(failures))
    failures = []
    with pytest.raises(ZeroDivisionError):
        shared.get("a", 1.0)
    failures.append(1)

    assert 1 == shared.get("a", 1.0)


def test_who_asks_meanwhile_waits_for_it():
    """Several who ask while it is being made get the same, and it is made once."""
    begun, may_end, made, got = threading.Event(), threading.Event(), [], []

    def make(_key):
        begun.set()
        may_end.wait(SECONDS)
        made.append(1)
        return len(made)

    shared = Shared(HandClock(), make)
    threads = [threading.Thread(target=lambda: got.append(shared.get("a", 1.0))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert begun.wait(SECONDS)
    may_end.set()
    for thread in threads:
        thread.join(SECONDS)

    assert [1] * 5 == got
    until(lambda: not any(thread.is_alive() for thread in threads))


def test_one_snapshot_of_each_server_serves_everybody(snapshots):
    """Within half a second /metrics in both forms, the JSON and the charts take one snapshot of each server."""
    fleet = Fleet(210)
    fleet.scrape(running=3)
    for ask in (fleet.metrics, lambda: fleet.metrics(GZIP), fleet.running, fleet.service.fleet.record_history):
        ask()
        fleet.clock.time += 0.2

    assert {f"s{number}": 1 for number in range(210)} == snapshots
    assert [3.0] == fleet.service.fleet.servers[7].history.columns()["requests_running"]
    fleet.clock.time += 0.2
    fleet.metrics()
    assert {2} == set(snapshots.values())


@pytest.mark.slow
@pytest.mark.parametrize("later", [0.0, 0.3, 0.7, 0.999])
def test_no_value_is_more_than_a_second_old(later):
    """Whoever asked before and for what, what was scraped is shown a second later at the latest."""
    fleet = Fleet(210)
    fleet.scrape(running=1)
    fleet.service.fleet.snapshots()
    fleet.scrape(running=2)
    fleet.clock.time += later
    assert {1} == set(fleet.running().values())
    fleet.clock.time += MAX_AGE - later

    assert {2} == set(fleet.running().values())


def test_what_is_stale_is_gone_within_the_second():
    """A value that becomes stale after three intervals leaves /metrics and the JSON within a second after that."""
    fleet = Fleet(210)
    fleet.scrape(running=3)
    fleet.clock.time += 3 * INTERVAL
    assert 210 == len(fleet.running())
    fleet.clock.time += 0.001
    fleet.clock.time += MAX_AGE

    assert {} == fleet.running()


def test_few_servers_show_at_once_what_was_read():
    """With few servers nothing waits: what was scraped is in the next answer."""
    fleet = Fleet(FEW_SERVERS)
    for running in range(5):
        fleet.scrape(running=running)

        assert {running} == set(fleet.running().values())


def test_other_servers_are_other_answers():
    """After a reload nobody gets the servers from before it."""
    fleet = Fleet(100)
    fleet.scrape(running=3)
    fleet.running()
    config = fleet.service.fleet.config
    fleet.service.fleet.replace(msgspec.structs.replace(config, servers=config.servers[:50]))

    assert {f"s{number}" for number in range(50)} == set(fleet.running())
