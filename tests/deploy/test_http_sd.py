# SPDX-License-Identifier: Apache-2.0
"""What /api/v1/targets says, and that Prometheus understands it."""

from __future__ import annotations

import json

from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.http_servers import StandIn, answer
from tests.support.monitoring import get_json, running_prometheus
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.service.endpoints import target_groups
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock


JOB = Path(__file__).parents[2] / "deploy" / "prometheus" / "vllm-targets.yml"
SECRET = "t0p-s3cret"
PAGE = answer(b'# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="m"} 3.0\n')


def config_of(folder, *servers):
    """Write a configuration with these servers, a YAML mapping each; return its path."""
    path = folder / "vllm-watch.yml"
    path.write_text("listen: 127.0.0.1:0\nservers:\n" + "".join(f"- {each}\n" for each in servers))
    return path


@pytest.fixture
def service_of(tmp_path):
    """Start services that watch these servers; they end with the test."""
    started = []

    def start(*servers):
        path = str(config_of(tmp_path, *servers))
        service = Supervisor(load_config(path), SystemClock(), load=lambda: load_config(path))
        service.start()
        started.append(service)
        return service

    yield start
    for service in started:
        service.stop()


@pytest.mark.parametrize(
    ("url", "address", "scheme", "path"),
    [
        ("http://127.0.0.1:8000/metrics", "127.0.0.1:8000", "http", "/metrics"),
        ("https://gpu1.example.com/v/metrics", "gpu1.example.com", "https", "/v/metrics"),
        ("http://[::1]:8000/metrics", "[::1]:8000", "http", "/metrics"),
        (f"http://127.0.0.1:8000/metrics?token={SECRET}#part", "127.0.0.1:8000", "http", "/metrics"),
    ],
)
def test_a_server_is_a_target(url, address, scheme, path):
    """Address, scheme and path are the URL's, and what may be a secret in it is left out."""
    assert target_groups([ServerConfig(name="qwen", metrics=MetricsConfig(url=url), labels={"team": "search"})]) == [
        {
            "targets": [address],
            "labels": {"team": "search", "server": "qwen", "__scheme__": scheme, "__metrics_path__": path},
        }
    ]


def test_a_server_without_a_page_is_none(service_of, tmp_path):
    """A server that is watched by its log alone is not listed, and an empty list is a list."""
    (tmp_path / "vllm.log").touch()
    service = service_of(f"{{name: qwen, log: {tmp_path / 'vllm.log'}}}")

    assert json.loads(service.endpoints.targets().body) == []


@pytest.mark.needs_tool("prometheus")
def test_prometheus_scrapes_what_the_daemon_watches(service_of, tmp_path):
    """Prometheus, with the shipped job, finds both servers at their paths and scrapes them under the daemon's names."""
    with StandIn(lambda _: [PAGE]) as vllm:
        service = service_of(
            f"{{name: qwen, labels: {{team: search}}, metrics: '{vllm.url}'}}",
            f"{{name: llama, metrics: 'http://127.0.0.1:{vllm.port}/other/metrics'}}",
        )
        with prometheus(tmp_path, service.port) as url:
            found = until(lambda: healthy(url, 2), SECONDS, (tmp_path / "prometheus.log").read_text)
            query = f"{url}/api/v1/query?query=vllm:num_requests_running"
            series = until(lambda: len(results := get_json(query)["data"]["result"]) == 2 and results, 10)
        asked = {request.split()[1] for request in vllm.requests if "Prometheus" in request}

    assert {target["scrapeUrl"].rpartition(str(vllm.port))[2] for target in found} == {"/metrics", "/other/metrics"}
    assert asked == {"/metrics", "/other/metrics"}
    labels = {each["metric"]["server"]: each["metric"] for each in series}
    assert labels["qwen"] == {
        "__name__": "vllm:num_requests_running",
        "instance": f"127.0.0.1:{vllm.port}",
        "job": "vllm",
        "engine": "0",
        "model_name": "m",
        "server": "qwen",
        "team": "search",
    }
    assert "team" not in labels["llama"]


@contextmanager
def prometheus(folder, daemon_port):
    """Run Prometheus with the shipped job, but for the daemon's port and shorter waiting; give its address."""
    text = JOB.read_text()
    for shipped, ours in (
        ("127.0.0.1:9468", f"127.0.0.1:{daemon_port}"),
        ("refresh_interval: 30s", "refresh_interval: 1s"),
        ("scrape_interval: 15s", "scrape_interval: 1s"),
        ("scrape_timeout: 4s", "scrape_timeout: 1s"),
    ):
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, ours)
    with running_prometheus(folder, text) as url:
        yield url


def healthy(url, count):
    """Return Prometheus' targets once there are so many and all of them answer."""
    targets = get_json(f"{url}/api/v1/targets")["data"]["activeTargets"]
    return targets if len(targets) == count and all(each["health"] == "up" for each in targets) else None
