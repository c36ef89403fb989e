# SPDX-License-Identifier: Apache-2.0
"""The Compose file: by its schema, by what it mounts, and by the programs that it starts, in one network."""

from __future__ import annotations

import json
import re
import sys

from pathlib import Path

import pytest

from tests.support.leftovers import inherited
from tests.support.monitoring import ALERTMANAGER, PROMETHEUS
from tests.support.processes import run_command
from tests.support.waiting import SECONDS
from tests.support.yaml_files import load_yaml

import vllm_watch

from vllm_watch.daemon.config.config_file import load_config


FOLDER = Path(__file__).parents[2] / "deploy" / "compose"
FILE = FOLDER / "compose.yml"
PROGRAMS = {"prometheus": PROMETHEUS, "alertmanager": ALERTMANAGER}
CONFINED = ("monitoring", "vllm-watch", "prometheus", "alertmanager", "grafana")


@pytest.fixture(scope="module")
def compose():
    """The file, as YAML."""
    return load_yaml(FILE.read_text(encoding="utf-8"))


def mounts(service):
    """Return what a service mounts: source, place and whether it is read-only."""
    return [(*mount.split(":")[:2], mount.endswith(":ro")) for mount in service.get("volumes", [])]


@pytest.mark.needs_module("check_jsonschema")
def test_the_file_follows_the_specification(tmp_path):
    """The schema of Compose files has nothing against it, and does against a key that there is not."""
    wrong = tmp_path / "compose.yml"
    wrong.write_text(FILE.read_text().replace("read_only:", "readonly:"))

    statuses = [
        run_command(
            sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file, text=False
        ).returncode
        for file in (FILE, wrong)
    ]

    assert [0, 1] == statuses


def test_everything_that_is_mounted_is_there(compose):
    """Each path of the tree exists and is read-only, each volume is declared, and none is left over."""
    everything = [mount for service in compose["services"].values() for mount in mounts(service)]
    paths = [(source, read_only) for source, _, read_only in everything if source.startswith(".")]

    assert 7 == len(paths)
    assert [] == [source for source, read_only in paths if not ((FOLDER / source).exists() and read_only)]
    assert set(compose["volumes"]) == {source for source, *_ in everything if not source.startswith(".")}


def test_images_are_pinned_and_ports_are_on_loopback(compose):
    """No image floats, ours has this version, and nothing listens for the world."""
    services = compose["services"].values()

    assert [] == [s["image"] for s in services if not re.search(r":v?\d+\.\d+(\.\d+)?$", s["image"])]
    assert f"vllm-watch:{vllm_watch.__version__}" == compose["services"]["vllm-watch"]["image"]
    assert [] == [port for s in services for port in s.get("ports", []) if not port.startswith("127.0.0.1:")]


def test_what_watches_may_do_little(compose):
    """All but vLLM write nothing but their volumes, have no capabilities and cannot get any, and have limits."""
    for name in CONFINED:
        service = compose["services"][name]
        assert (True, ["ALL"], ["no-new-privileges:true"]) == (
            service["read_only"],
            service["cap_drop"],
            service["security_opt"],
        )
        assert service["deploy"]["resources"]["limits"]["memory"]
    assert (True,) == tuple(
        read_only for source, _, read_only in mounts(compose["services"]["vllm-watch"]) if source == "vllm-log"
    )


def test_the_daemon_reads_what_vllm_writes(compose):
    """The daemon's configuration names the file that vLLM's output goes to, and vLLM's port under its name."""
    vllm = compose["services"]["vllm"]
    (server,) = load_config(str(FOLDER / "vllm-watch.yml")).servers
    watch = {place: source for source, place, _ in mounts(compose["services"]["vllm-watch"])}

    assert vllm["entrypoint"][vllm["entrypoint"].index("--log") + 1] == server.log
    assert ("vllm-log", str(Path(server.log).parent)) in [mount[:2] for mount in mounts(vllm)]
    assert "vllm-log" == watch[str(Path(server.log).parent)]
    assert f"http://vllm:{vllm['command'][-1]}/metrics" == server.metrics.url


# Starts each program in the background, all on one loopback of their own, and prints what Prometheus knows of them.
_POD = """
set -e
ip link set lo up
trap 'kill $(jobs -p)' EXIT
"$PYTHON" -m vllm_watch run --config "$CONFIG" --listen 0.0.0.0:9468 &
{programs}
"$PYTHON" - <<'END'
import json, time, urllib.request
def get(path):
    with urllib.request.urlopen("http://127.0.0.1:9090" + path, timeout=60) as answer:
        return json.load(answer)["data"]
end = time.monotonic() + 120
while True:
    try:
        found = [
            [(t["labels"]["job"], t["scrapeUrl"], t["health"]) for t in get("/api/v1/targets")["activeTargets"]],
            [manager["url"] for manager in get("/api/v1/alertmanagers")["activeAlertmanagers"]],
            sum(len(group["rules"]) for group in get("/api/v1/rules")["groups"]),
            [series["metric"]["server"] for series in get("/api/v1/query?query=vllm_watch_server_info")["result"]],
        ]
    except OSError:
        found = [[], [], 0, []]
    if all(found) and found[0][0][2] == "up" or time.monotonic() > end:
        break
    time.sleep(0.2)
print(json.dumps(found))
END
"""


@pytest.mark.needs_root
@pytest.mark.needs_namespaces("--net")
@pytest.mark.needs_tool("ip", "prometheus", "prometheus-alertmanager")
def test_the_programs_work_together_as_they_are_configured(compose, tmp_path):
    """Prometheus and Alertmanager, by the commands of the file, find each other and the daemon on loopback."""
    lines = []
    for name, program in PROGRAMS.items():
        service = compose["services"][name]
        command = " ".join(f"'{part}'" for part in service["command"])
        for source, place, _ in mounts(service):
            real = FOLDER / source if source.startswith(".") else tmp_path / source
            command = re.sub(rf"(?<==){place}(?=[/'])", str(real.resolve()), command)
        assert "=/etc/" not in command
        lines.append(f"{program} {command} 2>'{tmp_path}/{name}.log' &")
    log = tmp_path / "vllm.log"
    log.write_text(
        "(APIServer pid=1) INFO 07-18 04:18:30 [api_server.py:1896] vLLM API server version 0.11.0\n", encoding="utf-8"
    )
    config = tmp_path / "vllm-watch.yml"
    text = (FOLDER / "vllm-watch.yml").read_text()
    config.write_text(re.sub("/var/(log/vllm|lib/vllm-watch)", str(tmp_path), text))

    ran = run_command(
        "unshare",
        "-n",
        "bash",
        "-c",
        _POD.replace("{programs}", "\n".join(lines)),
        timeout=2 * SECONDS,
        env={
            **inherited(),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHON": sys.executable,
            "PYTHONPATH": ":".join(sys.path[1:]),
            "CONFIG": str(config),
        },
    )

    assert 0 == ran.returncode, ran.stderr
    targets, managers, rules, servers = json.loads(ran.stdout)
    assert [["vllm-watch", "http://127.0.0.1:9468/metrics", "up"]] == targets
    assert ["http://127.0.0.1:9093/api/v2/alerts"] == managers
    assert rules > 40
    assert ["vllm"] == servers
