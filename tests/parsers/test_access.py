# SPDX-License-Identifier: Apache-2.0
"""Access lines: odd peers, odd targets, and text that only resembles one."""

from __future__ import annotations

import json

import pytest

from tests.parsers.lines import events

from vllm_watch_parsers.events import AccessRequest
from vllm_watch_parsers.line import parse_line


PEERS = ["127.0.0.1:60214", "::1:46967", "2001:db8::7:60517", "[2001:db8::7]:60517", "203.0.113.9:0", ":0", "None", ""]

HEALTH = AccessRequest("GET", "/health", 200, "/health")


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("process", ["", "(APIServer pid=7) ", "\x1b[0;36m(ApiServer_0 pid=7)\x1b[0;0m "])
def test_every_peer_is_read(peer, process):
    """IPv4, IPv6, forwarded, unknown and empty peers are all one word or none."""
    assert events(f'{process}INFO:     {peer} - "GET /health HTTP/1.1" 200 OK'.encode()) == (HEALTH,)


@pytest.mark.parametrize(
    ("request_", "event"),
    [
        ('GET /health HTTP/1.1" 200 OK', HEALTH),
        ('GET /health HTTP/1.1" 200', HEALTH),
        ('GET /health HTTP/1.1" 200 ', HEALTH),
        ('GET /health HTTP/1.1" 200 OK\r', HEALTH),
        ('GET /health HTTP/2" 200 OK', HEALTH),
        ('HEAD / HTTP/1.0" 404 Not Found', AccessRequest("HEAD", "/", 404, "/")),
        ("POST /tea HTTP/1.1\" 418 I'm a Teapot", AccessRequest("POST", "/tea", 418, "/tea")),
        ('GET /x HTTP/1.1" 203 Non-Authoritative Information', AccessRequest("GET", "/x", 203, "/x")),
        ('GET /v1/models?a=1?b HTTP/1.1" 200 OK', AccessRequest("GET", "/v1/models", 200, "/v1/models?a=1?b")),
        (
            'GET /v1/models?x="-"GET HTTP/1.1" 404 Not Found',
            AccessRequest("GET", "/v1/models", 404, '/v1/models?x="-"GET'),
        ),
        (
            'GET /a"%20HTTP/1.1"%20500 HTTP/1.1" 200 OK',
            AccessRequest("GET", '/a"%20HTTP/1.1"%20500', 200, '/a"%20HTTP/1.1"%20500'),
        ),
        ('GET /é HTTP/1.1" 200 OK', AccessRequest("GET", "/é", 200, "/é")),
    ],
)
def test_every_request_is_read(request_, event):
    """Status with and without its words, any version, and targets that hold quotes and signs."""
    assert events(f'INFO:     127.0.0.1:5 - "{request_}'.encode()) == (event,)


def test_a_target_that_is_no_text_is_kept_readable():
    """Bytes that are no UTF-8 are written out."""
    (event,) = events(b'INFO:     127.0.0.1:5 - "GET /\xff HTTP/1.1" 200 OK')

    assert event.path == "/\\xff"


@pytest.mark.parametrize(
    "line",
    [
        'INFO: 127.0.0.1:5 - "GET / HTTP/1.1" 200 OK',
        'INFO:     two words - "GET / HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:5 - "get / HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:5 - "GET / HTTP/1.1" 20 OK',
        'INFO:     127.0.0.1:5 - "GET / HTTP/1.1" 2000 OK',
        'INFO:     127.0.0.1:5 - "GET / HTTP/1.1" 200 OK; ERROR',
        'INFO:     127.0.0.1:5 - "GET /a b HTTP/1.1" 200 OK',
        'INFO:     127.0.0.1:5 - "GET / HTTP/1.1',
        'INFO:     127.0.0.1:5 - "GET /' + "a" * 9000 + ' HTTP/1.1" 200 OK',
        'x INFO:     127.0.0.1:5 - "GET / HTTP/1.1" 200 OK',
        'INFO 11-21 02:35:10 [core.py:2173] INFO:     127.0.0.1:5 - "GET / HTTP/1.1" 200 OK',
    ],
)
def test_what_only_resembles_a_request_is_none(line):
    """A blank in the target, an absurd length, a torn end or another place make it no access line."""
    assert events(line.encode()) == ()


def test_json_access_lines_are_read():
    """With JSON logs (0.32 and later) uvicorn's lines have no reason phrase, and a logger's name instead."""
    message = '127.0.0.1:5 - "GET /health HTTP/1.1" 200'

    assert events(json.dumps({"name": "uvicorn.access", "message": message}).encode()) == (HEALTH,)
    assert events(json.dumps({"message": message}).encode()) == (HEALTH,)
    assert events(json.dumps({"name": "vllm.entrypoints.logger", "message": message}).encode()) == ()


def test_coloured_access_lines_are_read():
    """On a terminal uvicorn colours level, target and status."""
    line = b'\x1b[32mINFO\x1b[0m:     127.0.0.1:5 - "\x1b[1mGET /health HTTP/1.1\x1b[0m" \x1b[32m200 OK\x1b[0m'

    assert events(line) == (HEALTH,)


def test_long_and_short_requests_are_read_alike():
    """Only short requests are remembered; long ones are read all the same, each time."""
    for length in (10, 200, 300, 8000):
        line = b'INFO:     127.0.0.1:5 - "GET /' + b"a" * length + b' HTTP/1.1" 200 OK'

        assert [parse_line(line).events[0].path for _ in range(2)] == ["/" + "a" * length] * 2
