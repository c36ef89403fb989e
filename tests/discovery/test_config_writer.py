# SPDX-License-Identifier: Apache-2.0
"""The configuration that discovery writes is one that the daemon takes, whatever was found."""

from __future__ import annotations

import glob

import pytest

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.gpus import gpu, uuid

from vllm_watch.cli.commands.discover import lines_of, view_of
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.discovery.config_writer import configuration_of
from vllm_watch.daemon.discovery.serve_command import ServeCommand
from vllm_watch.daemon.discovery.servers import DiscoveredServer, Discovery
from vllm_watch.daemon.state.gpu_report import ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.support.printable import ReportLine


def named(name="qwen", **given_values):
    """Return a server that was found, with a URL unless something else is given."""
    values = {"url": "http://127.0.0.1:8000/metrics", "log": None, "journal": None, "findings": (), **given_values}
    return DiscoveredServer(7, 70, name, "vllm", values.pop("command", ServeCommand(model="m")), **values)


@pytest.fixture
def accepted(tmp_path):
    """Return what the daemon makes of servers that were found and written."""

    def load(*servers):
        file = tmp_path / "vllm-watch.yml"
        file.write_text(configuration_of(servers), encoding="utf-8")
        return load_config(str(file)).servers

    return load


def test_all_kinds(accepted):
    """Logs in files and in the journal, with and without /metrics, are read back as they were found."""
    servers = accepted(
        named("a", log="/var/log/vllm.log"),
        named("b", journal="vllm@b.service"),
        named("c", url=None, log="/c.log"),
        named("d", url="https://[::1]:8443/metrics", command=ServeCommand(uses_tls=True, needs_api_key=True)),
    )

    assert [
        ("a", "/var/log/vllm.log", None, "http://127.0.0.1:8000/metrics"),
        ("b", None, "vllm@b.service", "http://127.0.0.1:8000/metrics"),
        ("c", "/c.log", None, None),
        ("d", None, None, "https://[::1]:8443/metrics"),
    ] == [(each.name, each.log, each.journal, each.metrics and each.metrics.url) for each in servers]


def test_one_that_cannot_be_watched(accepted):
    """A server of which nothing can be read is a comment, beside the others."""
    assert ["b"] == [each.name for each in accepted(named("a", url=None), named("b"))]


def test_a_log_that_was_renamed(accepted):
    """What is written is the path that the next start writes to, never a rotated name, with where the log is now."""
    renamed = named(log="/vllm.log.2")
    inside = named("b", log="/proc/7/root/vllm.log")

    assert ["/vllm.log", None] == [each.log for each in accepted(renamed, inside)]
    assert "    # Its log was renamed: until it is started again it writes to /vllm.log.2." in configuration_of(
        [renamed]
    )
    assert "# Its log /proc/7/root/vllm.log has this name only while it runs" in configuration_of([inside])


def test_hints_hold_no_key():
    """Where a key is needed the place for its file is shown, as a comment; where none is, it is not."""
    text = configuration_of([named(command=ServeCommand(needs_api_key=True))])

    assert "    #   api_key_file: /path/key" in text.splitlines()
    assert "api_key_file" not in configuration_of([named()])


# The fixture only names a file, which each example writes anew.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.text(st.characters(blacklist_characters="\0/"), min_size=1).filter(lambda name: name.strip(" .")),
    advice=st.text(),
)
def test_any_path_and_any_text(accepted, name, advice):
    """Whatever a path or advice has in it, the path is read back, or left out if it does not print."""
    (server,) = accepted(named(log=f"/{name}", findings=(ReportLine(advice),)))

    assert server.log == (glob.escape(f"/{name}") if name.isprintable() else None)


def test_a_report_on_gpus():
    """The GPUs of a server are named by their numbers and models, or it says why they are not known."""
    server, found = named(url="http://127.0.0.1:8000/metrics"), Discovery((), (), 12)
    used = [ServerGpu(uuid(number), "pid", is_shared=False, memory=1.0, reading=gpu(number)) for number in (0, 1)]
    known, unknown = GpuUse(1.0, "ok", tuple(used)), GpuUse(1.0, "no_driver")

    def gpus(use):
        return [line.text for line in lines_of(found, [server], {server.name: use}) if "GPU" in line.text]

    assert gpus(known) == ["  GPUs: 0 (NVIDIA H100 80GB HBM3), 1 (NVIDIA H100 80GB HBM3)"]
    assert gpus(unknown) == ["  GPUs: the driver is not loaded"]
    assert gpus(unknown._replace(reason=None)) == []
    (view,) = view_of(found, [server], {server.name: known})["servers"]
    assert [each["gpu"] for each in view["gpus"]] == [uuid(0), uuid(1)]
