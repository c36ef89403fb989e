# SPDX-License-Identifier: Apache-2.0
"""What `make stack` is asked to watch, where it listens, and what it says of mistakes."""

from __future__ import annotations

import socket

from pathlib import Path

import pytest

from deploy.stack.loopback import chosen_ports
from deploy.stack.watched import Options, watched
from tests.support.http_servers import free_port

from vllm_watch.cli.commands import run
from vllm_watch.cli.commands.watched import Selection
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.model import PrometheusConfig
from vllm_watch.daemon.support.errors import UsageError, VllmWatchError


PROMETHEUS = "http://127.0.0.1:9090"
LISTEN = ["--listen", "127.0.0.1:1234"]
CONFIG = """\
prometheus: https://prometheus.example.com
checkpoint: /var/lib/vllm-watch/checkpoint.json
listen: 0.0.0.0:9468  # for others
servers:
  - {name: "08", log: /var/log/vllm/a.log, stall_after: 1m}
  - {name: b, metrics: http://127.0.0.1:8000/metrics}
"""


def test_by_default_the_recorded_server_of_the_package(tmp_path):
    """At ten times its speed."""
    what = watched(Options(), tmp_path)

    assert (list(what.arguments), what.speed) == (["demo", "--server", "day", "--speed", "10"], 10)
    again = "10 min again and again, each time as another start (VllmRestartLoop tells of it)"
    assert what.text == f"the recorded server day, {again}, at 10 times its speed"
    prometheus = ["--prometheus", PROMETHEUS]
    assert what.command(1234, PROMETHEUS)[1:] == ["-m", "vllm_watch", *what.arguments, *LISTEN, *prometheus]


def test_a_real_server_is_watched_in_real_time(tmp_path):
    """By its log, its /metrics or both, or whichever servers there are."""
    both = watched(Options(log="a.log", metrics="http://h:8000/metrics"), tmp_path)

    assert list(both.arguments) == ["run", "--log", "a.log", "--metrics", "http://h:8000/metrics"]
    assert list(watched(Options(log="a.log"), tmp_path).arguments) == ["run", "--log", "a.log"]
    assert list(watched(Options(here=True), tmp_path).arguments) == ["run"]
    assert both.speed == 1


def test_a_configuration_is_used_without_the_services_checkpoint(tmp_path):
    """Everything else of the file counts: a service that runs with it keeps its checkpoint for itself."""
    file = tmp_path / "mine.yml"
    file.write_text(CONFIG)
    what = watched(Options(config=str(file)), tmp_path)
    (command, option, copied) = what.arguments
    shipped, ours = load_config(str(file)), load_config(copied)

    assert (command, option) == ("run", "--config")
    assert (ours.checkpoint, shipped.checkpoint) == (None, "/var/lib/vllm-watch/checkpoint.json")
    assert ours.servers == shipped.servers
    assert what.text == f"the servers of {file}: 08, b"
    assert file.read_text() == CONFIG


@pytest.mark.parametrize("options", [Options(config="mine.yml"), Options(log="a.log"), Options(here=True)])
def test_the_alerts_of_real_servers_are_those_of_this_prometheus(tmp_path, monkeypatch, options):
    """Whatever the configuration says, the daemon asks the Prometheus that is started beside it."""
    monkeypatch.chdir(tmp_path)
    Path("mine.yml").write_text(CONFIG)
    words = watched(options, tmp_path).command(1234, PROMETHEUS)
    given = run.command.make_context("run", words[words.index("run") + 1 :]).params
    configs = []
    monkeypatch.setattr(run, "run_service", lambda config, *_, **__: configs.append(config))

    run.run_daemon(Selection(*(given[name] for name in ("config_file", "logs", "metrics", "listen", "prometheus"))))

    assert [(config.prometheus, config.listen) for config in configs] == [
        (PrometheusConfig(url=PROMETHEUS), "127.0.0.1:1234")
    ]


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (Options(recording="none"), 1, "none: cannot be read"),
        (Options(server="b"), 2, "it has no server b"),
        (Options(speed=2, log="a"), 2, "RECORDING, SERVER and SPEED are for a replay"),
        (Options(here=True, log="a"), 2, "give one of HERE, CONFIG, or LOG and METRICS"),
        (Options(config="a", metrics="http://h"), 2, "give one of HERE, CONFIG, or LOG and METRICS"),
        (Options(metrics="ftp://h"), 2, "--metrics: "),
        (Options(config="none.yml"), 2, "none.yml: cannot be read"),
    ],
)
def test_what_cannot_be_watched_is_a_sentence(tmp_path, options, status, sentence):
    """Contradictions, files that are not there, and what is no address."""
    with pytest.raises(VllmWatchError) as raised:
        watched(options, tmp_path)

    assert sentence in str(raised.value)
    assert raised.value.exit_code == status


def test_passwords_are_not_left_out(tmp_path):
    """A configuration with passwords is not served without them."""
    file = tmp_path / "mine.yml"
    file.write_text(f"web_config_file: {tmp_path / 'web.yml'}\n{CONFIG}")

    with pytest.raises(UsageError, match="has a web_config_file"):
        watched(Options(config=str(file)), tmp_path)


def test_ports():
    """A usual port that is taken is left to who has it; a given one is used; no two are the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        free = free_port()
        ports = chosen_ports({"a": (None, taken), "b": (None, free), "c": (free, 1)})
        with pytest.raises(UsageError, match=rf"^d cannot listen on 127\.0\.0\.1:{taken}: address already in use"):
            chosen_ports({"d": (taken, 1)})

    assert ports["c"] == free
    assert ports["a"] > taken
    assert ports["b"] > free
    assert len(set(ports.values())) == 3
