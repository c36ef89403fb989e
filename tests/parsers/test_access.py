# SPDX-License-Identifier: Apache-2.0
"""Access lines: odd peers and targets, JSON and colours; `messages.tsv` has the ordinary ones."""

from __future__ import annotations

import json

import pytest

from tests.parsers.lines import events

from vllm_watch_parsers.events import AccessRequest


PEERS = ["127.0.0.1:60214", "::1:46967", "2001:db8::7:60517", "[2001:db8::7]:60517", "203.0.113.9:0", ":0", "None", ""]

HEALTH = AccessRequest("GET", "/health", 200, "/health")


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("process", ["", "(APIServer pid=7) ", "\x1b[0;36m(ApiServer_0 pid=7)\x1b[0;0m "])
def test_every_peer_is_read(peer, process):
    """IPv4, IPv6, forwarded, unknown and empty peers are all one word or none."""
    assert events(f'{process}INFO:     {peer} - "GET /health HTTP/1.1" 200 OK'.encode()) == (HEALTH,)


def test_a_target_that_is_no_text_is_kept_readable():
    """Bytes that are no UTF-8 are written out."""
    (event,) = events(b'INFO:     127.0.0.1:5 - "GET /\xff HTTP/1.1" 200 OK')

    assert event.path == "/\\xff"


def test_the_end_of_a_request_may_be_short_and_its_target_not_too_long():
    """The status may have a blank and no word behind it; a target of an absurd length is none."""
    start = b'INFO:     127.0.0.1:5 - "GET '

    assert events(start + b'/health HTTP/1.1" 200 ') == events(start + b'/health HTTP/1.1" 200 OK\r') == (HEALTH,)
    assert events(start + b"/" + b"a" * 9000 + b' HTTP/1.1" 200 OK') == ()


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
