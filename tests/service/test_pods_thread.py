# SPDX-License-Identifier: Apache-2.0
"""The daemon with pods: they come and go, Kubernetes fails, and the configuration changes."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.kubernetes_api import FORBIDDEN, KubernetesApi, pod
from tests.support.waiting import until

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.model import KubernetesConfig
from vllm_watch.daemon.discovery.pods import Pod, PodsError
from vllm_watch.daemon.service import pods_thread
from vllm_watch.daemon.service.pods_thread import PodsThread
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.own_health import InternalErrors


class Listing:
    """What lists pods, as told: the pods, or an error to raise."""

    namespace = "vllm"

    def __init__(self):
        self.answers = ()
        self.opened = self.closed = 0

    def open(self, _):
        """Count a connection."""
        self.opened += 1
        return self

    def pods(self, **_):
        """Return the pods or raise."""
        if isinstance(self.answers, Exception):
            raise self.answers
        return self.answers

    def close(self):
        """Count its end."""
        self.closed += 1


CONFIG = KubernetesConfig(selector="app=vllm")
A = Pod(uid="1", name="a", ip="10.0.0.1", is_ready=True)
B = Pod(uid="2", name="b", ip="10.0.0.2", is_ready=True)


@pytest.fixture
def listing():
    """A thread that is not started, and what it lists."""
    return Listing()


@pytest.fixture
def thread(listing, monkeypatch):
    """The thread, polled by hand."""
    monkeypatch.setattr(pods_thread, "open_lister", listing.open)
    thread = PodsThread(SystemClock(), InternalErrors(), changed=lambda: None)
    thread.start = lambda: None
    thread.follow(CONFIG)
    return thread


def poll(thread, listing, answers):
    """Let the thread list once, and return the names of what is to be watched."""
    listing.answers = answers
    thread._poll(CONFIG)
    return [server.name for server in thread.servers()]


def shown(thread):
    """Return what the series say of listing."""
    return {(each.name.removeprefix("kubernetes_"), *each.labels): each.value for each in thread.samples(0.0)}


@pytest.mark.parametrize("error", [PodsError("forbidden", "no"), PodsError("timeout"), RuntimeError("a fault of ours")])
def test_what_was_listed_stays_while_nothing_can_be_listed(thread, listing, error):
    """A denial, a hang or a fault removes no server; the reason is known, and the counts are not."""
    assert ["a", "b"] == poll(thread, listing, (A, B))
    listed_at = shown(thread)["last_list_timestamp_seconds",]

    assert ["a", "b"] == poll(thread, listing, error)

    found = shown(thread)
    assert found["info", getattr(error, "reason", "internal_error")] == 1
    assert found["last_list_timestamp_seconds",] == listed_at
    assert ("pods", "watched") not in found
    assert ["b"] == poll(thread, listing, (B,))
    assert (1, 1) == (shown(thread)["info", "ok"], shown(thread)["pods", "watched"])
    assert listing.opened == 2  # After a failure the token and the authority are read anew.
    assert listing.closed == 1


def test_the_series_say_how_listing_goes(thread, listing):
    """While pods are listed there are counts of every state and a mark for each watched one; else only the reason."""
    poll(thread, listing, PodsError("forbidden"))
    assert {("up",): 0, ("info", "forbidden"): 1} == shown(thread)
    poll(thread, listing, (A, B._replace(is_ready=False)))
    found = shown(thread)
    assert (1, 1, 1, 0) == tuple(
        found[key] for key in [("up",), ("pods", "watched"), ("pods", "starting"), ("pods", "no_port")]
    )
    assert {("server_info", "a")} == {key for key in found if key[0] == "server_info"}


def test_without_the_key_nothing_is_asked_or_shown(thread, listing):
    """Once the configuration has no pods, there is no status, no server and no connection."""
    poll(thread, listing, (A,))

    thread.follow(None)

    assert ({}, (), True) == (shown(thread), thread.servers(), thread.are_watched())
    thread._forget()
    assert listing.closed == 1


@contextlib.contextmanager
def running(path):
    """Run a daemon's supervisor whose main thread is this one."""
    supervisor = Supervisor(load_config(str(path)), SystemClock(), load=lambda: load_config(str(path)))
    supervisor.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()


def names(supervisor):
    """Return what is watched after a turn of the main thread."""
    supervisor.tick()
    return [server.name for server in supervisor.fleet.servers]


def page(supervisor):
    """Return what /metrics says."""
    return supervisor.endpoints.metrics("").body.decode()


def test_the_daemon_follows_the_pods(tmp_path):
    """Pods come, go, fail to be listed and are configured away, and the daemon watches what there is, ready or not."""
    config, head = tmp_path / "vllm-watch.yml", "listen: 127.0.0.1:0\n"
    own = f"servers: [{{name: d, log: {tmp_path}/d.log}}]\n"
    with KubernetesApi([pod("a", "127.0.0.1", port=1)]) as api:
        section = f"kubernetes: {{selector: app=vllm, kubeconfig: {api.kubeconfig(tmp_path)}, port: http, every: 5s}}\n"
        config.write_text(head + section)
        with running(config) as supervisor:
            until(lambda: names(supervisor) == ["a"])
            until(lambda: supervisor.endpoints.ready().status == 200)
            assert 'vllm_watch_kubernetes_pods{state="watched"} 1.0' in page(supervisor)

            api.pods = [pod("a", "127.0.0.1", port=1), pod("b", "127.0.0.1", port=2), pod("c", ready=False)]
            supervisor.reload()
            until(lambda: names(supervisor) == ["a", "b"])

            api.fault = FORBIDDEN
            supervisor.reload()
            until(lambda: ("info", "forbidden") in shown(supervisor.pods))
            assert ["a", "b"] == names(supervisor)
            assert "vllm_watch_kubernetes_up 0.0" in page(supervisor)

            api.fault, api.pods = None, [pod("b", "127.0.0.1", port=2)]
            config.write_text(head + section.replace("}", ", slo: chat}") + own)
            supervisor.reload()
            until(lambda: names(supervisor) == ["d", "b"])
            until(lambda: names(supervisor) and supervisor.fleet.config.servers[1].slo is not None)

            config.write_text(head + own)
            supervisor.reload()
            assert ["d"] == names(supervisor)
            assert "kubernetes_up" not in page(supervisor)
