# SPDX-License-Identifier: Apache-2.0
"""What fails inside the daemon is counted by its part, and costs only that part."""

from __future__ import annotations

import threading
import time
import types
import urllib.error
import urllib.request

import msgspec
import pytest
import structlog

from tests.support.exposition import values_of
from tests.support.http_servers import StandIn, answer
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.catalog.codes import PARTS
from vllm_watch.daemon.config.model import Config, GpuConfig, KubernetesConfig, OtlpConfig, PrometheusConfig
from vllm_watch.daemon.config.server_config import MetricsConfig, ProbeConfig, ServerConfig
from vllm_watch.daemon.service import alerts, gpus
from vllm_watch.daemon.service import endpoints as endpoints_module
from vllm_watch.daemon.service.endpoints import DaemonEndpoints
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.service.systemd import Notifier
from vllm_watch.daemon.sources.directory_watcher import DirectoryWatcher
from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch.daemon.sources.prober import Prober
from vllm_watch.daemon.sources.scraper import Scraper
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.web import config_reload as current_module


pytestmark = pytest.mark.slow


PAGE = b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 0.0\n'


def fail(*_arguments, **_options):
    """Fail as a mistake in the program does."""
    raise RuntimeError("broken")


class Daemon:
    """A service of two logs and a /metrics that is probed, its main thread, and what its page says."""

    def __init__(self, folder, url):
        self.folder = folder
        for name in ("a", "b"):
            (folder / f"{name}.log").write_text("")
        (folder / "web.yml").write_text("{}")
        servers = (
            *(ServerConfig(name=name, log=str(folder / f"{name}.log")) for name in ("a", "b")),
            ServerConfig(
                name="m",
                metrics=MetricsConfig(url=url, interval=1.0, timeout=1.0),
                probe=ProbeConfig(every=5.0, timeout=2.0, url=url, model="m"),
            ),
        )
        config = Config(listen="127.0.0.1:0", servers=servers, web_config_file=str(folder / "web.yml"))
        self.is_found_wrong = False
        self.service = Supervisor(config, SystemClock(), load=fail, follower=self)
        self.config = config
        self.service.start()
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    hanging_count = 0
    """Processes at which the search hangs."""

    def poll(self, *, fully=False):
        """Find what is configured, as discovery does."""
        if self.is_found_wrong:
            fail(fully)
        return self.config

    def page(self):
        """Return the values by name and labels' values; the page is made here, and asked for over HTTP as well."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.service.port}/metrics")
        with structlog.testing.capture_logs():
            try:
                urllib.request.urlopen(request, timeout=SECONDS).close()
            except urllib.error.HTTPError as error:
                error.close()
        samples = list(self.service.own_samples())
        text = self.service.endpoints.metrics("").body.decode() if not self.is_page_broken else ""
        return {**values_of(text), **{(sample.name, *sample.labels): sample.value for sample in samples}}

    is_page_broken = False

    def stop(self):
        """End all threads."""
        self.service.request_stop()
        self.thread.join(SECONDS)
        self.service.stop()


@pytest.fixture
def daemon(tmp_path):
    """A running daemon that every source of answers."""
    with StandIn(lambda _: [answer(PAGE)]) as server:
        found = Daemon(tmp_path, server.url)
        until(lambda: found.service.fleet.is_ready)
        yield found
        found.stop()


def _refuse_threads(daemon, monkeypatch):
    class NoThread(threading.Thread):
        """The system's limit is reached."""

        def start(self):
            """Refuse."""
            raise RuntimeError("can't start new thread")

    # Those of the daemon alone: the server that it scrapes has a thread for each connection.
    refusing = types.SimpleNamespace(**{**vars(threading), "Thread": NoThread})
    monkeypatch.setattr("vllm_watch.daemon.service.threads.threading", refusing)
    workers = daemon.service.threads.scrapes._workers
    workers.send("one more", daemon.service.fleet.servers[2])
    workers.send("another", daemon.service.fleet.servers[2])


def _break_page(daemon, monkeypatch):
    daemon.is_page_broken = True
    monkeypatch.setattr(DaemonEndpoints, "metrics", fail)


def _break_web_config(daemon, monkeypatch):
    monkeypatch.setattr(current_module, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(current_module, "load_web_config", fail)
    (daemon.folder / "web.yml").write_text("# changed\n{}")


def _break_notify(daemon, monkeypatch):
    notifier = Notifier({"NOTIFY_SOCKET": str(daemon.folder / "nobody")}, failed=daemon.service._note_unsent)
    monkeypatch.setattr(daemon.service, "_notifier", notifier)


def _break_alerts(daemon, patch):
    patch.setattr(alerts, "ask", fail)
    daemon.service.threads.alerts.follow(PrometheusConfig(url="http://127.0.0.1:9"))


def _break_gpus(daemon, patch):
    patch.setattr(gpus, "GpuReader", lambda _: types.SimpleNamespace(report=fail, close=lambda: None))
    config = daemon.service.fleet.config
    always = msgspec.structs.replace(config, gpu=GpuConfig(read="always"))
    daemon.service.threads.gpus.follow(always, daemon.service.fleet.servers)


def _break_kernel_log(_, patch):
    log = types.SimpleNamespace(poll=fail, close=lambda: None, has_more=False, cursor=None, reason="ok")
    patch.setattr("vllm_watch.daemon.service.kernel_log_thread.KernelJournal", lambda **_: log)
    patch.setattr("vllm_watch.daemon.service.kernel_log_thread.place_of", lambda _: "journal")


def _break_pods(daemon, patch):
    patch.setattr("vllm_watch.daemon.service.pods_thread.open_lister", fail)
    daemon.service.pods.follow(KubernetesConfig(selector="app=vllm"))


def _break_otlp(daemon, patch):
    patch.setattr(daemon.service.otlp, "_body", fail)
    daemon.service.otlp.follow(OtlpConfig(endpoint="http://127.0.0.1:9"))


BREAK = {
    "main": lambda daemon, patch: patch.setattr(daemon.service.reloader, "apply_offer", fail),
    "reload": lambda daemon, _: daemon.service.request_reload(),
    "tail": lambda _, patch: patch.setattr(LogTailer, "poll", fail),
    "scrape": lambda _, patch: patch.setattr(Scraper, "scrape", fail),
    "probe": lambda _, patch: patch.setattr(Prober, "probe", fail),
    "discovery": lambda daemon, _: (
        setattr(daemon, "is_found_wrong", True),
        daemon.service.threads.discovery.turn_now(),
    ),
    "threads": _refuse_threads,
    "file_events": lambda _, patch: patch.setattr(DirectoryWatcher, "watch", fail),
    "snapshot": lambda _, patch: patch.setattr(endpoints_module, "server_samples", fail),
    "web": _break_page,
    "web_config": _break_web_config,
    "notify": _break_notify,
    "alerts": _break_alerts,
    "gpu": _break_gpus,
    "kernel_log": _break_kernel_log,
    "kubernetes": _break_pods,
    "otlp": _break_otlp,
}


@pytest.mark.parametrize("part", PARTS)
def test_each_failure_is_counted_and_costs_its_part_only(daemon, monkeypatch, part):
    """What raises in a part is counted under its name and no other, and every thread goes on to give signs of life."""
    before = daemon.service.errors.counts()
    with structlog.testing.capture_logs():
        with monkeypatch.context() as patch:
            BREAK[part](daemon, patch)
            until(lambda: daemon.page()["internal_errors_total", part] > before[part])
            others = {name for name, count in daemon.service.errors.counts().items() if count} - {part}
        until(lambda: not daemon.service.liveness.stale())

    assert set() == others
    assert daemon.thread.is_alive()
    assert {0} == set(before.values())


def test_a_search_that_hangs_ends_no_daemon(daemon):
    """A search for servers that hangs is seen by its heartbeat, and is no reason to restart what watches servers."""
    search = daemon.service.threads.discovery
    search.request_stop()
    search._thread.join(SECONDS)
    search.heartbeat._at -= 1000
    page = daemon.service.endpoints

    assert daemon.page()["heartbeat_timestamp_seconds", "discovery"] <= time.time() - 1000
    assert 200 == page.healthy().status
