# SPDX-License-Identifier: Apache-2.0
"""E4: whatever a log or a page holds, the series are bounded, and what is left out is counted."""

from __future__ import annotations

import pytest

from tests.parsers.lines import STATS_MESSAGE, record
from tests.support.exposition import exported
from tests.support.server_stories import LOG, METRICS, Server

from vllm_watch.daemon.catalog.codes import MAX_ENGINES as MAX_LOG_ENGINES
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.state.log_source import MAX_REQUEST_KEYS, MAX_UNKNOWN_FIELDS
from vllm_watch_parsers.events import FAILURE_KINDS
from vllm_watch_parsers.scrape import MAX_ENGINES, MAX_LABEL_VALUES


pytestmark = pytest.mark.slow


MANY = 2_000
"""More than the limit of anything."""

RUNNING = b'vllm:num_requests_running{engine="0",model_name="m"} 1\n'


def names(server, name):
    """Return the labels of a series."""
    return [each.labels for each in server_samples(server.state.snapshot(server.now)) if each.name == name]


def dropped(server, source):
    """Return how many names were left out of a source."""
    return server.state.snapshot(server.now).label_values_dropped[source]


def many(text):
    """Return a line with a number of its own many times."""
    return [text.format(number).encode() for number in range(MANY)]


OF_LOGS = {
    "engines": (
        [record(STATS_MESSAGE.replace("Engine 000", f"Engine {number}")) for number in range(MANY)],
        "requests_running", MAX_LOG_ENGINES, MANY - MAX_LOG_ENGINES,
    ),
    "unknown fields": (
        [record(f"{STATS_MESSAGE}, Field number {number}: 1") for number in range(MANY)],
        "unknown_field_total", MAX_UNKNOWN_FIELDS, MANY - MAX_UNKNOWN_FIELDS,
    ),
    "errors": (
        [*(record(f"Kind{n}Error: x", "core.py", "ERROR") for n in range(MANY)), *many("Kind{}Error: x")],
        "log_events_total", len(FAILURE_KINDS), 0,
    ),
    "versions and models": (
        [record(f"vLLM server version 1.0.{n}, serving model m{n}", "x.py") for n in range(MANY)], "server_info", 1, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lines", "name", "most", "left_out"), OF_LOGS.values(), ids=OF_LOGS)
def test_a_log(lines, name, most, left_out):
    """E4: of 2,000 engines, fields, errors or models so many are shown as may be, and the rest is counted."""
    server = Server(**LOG).log(*lines)

    assert (most, left_out) == (len(names(server, name)), dropped(server, "log"))
    assert len(exported(server.state.snapshot(server.now))) < 2_000_000


def test_paths_in_the_access_log():
    """E4: 2,000 paths and every method and status are few series; no path is one."""
    words = [
        f'INFO:     1.2.3.4:5 - "{method} {path} HTTP/1.1" {status} X'.encode()
        for method in ("GET", "POST", "PUT", "BREW", "X" * 16)
        for path in ("/health", "/metrics", "/v1/models", "/other")
        for status in range(100, 1000)
    ]
    server = Server(**LOG).log(*many('INFO:     1.2.3.4:5 - "GET /{} HTTP/1.1" 404 Not Found'), *words)
    shown = names(server, "http_requests_total")

    assert ("s", "GET", "other", "404") in shown
    assert MAX_REQUEST_KEYS + 1 >= len(shown)
    assert MANY + len(words) == sum(server.state.snapshot(server.now).http_requests.values())


OF_PAGES = {
    "engines": ('vllm:num_requests_running{{engine="{}",model_name="m"}} 1', "requests_running", MAX_ENGINES),
    "models": ('vllm:num_requests_running{{engine="0",model_name="m{}"}} 1', "requests_running", MAX_ENGINES),
    "reasons": (
        'vllm:request_success_total{{engine="0",model_name="m",finished_reason="r{}"}} 1', "requests_finished_total",
        MAX_LABEL_VALUES,
    ),
    "rejections": (
        'vllm:admission_rejections_total{{model_name="m",reason="r{}"}} 1', "admission_rejections_total",
        MAX_LABEL_VALUES,
    ),
    "rejections of models": (
        'vllm:admission_rejections_total{{model_name="m{}",reason="r"}} 1', "admission_rejections_total",
        MAX_LABEL_VALUES,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "name", "most"), OF_PAGES.values(), ids=OF_PAGES)
def test_a_page(line, name, most):
    """E4: of 2,000 engines, models or reasons so many are shown, and the rest is counted at each scrape."""
    body = b"\n".join([*many(line), b""])
    if name != "requests_running":
        body += RUNNING
    server = Server(**METRICS).scrape(body).scrape(body)

    assert (most, 2 * (MANY - most)) == (len(names(server, name)), dropped(server, "metrics"))
    assert len(exported(server.state.snapshot(server.now))) < 4_000_000
