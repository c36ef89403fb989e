# SPDX-License-Identifier: Apache-2.0
"""E4: whatever a log or a page holds, the series are bounded, and what is left out is counted."""

from __future__ import annotations

import pytest

from tests.parsers.lines import STATS_MESSAGE, TIME, record
from tests.support.exposition import exported

from vllm_watch.daemon.catalog.codes import MAX_ENGINES as MAX_LOG_ENGINES
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.log_source import MAX_REQUEST_KEYS, MAX_UNKNOWN_FIELDS
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.scrape import MAX_ENGINES, MAX_LABEL_VALUES, read_metrics


pytestmark = pytest.mark.slow


MANY = 2_000
"""More than the limit of anything."""
RUNNING = 'vllm:num_requests_running{{engine="{}",model_name="{}"}} 1'


class Server:
    """A state with a log and a page, and what it shows."""

    def __init__(self, has_log=True, has_metrics=True):
        self.state = ServerState(ServerSettings("s", has_log, 5.0 if has_metrics else None))
        self.reader = LogReader()

    def log(self, lines):
        """Let lines be written."""
        self.state.apply_log(self.reader.read([line.encode() for line in lines], ArrivalTimes(1000.0)))

    def scrape(self, lines):
        """Let a page be read."""
        self.state.apply_scrape(ScrapeResult(1000.0, 0.1, read_metrics("\n".join([*lines, ""]).encode()), "ok"))

    def names(self, name):
        """Return the labels of a series."""
        return [sample.labels for sample in server_samples(self.state.snapshot(1000.0)) if sample.name == name]

    def dropped(self, source):
        """Return how many names were left out of a source."""
        return self.state.snapshot(1000.0).label_values_dropped[source]

    def page(self):
        """Return the whole page."""
        return exported(self.state.snapshot(1000.0))


def test_engines_in_the_log():
    """E4: of 2,000 engines in a log so many are shown as a server may have, and the lines of the others counted."""
    server = Server(has_metrics=False)
    lines = [record(STATS_MESSAGE.replace("Engine 000", f"Engine {number}")).decode() for number in range(MANY)]
    starts = [
        f"(EngineCore_DP{number} pid=1) INFO {TIME} [x.py:1] GPU KV cache size: 9 tokens" for number in range(MANY)
    ]
    server.log(lines + starts)

    assert MAX_LOG_ENGINES == len(server.names("requests_running"))
    assert MANY - MAX_LOG_ENGINES == server.dropped("log")
    assert MAX_LOG_ENGINES == len(server.state._sources.log.facts.engines)
    assert len(server.page()) < 2_000_000


def test_processes_in_the_log():
    """E4: drafts of 2,000 processes are added up for so many engines as a server may have."""
    server = Server(has_metrics=False)
    for number in range(MANY):
        process = f"(p pid={number}) "
        stats = record(STATS_MESSAGE.replace("Engine 000", f"Engine {number}"), process=process).decode()
        spec = "SpecDecoding metrics: Accepted: 1 tokens, Drafted: 2 tokens, Avg Draft acceptance rate: 50.0%"
        server.log([stats, record(spec, "metrics.py", process=process).decode()])

    assert MAX_LOG_ENGINES >= len(server.names("spec_decode_draft_tokens_total"))


def test_unknown_fields_in_the_log():
    """E4: of 2,000 fields that nobody knows so many become labels, and the rest is counted."""
    server = Server(has_metrics=False)
    server.log([record(f"{STATS_MESSAGE}, Field number {number}: 1").decode() for number in range(MANY)])

    assert MAX_UNKNOWN_FIELDS == len(server.names("unknown_field_total"))
    assert MANY - MAX_UNKNOWN_FIELDS == server.dropped("log")


def test_paths_in_the_access_log():
    """E4: 2,000 paths and every method and status are few series; no path is one."""
    server = Server(has_metrics=False)
    paths = [f'INFO:     1.2.3.4:5 - "GET /{number} HTTP/1.1" 404 Not Found' for number in range(MANY)]
    words = [
        f'INFO:     1.2.3.4:5 - "{method} {path} HTTP/1.1" {status} X'
        for method in ("GET", "POST", "PUT", "BREW", "X" * 16)
        for path in ("/health", "/metrics", "/v1/models", "/other")
        for status in range(100, 1000)
    ]
    server.log(paths + words)
    shown = server.names("http_requests_total")

    assert ("s", "GET", "other", "404") in shown
    assert MAX_REQUEST_KEYS + 1 >= len(shown)
    requests = sum(s.value for s in server_samples(server.state.snapshot(1000.0)) if s.name == "http_requests_total")
    assert len(paths + words) == requests


def test_requests_beyond_the_limit_are_counted(monkeypatch):
    """E4: a combination over the limit is counted as another, and as left out."""
    monkeypatch.setattr("vllm_watch.daemon.state.log_source.MAX_REQUEST_KEYS", 2)
    server = Server(has_metrics=False)
    server.log(
        f'INFO:     1.2.3.4:5 - "GET {path} HTTP/1.1" 200 OK' for path in ("/health", "/load", "/ping", "/health")
    )

    assert {("s", "GET", "/health", "200"), ("s", "GET", "/load", "200"), ("s", "other", "other", "other")} == set(
        server.names("http_requests_total")
    )
    assert 1 == server.dropped("log")


def test_kinds_of_errors_in_the_log():
    """E4: 2,000 different errors are no series of their own: the kinds are a closed list."""
    server = Server(has_metrics=False)
    before = server.names("log_events_total")
    server.log(record(f"Kind{number}Error: x", "core.py", "ERROR").decode() for number in range(MANY))
    server.log(f"Kind{number}Error: x" for number in range(MANY))

    assert before == server.names("log_events_total")


def test_versions_and_models_in_the_log():
    """E4: however often a server says another name, it has one."""
    server = Server(has_metrics=False)
    server.log(
        record(f"vLLM server version 1.0.{number}, serving model m{number}", "x.py").decode() for number in range(MANY)
    )

    assert 1 == len(server.names("server_info"))


@pytest.mark.parametrize("label", ["engine", "model"])
def test_engines_and_models_on_a_page(label):
    """E4: of 2,000 engines or models on a page so many are shown, and the rest is counted at each scrape."""
    server = Server(has_log=False)
    page = [RUNNING.format(*((number, "m") if label == "engine" else (0, f"m{number}"))) for number in range(MANY)]
    server.scrape(page)
    server.scrape(page)

    assert MAX_ENGINES == len(server.names("requests_running"))
    assert 2 * (MANY - MAX_ENGINES) == server.dropped("metrics")
    assert len(server.page()) < 4_000_000


@pytest.mark.parametrize(
    ("sample", "name"),
    [
        ('vllm:request_success_total{{engine="0",model_name="m",finished_reason="r{}"}} 1', "requests_finished_total"),
        ('vllm:admission_rejections_total{{model_name="m",reason="r{}"}} 1', "admission_rejections_total"),
        ('vllm:admission_rejections_total{{model_name="m{}",reason="r"}} 1', "admission_rejections_total"),
    ],
)
def test_reasons_on_a_page(sample, name):
    """E4: of 2,000 reasons so many are shown, and the rest is counted."""
    server = Server(has_log=False)
    server.scrape([RUNNING.format(0, "m"), *(sample.format(number) for number in range(MANY))])

    assert MAX_LABEL_VALUES == len(server.names(name))
    assert MANY - MAX_LABEL_VALUES == server.dropped("metrics")


def test_handlers_on_a_page():
    """E4: 2,000 handlers of the API server's own counter are one."""
    server = Server(has_log=False)
    handlers = [f'http_requests_total{{method="M{n}",handler="/{n}",status="{n}"}} 1' for n in range(MANY)]
    server.scrape([RUNNING.format(0, "m"), *handlers])

    assert 1 <= len(server.names("http_requests_total")) < 100
