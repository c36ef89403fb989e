# SPDX-License-Identifier: Apache-2.0
"""What `make stack` is asked to watch, where it listens, and what it says of mistakes."""

from __future__ import annotations

import socket

import pytest

from deploy.stack.processes import free_ports
from deploy.stack.watched import Options, watched

from vllm_watch.cli.commands import run
from vllm_watch.cli.commands.watched import Selection
from vllm_watch.daemon.config.model import PrometheusConfig
from vllm_watch.daemon.support.errors import VllmWatchError


PROMETHEUS = "http://127.0.0.1:9090"
LISTEN = ["--listen", "127.0.0.1:1234"]


def test_by_default_the_recorded_server_of_the_package():
    """At ten times its speed."""
    what = watched(Options())

    assert (list(what.arguments), what.speed) == (["demo", "--server", "day", "--speed", "10"], 10)
    again = "10 min again and again, each time as another start (VllmRestartLoop tells of it)"
    assert what.text == f"the recorded server day, {again}, at 10 times its speed"
    prometheus = ["--prometheus", PROMETHEUS]
    assert what.command(1234, PROMETHEUS)[1:] == ["-m", "vllm_watch", *what.arguments, *LISTEN, *prometheus]


def test_a_real_server_is_watched_in_real_time():
    """By its log, its /metrics or both, or whichever servers there are."""
    both = watched(Options(log="a.log", metrics="http://h:8000/metrics"))

    assert list(both.arguments) == ["run", "--log", "a.log", "--metrics", "http://h:8000/metrics"]
    assert list(watched(Options(log="a.log")).arguments) == ["run", "--log", "a.log"]
    assert list(watched(Options(here=True)).arguments) == ["run"]
    assert both.speed == 1


@pytest.mark.parametrize("options", [Options(log="a.log"), Options(here=True)])
def test_the_alerts_of_real_servers_are_those_of_this_prometheus(tmp_path, monkeypatch, options):
    """The daemon asks the Prometheus that is started beside it."""
    monkeypatch.chdir(tmp_path)
    words = watched(options).command(1234, PROMETHEUS)
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
        (Options(here=True, log="a"), 2, "give HERE, or LOG and METRICS"),
        (Options(metrics="ftp://h"), 2, "--metrics: "),
    ],
)
def test_what_cannot_be_watched_is_a_sentence(options, status, sentence):
    """Contradictions, files that are not there, and what is no address."""
    with pytest.raises(VllmWatchError) as raised:
        watched(options)

    assert sentence in str(raised.value)
    assert raised.value.exit_code == status


def test_ports():
    """A usual port that is taken is left to who has it, and no two programs have the same."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        ports = free_ports({"a": taken, "b": taken})

    assert len({taken, *ports.values()}) == 3
