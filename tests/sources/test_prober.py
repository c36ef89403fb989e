# SPDX-License-Identifier: Apache-2.0
"""Probing real servers on loopback, most of which misbehave."""

from __future__ import annotations

import itertools
import json
import re
import threading

import pytest

from tests.support.completions import END, GOOD, HEAD, LAST_CHUNK, event, models, stream, token
from tests.support.http_servers import Peak, StandIn, answer, chunk, served
from tests.support.logs import open_files
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.server_config import ProbeConfig
from vllm_watch.daemon.sources import prober
from vllm_watch.daemon.sources.prober import MAX_STREAM, Prober
from vllm_watch.daemon.support.clock import SystemClock


pytestmark = pytest.mark.slow


SECRET = "sk-7f3a9c"
TIMEOUT = 0.5
MIB = 1024 * 1024


def probe(server, timeout=SECONDS, known_model="m", **options):
    """Return the result of one probe."""
    prober = Prober(url_of(server), ProbeConfig(timeout=timeout, **options), SystemClock())
    try:
        return prober.probe(known_model)
    finally:
        prober.close()


class Readings:
    """A clock that shows what it is set to, and counts how often it is read."""

    def __init__(self):
        self.now = 10.0
        self.readings = 0

    def monotonic(self):
        """Return the time that is set."""
        self.readings += 1
        return self.now


def url_of(server):
    """Return where a server would have its completions."""
    return f"http://127.0.0.1:{server.port}/v1/completions"


class TestGoodServers:
    """One request, one token."""

    def test_the_request(self):
        """One token is asked for, streamed and without chance, uncompressed, on a connection of its own."""
        with served(*GOOD) as server:
            assert probe(server).reason == "ok"
        (head,), (body,) = server.requests, server.bodies
        asked = json.loads(body)

        assert head.startswith("POST /v1/completions HTTP/1.1\r\n")
        assert "accept-encoding: identity" in head.lower()
        assert "authorization" not in head.lower()
        assert "connection: close" in head.lower()
        assert {"model": "m", "max_tokens": 1, "temperature": 0, "stream": True} == {
            key: asked[key] for key in asked if key != "prompt"
        }
        assert asked["prompt"]

    def test_the_time_is_that_of_the_first_token(self, monkeypatch):
        """The time ends with the first token, not with the head before it and not with the end after it."""
        clock = Readings()

        def pieces(_):
            yield HEAD
            clock.now = 11.0
            yield chunk(token("a", None))
            until(lambda: 2 == clock.readings)
            clock.now = 12.0
            yield from (chunk(token("b")), chunk(END))

        monkeypatch.setattr(prober, "time", clock)
        with StandIn(pieces, pause=0.1) as server:
            result = probe(server)

        assert ("ok", 1.0) == (result.reason, result.first_token_seconds)

    @pytest.mark.parametrize(
        "events",
        [
            pytest.param([token("", "length"), END], id="a token that is no text yet"),
            pytest.param([token("", "stop"), END], id="the end as the first token"),
            pytest.param([event(choices=[]), token(), event(choices=[], usage={"total_tokens": 2}), END], id="usage"),
            pytest.param([b": ping\r\n\r\n", token().replace(b"\n", b"\r\n"), END], id="comments, CRLF"),
            pytest.param([token() + END], id="all at once"),
            pytest.param([token()[:20], token()[20:], END[:3], END[3:]], id="in pieces"),
        ],
    )
    def test_streams(self, events):
        """What servers and proxies make of a stream is read."""
        with served(*stream(*events)) as server:
            assert probe(server).reason == "ok"

    def test_the_first_model_is_asked_for_where_none_is_known(self):
        """Without a name the server is asked for its models, in the same time, and for the first of them."""
        with StandIn(lambda head: [models("base", "adapter")] if head.startswith("GET") else GOOD) as server:
            result = probe(server, known_model="")

        assert result.reason == "ok"
        assert server.requests[0].startswith("GET /v1/models HTTP/1.1\r\n")
        assert "base" == json.loads(server.bodies[1])["model"]

    def test_a_name_that_the_server_does_not_know_is_not_insisted_on(self):
        """After a 404 for the name that the log told, the next probe asks the server; a configured name stays."""

        def pieces(head):
            return [models("base")] if head.startswith("GET") else _for_base(server)

        with StandIn(pieces) as server:
            prober = Prober(url_of(server), ProbeConfig(), SystemClock())
            told = [prober.probe("other").reason for _ in range(2)]
            prober.close()
            configured = [probe(server, model="other").reason for _ in range(2)]

        assert ["not_found", "ok"] == told
        assert ["not_found"] * 2 == configured

    def test_the_key_is_read_anew(self, tmp_path):
        """The key in the file at the time of the probe is the one that is sent, for the models too."""
        file = tmp_path / "key"
        with StandIn(lambda head: [models("m")] if head.startswith("GET") else GOOD) as server:
            prober = Prober(url_of(server), ProbeConfig(api_key_file=str(file)), SystemClock())
            for key in ("first", "second"):
                file.write_text(f" {key}\n")
                assert prober.probe().reason == "ok"
            prober.close()

        sent = [re.search(r"Authorization: Bearer (\w+)", head)[1] for head in server.requests]
        assert ["first", "first", "second", "second"] == sent


def _for_base(server):
    return GOOD if json.loads(server.bodies[-1])["model"] == "base" else [answer(b"{}", "404 Not Found")]


class TestBadServers:
    """Each ends in time, in bounded memory, with its reason, and with nothing sent twice."""

    @pytest.mark.parametrize(
        "pieces",
        [
            pytest.param([], id="silence"),
            pytest.param([HEAD], id="a head and silence"),
            pytest.param([HEAD, chunk(token())], id="a token and no end"),
            pytest.param([HEAD, *(chunk(b":\n") for _ in range(100))], id="comments drip"),
            pytest.param([HEAD, *(chunk(bytes([byte])) for byte in token() + END)], id="bytes drip"),
            pytest.param([HEAD[index : index + 1] for index in range(len(HEAD))], id="the head drips"),
        ],
    )
    def test_total_deadline(self, pieces):
        """S2: a probe ends at its deadline whatever the server drips; a token without its end is none."""
        with served(*pieces, pause=0.1) as server:
            result = probe(server, TIMEOUT)
            until(lambda: server.requests)

        assert ("timeout", None) == (result.reason, result.first_token_seconds)
        assert 1 == len(server.requests)

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            *[(400, "bad_request"), (401, "unauthorized"), (403, "forbidden"), (404, "not_found"), (429, "overloaded")],
            *[(503, "overloaded"), (204, "http_error"), (500, "http_error"), (502, "http_error")],
        ],
    )
    @pytest.mark.parametrize("known_model", ["m", ""], ids=["completion", "models"])
    def test_status(self, status, reason, known_model):
        """S1: a status other than 200 is a reason, whatever the body holds, and nothing is asked again."""
        with served(answer(b'{"error":"no"}', f"{status} Whatever")) as server:
            assert reason == probe(server, known_model=known_model).reason
        assert 1 == len(server.requests)

    @pytest.mark.parametrize(
        ("pieces", "reason"),
        [
            pytest.param([b"SSH-2.0-OpenSSH_9.6\r\n\r\n"], "not_a_stream", id="no HTTP"),
            pytest.param([HEAD, chunk(token()), LAST_CHUNK], "incomplete", id="no end announced"),
            pytest.param([HEAD, chunk(token()[:30])], "incomplete", id="half an event"),
            pytest.param([HEAD, chunk(token())], "incomplete", id="half a stream"),
            pytest.param([HEAD, chunk(token()), b"zz\r\n"], "incomplete", id="a bad chunk"),
            pytest.param(stream(END), "failed", id="an end and no token"),
            pytest.param(stream(event(choices=[{"text": ""}]), END), "failed", id="no token in the event"),
            pytest.param(stream(event(error={"message": "EngineCore died"}), END), "failed", id="an error"),
            pytest.param(stream(event(object="error", message="dead", code=500), END), "failed", id="an old error"),
            pytest.param(stream(b"data: {oops\n\n", END), "not_a_stream", id="no JSON"),
            pytest.param(stream(b"data: []\n\n", END), "not_a_stream", id="other JSON"),
            pytest.param(stream(b"data: \xff\n\n", END), "not_a_stream", id="no text"),
            pytest.param([answer(b'{"choices":[{"text":"a"}]}', Content_Type="application/json")], "not_a_stream"),
            pytest.param([answer(b"<html>", Content_Type="text/html")], "not_a_stream", id="a page"),
            pytest.param([answer(Content_Type="text/event-stream", Content_Encoding="gzip")], "encoded", id="gzip"),
        ],
    )
    def test_no_token(self, pieces, reason):
        """S3: an answer that brings no token, breaks off or is none is a failure."""
        with served(*pieces, closes=True) as server:
            result = probe(server)
        assert (reason, None) == (result.reason, result.first_token_seconds)

    @pytest.mark.parametrize(
        "piece", [b":" + b"x" * 65534 + b"\n", b"x" * 65536, b"data: {}\n\n" * 6553], ids=["comments", "line", "events"]
    )
    def test_endless_stream(self, piece):
        """S4: a stream without end is read up to a limit, in little memory."""
        endless = itertools.chain([HEAD], itertools.repeat(chunk(piece)))
        with StandIn(lambda _: endless, closes=True) as server, Peak() as peak:
            result = probe(server)

        assert "too_large" == result.reason
        assert peak.size < 20 * MIB
        assert MAX_STREAM <= 64 * 1024

    @pytest.mark.parametrize(
        "listed",
        [models(), models(""), models("x" * 5000), answer(b"{}"), answer(b'{"data":[{}]}'), answer(b"\xff")],
        ids=["none", "empty", "long", "no list", "no name", "no text"],
    )
    def test_models_without_a_name(self, listed):
        """S7: where the server lists no model that could be asked for, no completion is asked for."""
        with served(listed) as server:
            assert "model_unknown" == probe(server, known_model="").reason
        assert 1 == len(server.requests)

    @pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff\xfe"])
    def test_key_unreadable(self, tmp_path, content):
        """Without a key that a header can carry, no request is sent."""
        if content is not None:
            (tmp_path / "key").write_bytes(content)
        with served(*GOOD) as server:
            assert "key_unreadable" == probe(server, api_key_file=str(tmp_path / "key")).reason
        assert 0 == server.connections

    @pytest.mark.parametrize("pieces", [GOOD, [answer(b"", "401 Unauthorized")], [b"nonsense\r\n\r\n"], []])
    def test_the_key_stays_secret(self, tmp_path, capfd, pieces):
        """The key is in no result and on no output, whatever the server answers."""
        (tmp_path / "key").write_text(SECRET)
        with served(*pieces) as server:
            result = probe(server, SECONDS if pieces else TIMEOUT, api_key_file=str(tmp_path / "key"))
            until(lambda: server.requests)

        assert SECRET in server.requests[0]
        assert SECRET not in repr(result) + "".join(capfd.readouterr())

    def test_nothing_leaks(self):
        """T32: probes, good and bad, leave no thread and no open file behind."""
        answers = itertools.cycle([GOOD, [answer(b"", "404 Not Found")], stream(END)])
        with StandIn(lambda _: next(answers)) as server:
            before = open_files(), threading.active_count()
            prober = Prober(url_of(server), ProbeConfig(), SystemClock())
            for _ in range(30):
                prober.probe("m")
            prober.close()
        after = open_files(), threading.active_count()

        assert after[0] <= before[0]
        assert after[1] <= before[1]
