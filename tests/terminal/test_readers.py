# SPDX-License-Identifier: Apache-2.0
"""Documents come from a daemon over HTTP, from servers that this process watches, and from a recording."""

from __future__ import annotations

import contextlib
import json
import threading

import msgspec
import pytest

from tests.parsers.lines import STATS_MESSAGE, record
from tests.support.http_servers import StandIn, Talker, answer
from tests.support.logs import printed_now
from tests.support.recordings import recording
from tests.support.waiting import SECONDS, HandClock, until
from tests.terminal.documents import body

from vllm_watch.analysis.replay.recording import MetricsRead
from vllm_watch.cli.terminal.frames import Frame, Lost, frame_of
from vllm_watch.cli.terminal.local_reader import LocalReader
from vllm_watch.cli.terminal.reading_thread import DaemonReader, ReadingThread, read_settled
from vllm_watch.cli.terminal.replay_reader import ReplayReader
from vllm_watch.daemon.config.from_options import config_from_options
from vllm_watch.daemon.config.model import Config, PrometheusConfig
from vllm_watch.daemon.config.server_config import MetricsConfig, ProbeConfig, ServerConfig
from vllm_watch.daemon.exposition.document import decode
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.sources.daemon_client import DaemonClient, DaemonTarget
from vllm_watch.daemon.sources.http_reader import HttpLimits
from vllm_watch.daemon.support.clock import ScaledClock, SystemClock
from vllm_watch.daemon.support.errors import DaemonError, DiscoveryError, WrongDaemonError


SATURATED = record(STATS_MESSAGE) + b"\n"
BODY = next(event.body for event in recording("day").events() if isinstance(event, MetricsRead) and event.body)


def reader_at(url, seconds=5.0, authorization=None):
    """Return what reads a daemon."""
    return DaemonReader(url, DaemonClient(DaemonTarget(url, None, authorization), HttpLimits(timeout=seconds)))


@pytest.fixture
def log(tmp_path):
    """The log of a server that is saturated."""
    path = tmp_path / "vllm.log"
    path.write_bytes(printed_now(SATURATED))
    return path


@contextlib.contextmanager
def daemon(log, port=0):
    """Run a daemon on a log; yield its port."""
    service = Supervisor(config_from_options([str(log)], [], f"127.0.0.1:{port}"), SystemClock())
    service.start()
    running = threading.Thread(target=service.run)
    running.start()
    try:
        until(lambda: service.fleet.is_ready)
        yield service.port
    finally:
        service.request_stop()
        running.join(SECONDS)
        service.stop()


@contextlib.contextmanager
def reader_of(url, seconds=SECONDS, authorization=None):
    """Read a vllm-watch."""
    with contextlib.closing(reader_at(url, seconds, authorization)) as reader:
        yield reader


def test_a_daemon_goes_and_comes_back(log):
    """A frame is that of the running daemon, its end is said, and when it is back there are frames again."""
    with daemon(log) as port:
        reader = reader_at(f"http://127.0.0.1:{port}")
        thread = ReadingThread(reader, SystemClock(), 0.02)
        thread.start()
        first = until(thread.latest)
    lost = until(lambda: isinstance(thread.latest(), Lost) and thread.latest())
    with daemon(log, port):
        back = until(lambda: isinstance(thread.latest(), Frame) and thread.latest())
    thread.stop()

    assert first.servers[0].state == "saturated"
    assert lost.reason == "nothing listens at this address"
    assert lost.last.servers[0].name == "vllm"
    assert back.received > lost.since


@pytest.mark.parametrize(
    ("given", "authorization", "reason"),
    [
        (answer(status="401 Unauthorized"), None, "give --username and --password-file"),
        (answer(status="401 Unauthorized"), "Basic eDp5", "does not accept this user name and password"),
        (answer(status="404 Not Found"), None, "not a vllm-watch"),
        (answer(status="421 Misdirected Request"), None, "add it to allowed_hosts"),
        (answer(status="500 Oops"), None, "HTTP status 500"),
        (answer(body("idle"), length=10_000_000), None, "cut off"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", None, "not HTTP"),
    ],
)
def test_what_is_wrong_is_said(given, authorization, reason):
    """Each way in which an address is not that of a vllm-watch has its sentence; one of status 4xx stays wrong."""
    with (
        StandIn(lambda _: [given], closes=True) as server,
        reader_of(server.url[:-8], authorization=authorization) as reader,
    ):
        with pytest.raises(DaemonError, match=reason) as caught:
            reader.read(None)
        assert isinstance(caught.value, WrongDaemonError) is given.startswith(b"HTTP/1.1 4")
        assert ("Authorization" in server.requests[0]) is (authorization is not None)


def test_one_that_never_answers():
    """A request ends at its deadline, whatever the other side does."""
    with (
        Talker([b"HTTP/1.1 200 OK\r\n"]) as server,
        reader_of(f"http://127.0.0.1:{server.port}", 0.2) as reader,
        pytest.raises(DaemonError, match=r"no whole answer within 0\.2 s"),
    ):
        reader.read(None)


def test_a_reading_that_runs_is_ended():
    """Closing ends a request that waits for its answer."""
    with StandIn(lambda _: []) as server:
        thread = ReadingThread(reader_at(server.url[:-8], 60), SystemClock(), 1)
        thread.start()
        until(lambda: server.requests)
        thread.stop()

    assert not thread._thread.is_alive()


def test_only_the_hours_that_are_shown_are_asked_for():
    """The daemon is asked for the hour of all servers, of some, or of none."""
    with StandIn(lambda _: [answer(body("idle"))]) as server, reader_of(server.url[:-8]) as reader:
        for hours in (None, {"b", "a&b"}, ()):
            reader.read(hours)

    assert [request.split()[1] for request in server.requests] == [
        "/api/v1/snapshot",
        "/api/v1/snapshot?history=a%26b&history=b",
        "/api/v1/snapshot?history=",
    ]


def test_a_log_without_a_daemon(log):
    """A log is followed by this process: its state is there at once, and changes with it."""
    config = config_from_options([str(log)], [], None)
    with contextlib.closing(LocalReader("a log", lambda: config, SystemClock())) as reader:
        found = read_settled(reader, SystemClock(), SECONDS)
        with log.open("ab") as file:
            file.write(b"INFO:     Finished server process [7]\n")
        until(lambda: b'"down"' in reader.read(None))
        (server,) = decode(reader.read(None)).servers

    assert found.frame.servers[0].state == "saturated"
    assert [event.text for event in server.events] == ["down (was saturated)"]


def test_nothing_but_reading_is_done(tmp_path, log):
    """What this process watches is not probed, and its checkpoint belongs to the daemon."""
    checkpoint = tmp_path / "checkpoint.json"
    probe = ProbeConfig(url="http://127.0.0.1:9/v1/completions")
    server = ServerConfig(name="a", log=str(log), probe=probe)
    config = Config(servers=(server,), checkpoint=str(checkpoint))
    with contextlib.closing(LocalReader("a file", lambda: config, SystemClock())) as reader:
        sources = read_settled(reader, SystemClock(), SECONDS).frame.servers[0].document.sources

    assert [source.source for source in sources] == ["log"]
    assert not checkpoint.exists()


@pytest.mark.slow
def test_rates_need_several_scrapes():
    """A server is settled once the scrapes have gone on for as long as rates need."""
    with StandIn(lambda _: [answer(BODY)]) as server:
        url = MetricsConfig(url=server.url, interval=5.0, timeout=4.0)
        config = Config(servers=(ServerConfig(name="a", metrics=url),))
        with contextlib.closing(LocalReader("a server", lambda: config, ScaledClock(20))) as reader:
            assert not reader.is_settled
            read_settled(reader, SystemClock(), SECONDS)
            assert len(server.requests) >= 3
            until(lambda: _tokens_per_second(reader) == 0)


def _tokens_per_second(reader):
    return frame_of(decode(reader.read(frozenset())), 0.0).servers[0].now.generation_tokens_per_second


ALERTS = json.dumps(
    {
        "status": "success",
        "data": {
            "alerts": [
                {"labels": {"alertname": name, "severity": "critical", "tier": "core", **labels}, "state": "firing"}
                for name, labels in (("VllmCapacityExhausted", {"server": "vllm"}), ("VllmWatchUnwell", {}))
            ]
        },
    }
).encode()


def with_prometheus(log, url):
    """Return a configuration of a log and of a Prometheus."""
    config = config_from_options([str(log)], [], None)
    return msgspec.structs.replace(config, prometheus=PrometheusConfig(url=url, timeout=SECONDS))


def test_the_alerts_of_the_configured_prometheus(log):
    """Without a daemon the alerts are those of the Prometheus in the configuration; one document waits for them."""
    with StandIn(lambda _: [answer(ALERTS)]) as prometheus:
        config = with_prometheus(log, prometheus.url.removesuffix("/metrics"))
        with contextlib.closing(LocalReader("a file", lambda: config, SystemClock())) as reader:
            alerts = decode(read_settled(reader, SystemClock(), SECONDS).body).alerts

    assert [(alert.alertname, alert.server) for alert in alerts] == [
        ("VllmWatchUnwell", None),
        ("VllmCapacityExhausted", "vllm"),
    ]


def test_nothing_waits_for_a_prometheus(log):
    """While a Prometheus does not answer, servers are read, and what is missing is said."""
    with Talker([]) as prometheus:
        config = with_prometheus(log, f"http://127.0.0.1:{prometheus.port}")
        with contextlib.closing(LocalReader("a file", lambda: config, SystemClock())) as reader:
            reader.start()
            document = until(lambda: b'"saturated"' in (body := reader.read(None)) and decode(body))
            assert not reader.is_settled

    assert document.prometheus.explanation.endswith("it has not answered yet")


class Nobody:
    """Finds no server, and then one."""

    hanging_count = 0

    def __init__(self):
        self.config = Config()

    def poll(self, **_):
        """Return what runs."""
        return self.config


def test_no_server_runs_here(log):
    """Without a server there is a sentence that says what to do; one that is found later is watched."""
    follower = Nobody()
    with contextlib.closing(LocalReader("here", follower.poll, SystemClock(), follower)) as reader:
        with pytest.raises(DiscoveryError, match="run vllm-watch discover"):
            read_settled(reader, SystemClock(), 0)
        follower.config = config_from_options([str(log)], [], None)
        reader._threads.discovery.turn_now()
        until(lambda: _document_or_none(reader))

        assert decode(reader.read(None)).servers[0].name == "vllm"


def _document_or_none(reader):
    try:
        return reader.read(None)
    except DiscoveryError:
        return None


def test_a_recording_runs_by_the_clock_and_begins_again():
    """Virtual time decides what is shown; after the end comes the start."""
    clock, day = HandClock(), recording("day")
    reader = ReplayReader(day, ["day"], clock, "day")
    states = []
    for seconds in (20, 400, 515, day.seconds + 1, day.seconds + 21):
        clock.time = 1000 + seconds
        document = decode(reader.read(None))
        states.append((document.servers[0].engines[0].state, round(document.at - day.started)))

    assert states == [("starting", 20), ("saturated", 400), ("down", 515), ("unknown", 0), ("starting", 20)]


class Two:
    """A recording of two servers."""

    servers = ("day", "stall")

    def __init__(self):
        self._recordings = {name: recording(name) for name in self.servers}
        self.sources = {name: played.sources[name] for name, played in self._recordings.items()}
        self.started = self._recordings["day"].started
        self.seconds = self._recordings["day"].seconds

    def events(self, server):
        """Yield what happened to one of them."""
        return self._recordings[server].events(server)


def test_a_recording_of_several_servers():
    """All servers of a recording are shown, each with its own state."""
    clock, two = HandClock(), Two()
    reader = ReplayReader(two, two.servers, clock, "two")
    clock.time += 400.0

    states = {server.name: server.engines[0].state for server in decode(reader.read(None)).servers}
    assert states == {"day": "saturated", "stall": "unknown"}
