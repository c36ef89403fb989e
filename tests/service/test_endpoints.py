# SPDX-License-Identifier: Apache-2.0
"""/metrics and the JSON of many servers show what is known at the moment they are asked for."""

from __future__ import annotations

import msgspec
import pytest
import structlog

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.pages import page
from tests.support.waiting import HandClock

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.state.scrape_source import scrape_result
from vllm_watch_parsers.scrape import read_metrics


INTERVAL = 5.0


@pytest.fixture(autouse=True)
def _quiet():
    """Keep the log of hundreds of servers away."""
    with structlog.testing.capture_logs():
        yield


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

    def running(self):
        """Return the requests that run by server, as /metrics and as the JSON have them; both must say the same."""
        by_text = {
            sample.labels["server"]: sample.value
            for family in parse_text(self.service.endpoints.metrics("").body.decode())
            for sample in family.samples
            if sample.name == "vllm_watch_requests_running"
        }
        servers = msgspec.json.decode(self.service.endpoints.snapshot(frozenset()).body)["servers"]
        gauges = {server["name"]: server["engines"][0]["gauges"].get("requests_running") for server in servers}
        assert by_text == {name: gauge["value"] for name, gauge in gauges.items() if gauge is not None}
        return by_text


def test_every_answer_has_what_is_known_now():
    """What was scraped is in the next /metrics, and in the next JSON, of however many servers."""
    fleet = Fleet(210)
    for running in range(3):
        fleet.scrape(running=running)

        assert [running] * 210 == list(fleet.running().values())


def test_what_is_stale_is_gone():
    """A value that becomes stale after three intervals leaves /metrics and the JSON at that moment."""
    fleet = Fleet(10)
    fleet.scrape(running=3)
    fleet.clock.time += 3 * INTERVAL
    assert 10 == len(fleet.running())
    fleet.clock.time += 0.001

    assert {} == fleet.running()


def test_other_servers_are_other_answers():
    """After a reload nobody gets the servers from before it."""
    fleet = Fleet(100)
    fleet.scrape(running=3)
    fleet.running()
    config = fleet.service.fleet.config
    fleet.service.fleet.replace(msgspec.structs.replace(config, servers=config.servers[:50]))

    assert {f"s{number}" for number in range(50)} == set(fleet.running())
