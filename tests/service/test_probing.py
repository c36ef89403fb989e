# SPDX-License-Identifier: Apache-2.0
"""The daemon that probes: when, how often, through reloads, and without a word of the key."""

from __future__ import annotations

import threading
import time

import msgspec
import pytest

from tests.support.completions import GOOD
from tests.support.exposition import values_of
from tests.support.http_servers import StandIn, answer
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock


pytestmark = pytest.mark.slow


SECRET = "sk-7f3a9c"
PAGE = b"""\
vllm:num_requests_running{engine="0",model_name="page-model"} 0.0
vllm:num_requests_waiting{engine="0",model_name="page-model"} 0.0
vllm:generation_tokens_total{engine="0",model_name="page-model"} 5.0
"""
ENGINE = b',engine="0",model_name="page-model"'
QUICK = "{every: 60s, timeout: 1s, api_key_file: key}"
"""A probe that fails soon."""


class Fast(SystemClock):
    """A clock that is ahead whenever the test says so."""

    ahead = 0.0

    def now(self):
        """Return the time, later."""
        return super().now() + self.ahead


class Vllm:
    """A server with a page, and completions that come, or do not."""

    def __init__(self):
        self.is_wedged = self.is_asleep = False
        self.stand_in = StandIn(self._pieces)

    @property
    def probes(self):
        """How many completions were asked for."""
        return len([head for head in self.stand_in.requests if head.startswith("POST")])

    def _pieces(self, head):
        if not head.startswith("GET /metrics"):
            return self._completion()
        return [answer(PAGE + b'vllm:engine_sleep_state{sleep_state="awake"%s} %d\n' % (ENGINE, not self.is_asleep))]

    def _completion(self):
        end = time.monotonic() + SECONDS
        while self.is_wedged and time.monotonic() < end:
            yield b""
            time.sleep(0.02)
        yield from GOOD


class Meter:
    """Counts how many there are at once, at most."""

    def __init__(self):
        self.most = self._now = 0
        self._lock = threading.Lock()

    def __enter__(self):
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_):
        with self._lock:
            self._now -= 1


def metered(monkeypatch, probe=ServerMonitor.probe):
    """Return a meter of the probes that are made from now on."""
    meter = Meter()

    def measure(server):
        with meter:
            probe(server)

    monkeypatch.setattr(ServerMonitor, "probe", measure)
    return meter


def asked_when_due(monkeypatch):
    """Return the servers that are asked from now on when their next probe is due, one for each time."""
    asked = []
    next_probe = ServerMonitor.next_probe
    monkeypatch.setattr(ServerMonitor, "next_probe", lambda *args: asked.append(args[0]) or next_probe(*args))
    return asked


class Watch:
    """A service over such a server."""

    def __init__(self, folder, vllm):
        self.file = folder / "config.yml"
        self.vllm = vllm
        self.clock = Fast()
        self.write()
        self.service = Supervisor(self.load(), self.clock, load=self.load)
        (folder / "key").write_text(SECRET)

    def write(self, probe="{every: 60s, timeout: 60s, api_key_file: key}", **more):
        """Write the configuration."""
        options = "".join(f", {key}: {value}" for key, value in more.items())
        server = f"{{name: a, metrics: {self.vllm.stand_in.url!r}, probe: {probe}{options}}}"
        self.file.write_text(f"listen: 127.0.0.1:0\nservers: [{server}]\n")

    def load(self):
        """Read the configuration."""
        return load_config(str(self.file))

    def page(self):
        """Return the page's values by name and the labels' values."""
        return values_of(self.service.endpoints.metrics("").body.decode())

    def until_good(self):
        """Let probes be made until one succeeds in time."""

        def is_good():
            success = self.page().get(("probe_success", "a"))
            if success == 0:
                self.pass_time(60)
            return success == 1

        until(is_good)

    def pass_time(self, seconds):
        """Let time pass at once."""
        self.clock.ahead += seconds
        self.service.threads.probes._wake.set()
        self.service.threads.scrapes._wake.set()


@pytest.fixture
def vllm():
    """A server that is well."""
    found = Vllm()
    with found.stand_in:
        yield found
        found.is_wedged = False


@pytest.fixture
def watch(tmp_path, vllm):
    """A service that watches it."""
    found = Watch(tmp_path, vllm)
    found.service.start()
    yield found
    found.service.stop()


def test_a_wedged_idle_server_is_noticed(watch, vllm):
    """A server that answers its page and brings no token is idle by its page, and its probe has failed."""
    watch.write(QUICK)
    watch.service.reload()
    watch.until_good()
    good = watch.page()
    vllm.is_wedged = True
    watch.pass_time(60)
    until(lambda: watch.page().get(("probe_success", "a")) == 0)
    idle = ("engine_state", "0", "page-model", "a", "idle")
    until(lambda: watch.page()[idle] == 1)  # The page of before the leap in time is too old.
    page = watch.page()

    assert 0 < good["probe_time_to_first_token_seconds", "a"] < SECONDS
    assert b'"model":"page-model"' in b"".join(vllm.stand_in.bodies)
    assert 1 == page[idle]
    assert (1, 0) == (page["source_up", "a", "metrics"], page["source_up", "a", "probe"])
    assert 1 == page["source_info", "timeout", "a", "probe"]
    assert ("probe_time_to_first_token_seconds", "a") not in page
    assert ("heartbeat_timestamp_seconds", "probes") in page


def test_a_sleeping_server_is_not_asked(watch, vllm):
    """A server that sleeps gets no probe however much time passes, also between two pages; one that woke is asked."""
    until(lambda: watch.page().get(("probe_success", "a")) == 1)
    vllm.is_asleep = True
    watch.pass_time(10)
    until(lambda: watch.page().get(("source_info", "sleeping", "a", "probe")) == 1)
    for _ in range(3):
        watch.pass_time(100)
        until(lambda: watch.page().get(("engine_state", "0", "page-model", "a", "sleeping")) == 1)
    asleep = watch.page()

    assert 1 == vllm.probes
    assert ("probe_success", "a") not in asleep
    vllm.is_asleep = False
    watch.pass_time(10)
    until(lambda: vllm.probes == 2)


def test_probes_never_overlap(watch, vllm, monkeypatch):
    """However late a probe is and however often its turn comes, a server has one at a time, and none is made up for."""
    until(lambda: watch.page().get(("probe_success", "a")) == 1)
    meter, asked = metered(monkeypatch), asked_when_due(monkeypatch)
    vllm.is_wedged = True
    watch.pass_time(60)
    until(lambda: vllm.probes == 2)
    for _ in range(20):
        before = len(asked)
        watch.pass_time(600)
        until(lambda before=before: len(asked) > before)
    assert vllm.probes == 2
    vllm.is_wedged = False
    until(lambda: not watch.service.threads.probes._workers._busy)
    watch.pass_time(600)
    until(lambda: vllm.probes == 3)

    assert 1 == meter.most


def test_a_reload_ends_a_probe_under_way_and_begins_anew(watch, vllm, monkeypatch):
    """D4: another configuration's probe begins when the old one's has ended; an unchanged server's goes on."""
    until(lambda: watch.page().get(("probe_success", "a")) == 1)
    meter = metered(monkeypatch)
    vllm.is_wedged = True
    watch.pass_time(60)
    until(lambda: vllm.probes == 2)
    watch.service.reload()
    assert 1 == watch.page()["probe_success", "a"]
    watch.write("{every: 60s, timeout: 60s, model: other}")
    watch.service.reload()
    until(lambda: vllm.probes == 3)
    vllm.is_wedged = False
    until(lambda: watch.page().get(("probe_success", "a")) == 1)

    assert 1 == meter.most
    assert b'"model":"other"' in vllm.stand_in.bodies[-1] + vllm.stand_in.bodies[-2]


def test_the_key_is_in_no_output(watch, vllm, capfd):
    """The key is on no page and in no line of the daemon's log, whether probes succeed or fail."""
    until(lambda: watch.page().get(("probe_success", "a")) == 1)
    vllm.is_wedged = True
    watch.write(QUICK)
    watch.service.reload()
    until(lambda: watch.page().get(("probe_success", "a")) == 0)
    pages = watch.service.endpoints
    shown = pages.metrics("").body + pages.snapshot().body

    assert SECRET in "".join(vllm.stand_in.requests)
    assert SECRET.encode() not in shown
    assert SECRET not in "".join(capfd.readouterr())
    assert {"is_success": False, "first_token_seconds": None} == (
        msgspec.json.decode(pages.snapshot().body)["servers"][0]["probe"]
    )
