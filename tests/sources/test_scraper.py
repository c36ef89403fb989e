# SPDX-License-Identifier: Apache-2.0
"""Scraping real servers on loopback, most of which misbehave."""

from __future__ import annotations

import functools
import gzip
import itertools
import socket
import ssl
import threading
import zlib

import pytest
import requests.adapters
import urllib3

from tests.support.http_servers import Peak, StandIn, answer, chunk, self_signed, served
from tests.support.logs import open_files
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.server_config import MetricsConfig, TlsConfig
from vllm_watch.daemon.sources.scraper import Scraper
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch_parsers.scrape import EngineKey


PAGE = b"""\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} 41.0
"""
OPENMETRICS_PAGE = PAGE.replace(b"tokens_total counter", b"tokens counter") + b"# EOF\n"
OPENMETRICS_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
SECRET = "tok-7f3a9c"

TIMEOUT = 0.5
MIB = 1024 * 1024


def scrape(url, timeout=SECONDS, **options):
    """Return the result of one scrape."""
    scraper = Scraper(MetricsConfig(url=url, timeout=timeout, **options), SystemClock())
    try:
        return scraper.scrape()
    finally:
        scraper.close()


@pytest.fixture
def make_scraper():
    """Make scrapers that are closed at the end."""
    scrapers = []

    def make(url, timeout=SECONDS, **options):
        scrapers.append(Scraper(MetricsConfig(url=url, timeout=timeout, **options), SystemClock()))
        return scrapers[-1]

    yield make
    for scraper in scrapers:
        scraper.close()


@pytest.fixture
def free_port():
    """Return a port on which nothing listens, held so that no one else takes it."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Make two certificates that do not vouch for each other."""
    folder = tmp_path_factory.mktemp("certificates")
    return [self_signed(folder / "one"), self_signed(folder / "two")]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(PAGE, "text/plain; version=0.0.4"), (OPENMETRICS_PAGE, OPENMETRICS_TYPE), (PAGE, "Text/Plain")],
)
def test_page(body, content_type):
    """A page in either format is read."""
    with served(answer(body, Content_Type=content_type)) as server:
        result = scrape(server.url)
    assert result.reason == "ok"
    engine = result.reading.engines[EngineKey("m", "0")]
    assert engine.gauges["requests_running"] == 3
    assert engine.counters["generation_tokens"] == 41


def test_chunked_page():
    """A page in chunks, as uvicorn sends it, is read."""
    head = answer(Transfer_Encoding="chunked")
    with served(head, chunk(PAGE[:50]), chunk(PAGE[50:]), b"0\r\n\r\n") as server:
        assert scrape(server.url).reason == "ok"


def test_request_asks_for_plain_text():
    """The request asks for the text format, without compression."""
    with served(answer(PAGE)) as server:
        scrape(server.url)
    head = server.requests[0].lower()
    assert "accept: text/plain;version=0.0.4" in head
    assert "accept-encoding: identity" in head
    assert "authorization" not in head


def test_refused(free_port):
    """S1: where nothing listens, the reason says so."""
    result = scrape(f"http://127.0.0.1:{free_port}/metrics")
    assert (result.reason, result.reading) == ("refused", None)


@pytest.mark.parametrize("host", ["no-such-host.invalid", "two..dots.invalid"])
def test_name_not_resolved(monkeypatch, host):
    """S1: a host that no one knows is told from one that does not answer."""
    resolve = socket.getaddrinfo

    def resolve_loopback(name, *args, **kwargs):
        if name == "no-such-host.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve(name, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_loopback)
    assert scrape(f"http://{host}/metrics").reason == "name_not_resolved"


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "unauthorized"), (403, "forbidden"), (404, "not_found"), *[(n, "http_error") for n in (206, 429, 500, 503)]],
)
def test_status(status, reason):
    """S1: a status other than 200 is a reason, whatever the body holds."""
    with served(answer(PAGE, f"{status} Whatever")) as server:
        result = scrape(server.url)
    assert (result.reason, result.reading) == (reason, None)


@pytest.mark.parametrize(
    ("pieces", "reasons"),
    [
        pytest.param([answer(b"<html>hello</html>", Content_Type="text/html")], {"not_metrics"}, id="HTML"),
        pytest.param([answer(b"python_info 1\n")], {"stats_disabled"}, id="no vLLM"),
        pytest.param([b"SSH-2.0-OpenSSH_9.6\r\n"], {"not_metrics", "unreachable"}, id="no HTTP"),
        pytest.param([], {"unreachable"}, id="closed at once"),
    ],
)
def test_answers_that_are_no_page(pieces, reasons):
    """S7: an HTML page with status 200, another program's, no HTTP at all or nothing: each has its reason."""
    with served(*pieces, closes=True) as server:
        result = scrape(server.url)
    assert result.reading is None
    assert result.reason in reasons


def _bytewise(data):
    return [data[index : index + 1] for index in range(len(data))]


@pytest.mark.slow
@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(_bytewise(answer(PAGE)), id="header drip"),
        pytest.param([answer(PAGE, length=len(PAGE))[: -len(PAGE)], *_bytewise(PAGE)], id="body drip"),
        pytest.param([answer(Transfer_Encoding="chunked"), *map(chunk, _bytewise(PAGE))], id="chunk drip"),
        pytest.param([answer(PAGE)[:-1]], id="all but the last byte"),
        pytest.param([], id="silence"),
        pytest.param(itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), id="endless patience"),
    ],
)
def test_total_deadline(pieces):
    """S2: a scrape ends at its deadline whatever the server drips, and nothing of a page cut off is read."""
    with served(*itertools.islice(pieces, 1000), pause=0.1) as server:
        result = scrape(server.url, TIMEOUT)
    assert (result.reason, result.reading) == ("timeout", None)
    assert TIMEOUT <= result.duration < SECONDS


@pytest.mark.parametrize(
    "pieces",
    [[], [answer(PAGE, length=len(PAGE) + 1)], [answer(PAGE, length=len(PAGE) + 1, Connection="close")]],
    ids=["silence", "kept", "the last answer"],
)
def test_closing_ends_a_scrape(make_scraper, pieces):
    """Closing the scraper ends a scrape under way at once, wherever in the answer it waits."""
    with served(*pieces) as server:
        scraper = make_scraper(server.url, 10 * SECONDS)
        results = []
        thread = threading.Thread(target=lambda: results.append(scraper.scrape()))
        thread.start()
        until(lambda: server.requests)
        scraper.close()
        thread.join(SECONDS)
    assert (results[0].reason, results[0].reading) == ("timeout", None)
    assert results[0].duration < SECONDS


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param([answer(PAGE, length=len(PAGE) + 100)], id="short body"),
        pytest.param([answer(length=100)], id="no body"),
        pytest.param([answer(Transfer_Encoding="chunked"), chunk(PAGE)], id="no last chunk"),
        pytest.param([answer(Transfer_Encoding="chunked"), chunk(PAGE)[:-20]], id="chunk cut off"),
        pytest.param([answer(Transfer_Encoding="chunked"), chunk(PAGE), b"zz\r\n"], id="bad chunk size"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n", PAGE], id="no end announced"),
    ],
)
def test_incomplete(pieces):
    """S3: a body that broke off, or that cannot be told from one that did, is not read."""
    with served(*pieces, closes=True) as server:
        result = scrape(server.url)
    assert (result.reason, result.reading) == ("incomplete", None)


GZIP, DEFLATE = zlib.MAX_WBITS + 16, zlib.MAX_WBITS


@functools.cache
def bomb(form=GZIP):
    """Return 300 MiB of zeros in 300 KB."""
    packer = zlib.compressobj(9, wbits=form, strategy=zlib.Z_RLE)  # In half the usual time.
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(300)), packer.flush()])


@functools.cache
def bomb_in_bomb():
    """Return a bomb that is compressed once more."""
    return gzip.compress(bomb())


BOMBS = {
    "gzip": (bomb, "gzip"),
    "gzip by its old name": (bomb, "x-gzip"),
    "deflate": (functools.partial(bomb, DEFLATE), "deflate"),
    "twice": (bomb_in_bomb, "gzip, gzip"),
    "after identity": (bomb, "identity, gzip"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("make", "encoding"), BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_compressed_bomb(make, encoding, framing):
    """S4: 300 MiB in a compressed body, of whatever coding, are refused before any of it is read."""
    body = make()
    pieces = [answer(body, Content_Encoding=encoding)]
    if framing == "chunked":
        pieces = [answer(Content_Encoding=encoding, Transfer_Encoding="chunked"), chunk(body), b"0\r\n\r\n"]
    with served(*pieces) as server, Peak() as peak:
        result = scrape(server.url)
    assert (result.reason, result.reading) == ("encoded", None)
    assert peak.size < 20 * MIB


@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_endless_body(framing):
    """S4: reading stops at the cap, whatever the server would still send."""
    line = b"# " + b"x" * 65533 + b"\n"
    head = answer(Transfer_Encoding="chunked") if framing == "chunked" else answer(length=10 * 1024 * MIB)
    piece = chunk(line) if framing == "chunked" else line
    with (
        StandIn(lambda _: itertools.chain([head], itertools.repeat(piece)), closes=True) as server,
        Peak() as peak,
    ):
        result = scrape(server.url)
    assert (result.reason, result.reading) == ("too_large", None)
    assert peak.size < 20 * MIB


@pytest.mark.parametrize("size", [b"-1", b"-5", b"-0000000000000001", b"five"])
def test_a_chunk_without_a_size(size):
    """S4: what follows a size below 0, or one that is no number, is not read, whatever the server would still send."""
    pieces = [answer(Transfer_Encoding="chunked"), size + b"\r\n", *itertools.repeat(bytes(MIB), 200)]
    with StandIn(lambda _: pieces, closes=True) as server, Peak() as peak:
        result = scrape(server.url)
    assert (result.reason, result.reading) == ("incomplete", None)
    assert peak.size < 20 * MIB


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
def test_redirect(status):
    """S5: a redirect is a reason and is not followed; its body, here a bomb, is not read."""
    with served(answer(PAGE)) as elsewhere:
        moved = answer(bomb(), f"{status} Moved", Location=elsewhere.url, Content_Encoding="gzip")
        with served(moved) as server, Peak() as peak:
            result = scrape(server.url)
    assert (result.reason, result.reading, elsewhere.connections) == ("redirect", None, 0)
    assert peak.size < 20 * MIB


def test_no_adapter_beneath(monkeypatch):
    """D8: whichever urllib3 is there (grafana-client brings another one), no scrape is sent by it."""
    monkeypatch.setattr(requests.adapters.HTTPAdapter, "send", None)
    monkeypatch.setattr(urllib3.connectionpool.HTTPConnectionPool, "urlopen", None)
    with served(answer(PAGE)) as server:
        assert scrape(server.url).reason == "ok"


def test_environment_is_ignored(monkeypatch, tmp_path):
    """S6: proxies and passwords of the environment do not touch a scrape."""
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login user password {SECRET}\n")
    with served(answer(PAGE)) as server, served(answer(PAGE)) as proxy:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
        for name in ("http_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        result = scrape(server.url)
    assert result.reason == "ok"
    assert proxy.connections == 0
    assert "authorization" not in server.requests[0].lower()


def test_token_is_read_anew(make_scraper, tmp_path):
    """The token in the file at the time of the scrape is the one that is sent."""
    token_file = tmp_path / "token"
    with served(answer(PAGE)) as server:
        scraper = make_scraper(server.url, bearer_token_file=str(token_file))
        for token in ("first", "second"):
            token_file.write_text(f" {token}\n")
            assert scraper.scrape().reason == "ok"
    assert ["Authorization: Bearer first\r\n" in head for head in server.requests] == [True, False]
    assert "Authorization: Bearer second\r\n" in server.requests[1]


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two\nlines", b"\xff\xfe", "grün".encode()])
def test_token_unreadable(tmp_path, content):
    """Without a token that a header can carry, no request is sent."""
    token_file = tmp_path / "token"
    if content is not None:
        token_file.write_bytes(content)
    with served(answer(PAGE)) as server:
        result = scrape(server.url, bearer_token_file=str(token_file))
    assert (result.reason, result.reading) == ("token_unreadable", None)
    assert server.connections == 0


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized"])
def test_token_stays_secret(tmp_path, capfd, status):
    """The token is in no result and on no output."""
    token_file = tmp_path / "token"
    token_file.write_text(SECRET)
    with served(answer(PAGE, status)) as server:
        result = scrape(server.url, bearer_token_file=str(token_file))
    assert SECRET in server.requests[0]
    assert SECRET not in repr(result) + "".join(capfd.readouterr())


def test_tls_with_wrong_authority(certificates):
    """A certificate that another authority vouches for is refused before a request is sent."""
    mine, other = certificates
    with served(answer(PAGE), tls=mine.server_context()) as server:
        assert scrape(server.url, tls=TlsConfig(ca_file=other.cert_file)).reason == "tls_error"
    assert server.requests == []


def test_tls_authority_of_environment_is_ignored(certificates, monkeypatch):
    """S6: an authority in the environment vouches for nothing."""
    mine, _ = certificates
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", mine.cert_file)
    monkeypatch.setenv("CURL_CA_BUNDLE", mine.cert_file)
    with served(answer(PAGE), tls=mine.server_context()) as server:
        assert scrape(server.url).reason == "tls_error"


def test_tls_with_client_certificate(certificates):
    """A server that wants a certificate gets the given one."""
    mine, other = certificates
    context = mine.server_context()
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(other.cert_file)
    options = TlsConfig(mine.cert_file, other.cert_file, other.key_file)
    with served(answer(PAGE), tls=context) as server:
        assert scrape(server.url, tls=options).reason == "ok"


@pytest.mark.parametrize("is_tls", [False, True])
def test_one_connection(certificates, make_scraper, is_tls):
    """A healthy connection, plain or to a server that is vouched for, serves one scrape after the other."""
    mine, _ = certificates
    with served(answer(PAGE), tls=mine.server_context() if is_tls else None) as server:
        scraper = make_scraper(server.url, tls=TlsConfig(ca_file=mine.cert_file))
        assert [scraper.scrape().reason for _ in range(3)] == ["ok"] * 3
    assert server.connections == 1


def test_connection_closed_at_reuse(make_scraper):
    """A kept connection that ends just when it is used again is no failure."""
    seen = []

    def pieces(_):
        seen.append(server.connections)
        if seen == [1, 1]:
            raise ConnectionResetError
        return [answer(PAGE)]

    with StandIn(pieces) as server:
        scraper = make_scraper(server.url)
        assert [scraper.scrape().reason for _ in range(2)] == ["ok", "ok"]
    assert seen == [1, 1, 2]


def test_nothing_leaks(free_port):
    """Scrapes, good and bad, leave no thread and no open file behind."""
    before = open_files(), threading.active_count()
    pieces = [[answer(PAGE)], [answer(b"", "404 Not Found")], [answer(PAGE, Connection="close")], [answer(PAGE)]]
    answers = iter(pieces * 3)
    with StandIn(lambda _: next(answers)) as server:
        for url in (server.url, f"http://127.0.0.1:{free_port}/metrics"):
            scraper = Scraper(MetricsConfig(url=url), SystemClock())
            for _ in range(len(pieces) * 3):
                scraper.scrape()
            scraper.close()
    after = open_files(), threading.active_count()
    assert after[0] <= before[0]
    assert after[1] <= before[1]
