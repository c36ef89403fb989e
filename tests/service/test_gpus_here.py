# SPDX-License-Identifier: Apache-2.0
"""A daemon, a stand-in for vLLM and one for the driver's library as processes of this machine, from start to end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request

import pytest

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.fake_nvml import GIB, Scene, h100, lost
from tests.support.http_servers import free_port
from tests.support.servers_here import ServersHere
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.catalog.series import PREFIX


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("cc"), pytest.mark.needs_module("pynvml")]

COMMAND = [sys.executable, "-m", "vllm_watch"]
FIRST, SECOND, THIRD = (h100(index).uuid for index in range(3))


class Watched:
    """A daemon of a server that is a process of this machine."""

    def __init__(self, folder, port):
        self.port = free_port()
        self.config = folder / "vllm-watch.yml"
        self.config.write_text(
            f"listen: 127.0.0.1:{self.port}\n"
            "gpu: {interval: 1s, kernel_log: never}\n"
            f"servers: [{{name: a, metrics: 'http://127.0.0.1:{port}/metrics'}}]\n"
        )
        self.process = subprocess.Popen([*COMMAND, "run", "--config", self.config], stderr=subprocess.DEVNULL)

    def page(self):
        """Return the samples of the daemon's page by name and labels; none before it listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=SECONDS) as answer:
                families = parse_text(answer.read().decode())
        except OSError:
            return {}
        samples = [sample for family in families for sample in family.samples if sample.name.startswith(PREFIX)]
        return {
            (each.name.removeprefix(PREFIX), *[value for _, value in sorted(each.labels.items())]): each.value
            for each in samples
        }

    def until_reason(self, reason):
        """Wait until the source of GPUs has a reason; return the page."""
        return until(
            lambda: (page := self.page()).get(("source_info", reason, "a", "gpu")) == 1 and page, what=self.page
        )

    def close(self):
        """End it."""
        self.process.terminate()
        assert self.process.wait(SECONDS) == 0


@pytest.fixture
def here(tmp_path):
    """Stand-ins for vLLM on this machine."""
    servers = ServersHere(tmp_path)
    yield servers
    servers.close()


def printed(*arguments):
    """Return what a command prints, whether something is wrong or not."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=SECONDS
    ).stdout


def test_from_the_first_reading_to_a_driver_that_hangs(here, fake_nvml, tmp_path):
    """A GPU is its server's by a process; it stays so after its end, when it is lost and while the driver hangs."""
    port = free_port()
    server = here.start(here.command(port=port))
    here.until_listening(port)
    own = h100(0, processes={server.pid: 70 * GIB, os.getpid(): GIB})
    fake_nvml.show(Scene([own, h100(1)]))
    daemon = Watched(tmp_path, port)
    try:
        page = daemon.until_reason("ok")
        assert page["server_gpu_info", FIRST, "pid", "a", "false"] == 1
        assert {key[1] for key in page if key[0] == "gpu_busy_ratio"} == {FIRST}
        assert (page["gpu_process_memory_bytes", FIRST, "a"], page["gpu_other_memory_bytes", FIRST]) == (70 * GIB, GIB)
        assert (page["gpus",], page["source_up", "a", "gpu"]) == (2, 1)
        assert "GPU 0, NVIDIA H100 80GB HBM3, by its processes: 70.0 of " in printed("check", "--config", daemon.config)
        url = f"http://127.0.0.1:{port}/metrics"
        assert "93.0  70.0 of 80.0   1.00  640 of 700" in printed("once", "--metrics", url, "--format", "summary")
        (found,) = [
            each
            for each in json.loads(printed("discover", "--format", "json"))["servers"]
            if each["metrics"].endswith(f":{port}/metrics")
        ]
        assert [each["gpu"] for each in found["gpus"]] == [FIRST]

        here.end(server.pid)
        page = until(
            lambda: (page := daemon.page()).get(("gpu_process_memory_bytes", FIRST, "a")) == 0 and page,
            what=daemon.page,
        )
        assert page["server_gpu_info", FIRST, "pid", "a", "false"] == 1

        fake_nvml.show(Scene([lost(h100(0)), h100(1)]))
        until(lambda: daemon.page().get(("gpu_state", FIRST, "lost")) == 1, what=daemon.page)
        fake_nvml.show(Scene([h100(0), h100(1)]))
        until(lambda: daemon.page().get(("gpu_state", FIRST, "lost")) == 0, what=daemon.page)

        fake_nvml.show(Scene([h100(0), h100(1)]).hanging("any"))
        page = daemon.until_reason("call_hangs")
        assert page["server_gpu_info", FIRST, "pid", "a", "false"] == 1
        assert not [key for key in page if key[0] in {"gpu_busy_ratio", "gpu_info", "gpus"}]
    finally:
        daemon.close()
