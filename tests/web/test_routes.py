# SPDX-License-Identifier: Apache-2.0
"""Which answer a request gets."""

from __future__ import annotations

import gzip

import pytest

from structlog.testing import capture_logs

from vllm_watch.daemon.web.routes import accepts_gzip


ALL_PAGES = [
    "/",
    "/metrics",
    "/api/v1/snapshot",
    "/api/v1/targets",
    "/-/healthy",
    "/-/ready",
    "/static/page.css",
    "/static/page.js",
    "/static/icon.svg",
]


@pytest.mark.parametrize("path", ALL_PAGES)
def test_page_is_served(client, path):
    """Every page answers 200 and has a body of the length it says; HEAD gives the same headers and no body."""
    got, head = client.ask(path), client.ask(path, "HEAD")

    assert (got.status, head.status, head.body) == (200, 200, b"")
    assert len(got.body) == int(got.headers["Content-Length"]) > 0
    assert head.headers["Content-Length"] == got.headers["Content-Length"]
    assert head.headers["Content-Type"] == got.headers["Content-Type"]


def test_metrics_gets_what_the_client_accepts(client, endpoints):
    """The page for Prometheus is told what formats the client takes."""
    client.ask("/metrics?name[]=x", Accept="application/openmetrics-text")

    assert endpoints.asked == ["application/openmetrics-text"]


@pytest.mark.parametrize(
    ("query", "histories"),
    [
        ("", None),
        ("?other=a", None),
        ("?history=", {""}),
        ("?history=a&history=b%2Fc", {"a", "b/c"}),
        ("?history=&history=%ff&%", {"", "\ufffd"}),
    ],
)
def test_histories_are_asked_for_by_name(client, endpoints, query, histories):
    """The snapshot has every server's last hour, unless the query names servers, or none."""
    assert client.ask(f"/api/v1/snapshot{query}").status == 200
    assert histories == endpoints.histories


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/snapshot", "/static/page.css"])
def test_gzip_when_asked(client, endpoints, path):
    """What has some size comes compressed to who asks for it, and plain to others."""
    endpoints.body = b"x 1\n" * 1000
    plain, zipped = client.ask(path), client.ask(path, Accept_Encoding="deflate, gzip")

    assert plain.headers["Content-Encoding"] is None
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert len(zipped.body) < len(plain.body)
    assert gzip.decompress(zipped.body) == plain.body
    small = client.ask("/static/icon.svg", Accept_Encoding="gzip")  # There is nothing to gain.
    assert small.headers["Content-Encoding"] is None


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("gzip;q=0.001", True),
        ("identity", False),
        ("", False),
    ],
)
def test_gzip_is_negotiated(header, expected):
    """Gzip is used when it is named and not refused."""
    assert accepts_gzip(header) is expected


def test_status_of_a_page_is_passed_on(client, endpoints):
    """A daemon that is not healthy answers 503 and says why."""
    endpoints.is_healthy = False

    assert client.ask("/-/healthy")[::2] == (503, b"web is stuck\n")


@pytest.mark.parametrize(
    "path", ["/nothing", "/metrics/", "//metrics", "/static/", "/static/../server.py", "/static/%2e%2e/server.py"]
)
def test_unknown_path_is_not_found(client, path):
    """E5: anything else is 404, in plain text that repeats nothing of the request."""
    reply = client.ask(path)

    assert reply.status == 404
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert b"nothing" not in reply.body
    assert b"server.py" not in reply.body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "MADEUP"])
def test_other_methods_are_not_allowed(client, method):
    """E5: methods other than GET and HEAD get 405, which names these two."""
    reply = client.ask("/metrics", method)

    assert reply.status == 405
    assert reply.headers["Allow"] == "GET, HEAD"
    assert b"MADEUP" not in reply.body


@pytest.mark.parametrize("path", [*ALL_PAGES, "/nothing", "/favicon.ico"])
def test_headers_of_every_answer(client, path):
    """Every answer keeps browsers from guessing, storing and loading from elsewhere, and names no software."""
    headers = client.ask(path).headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "http" not in headers["Content-Security-Policy"]
    assert "Server" not in headers


def test_failing_page_is_500_and_logged(client, endpoints):
    """E3: a page that raises says only that it failed, and takes no other with it; why stands in the log."""
    endpoints.failure = ValueError("what only the operator may know")
    with capture_logs() as logged:
        reply = client.ask("/metrics")

    assert reply[::2] == (500, b"This request failed: see the log of vllm-watch.\n")
    assert [(entry["event"], entry["path"], entry["exc_info"]) for entry in logged] == [
        ("web.request_failed", "/metrics", True)
    ]
    assert client.ask("/-/ready").status == 200
