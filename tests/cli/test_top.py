# SPDX-License-Identifier: Apache-2.0
"""`top`: what it prints once, and what it says when it cannot."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys

from contextlib import closing

import pytest

from tests.parsers.lines import STATS_MESSAGE, record
from tests.support.command_line import SECONDS, vllm_watch
from tests.support.http_servers import StandIn, answer, free_port
from tests.support.recordings import RECORDINGS
from tests.terminal.documents import MOMENTS, fleet

from vllm_watch.cli.commands import top
from vllm_watch.daemon.catalog.states import STATES
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.service.supervisor import Supervisor
from vllm_watch.daemon.support.clock import SystemClock


DAY = str(RECORDINGS["day"])


@pytest.fixture(autouse=True)
def _unicode(monkeypatch):
    """Have an environment in which more than ASCII can be written, whatever the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)
    for name, value in {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "1", "TERM": "xterm"}.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def closed_port():
    """A port on which nothing listens."""
    return free_port()


@pytest.fixture
def daemon():
    """A vllm-watch with a server in each state."""
    document = json.dumps(fleet(*sorted(MOMENTS))).encode()
    with StandIn(lambda _: [answer(document)]) as server:
        yield server


def test_once_prints_the_end_of_a_recording():
    """The only server is there whole: what is read, its state and model, numbers with their sources, what happened."""
    done = vllm_watch("top", "--recording", DAY, "--once")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith(" vllm-watch  recording day.jsonl.xz, its end")
    assert re.search("○ idle for [0-9]+ s  day · Qwen3.6-27B · vLLM 0.32.0", done.stdout)
    assert "starting (was down)" in done.stdout
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(("columns", "longest"), [("200", 200), ("20", 40)])
def test_once_is_as_wide_as_columns_says(monkeypatch, columns, longest):
    """A script may ask for the wide screen with two halves; a line is never shorter than words need."""
    monkeypatch.setenv("COLUMNS", columns)
    lines = vllm_watch("top", "--recording", DAY, "--once").stdout.splitlines()

    assert longest - 10 < max(map(len, lines)) <= longest
    assert any(line.startswith("Now; ") and "What is wrong" in line for line in lines) is (longest == 200)


def test_once_as_json_has_the_keys_of_the_daemon(tmp_path):
    """Of the same log, --once and a daemon have the same of the whole, of a server and of an engine."""
    log = tmp_path / "vllm.log"
    log.write_bytes(record(STATS_MESSAGE) + b"\n")
    daemon = Supervisor(Config(listen="127.0.0.1:0", servers=(ServerConfig(name="vllm", log=str(log)),)), SystemClock())
    with closing(daemon.fleet):
        for each in daemon.fleet.logs:
            each.poll()
        daemon.tick()
        theirs = json.loads(daemon.endpoints.snapshot().body)
    ours = json.loads(vllm_watch("top", "--once", "--log", log, "--format", "json").stdout)

    def keys(document):
        (server,) = document["servers"]
        return [*map(set, (document, server, server["engines"][0]))]

    assert keys(ours) == keys(theirs)
    assert "state_since" in keys(ours)[2]


def test_of_several_servers_the_worst_is_first(daemon):
    """The table is in the order of severity, and below it the worst server is whole; so is the JSON's order."""
    url = daemon.url.removesuffix("/metrics")
    done = vllm_watch("top", "--url", url, "--once")
    document = json.loads(vllm_watch("top", "--url", url, "--once", "--format", "json").stdout)
    names = [server["name"] for server in document["servers"]]

    worst_first = sorted(MOMENTS, key=lambda state: -STATES[state].severity)
    rows = [line.split()[0] for line in done.stdout.splitlines() if line[:1].isalpha()]
    rows = [row for row in rows if row in MOMENTS][: len(MOMENTS)]
    assert (done.returncode, rows, names) == (0, worst_first, worst_first)
    assert re.search("✕ down for [0-9]+ [a-z]+  down", done.stdout)


def test_one_server_of_several(daemon):
    """Only the chosen server is shown; one that is not there is said."""
    url = daemon.url.removesuffix("/metrics")
    done = vllm_watch("top", "--url", url, "--once", "--server", "stalled")
    wrong = vllm_watch("top", "--url", url, "--once", "--server", "nobody")

    assert re.search("■ stalled for [0-9]+ [a-z]+  stalled", done.stdout)
    assert "saturated" not in done.stdout
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith(f'vllm-watch: {url}: there is no server "nobody"; there are: "down", "idle"')


@pytest.mark.parametrize("is_there", [True, False])
def test_a_running_daemon_is_found(daemon, closed_port, monkeypatch, is_there):
    """Without options the vllm-watch at the default address is shown; without one, the servers of this machine."""
    address = daemon.url.removesuffix("/metrics").removeprefix("http://") if is_there else f"127.0.0.1:{closed_port}"
    monkeypatch.setattr(top, "DEFAULT_LISTEN", address)
    with closing(top.reader_of(top.SourceOptions(), is_once=True)) as reader:
        title = reader.title

    assert title == (f"http://{address}" if is_there else "servers of this machine")


def test_a_log_that_is_not_there(tmp_path):
    """Without a daemon the sources are read by this process: what is wrong is on the screen, and in the exit status."""
    done = vllm_watch("top", "--once", "--log", tmp_path / "vllm.log")

    assert (done.returncode, done.stderr) == (1, "")
    assert "! log: The file does not exist yet." in done.stdout
    assert "! no source can be read, so nothing is known" in done.stdout


def test_a_password_is_sent(daemon, tmp_path):
    """The password comes from the first line of its file, and is sent with the user's name."""
    file = tmp_path / "password"
    file.write_text("secret\nnot this\n")
    url = daemon.url.removesuffix("/metrics")
    vllm_watch("top", "--url", url, "--once", "--username", "ops", "--password-file", file)

    assert "Authorization: Basic b3BzOnNlY3JldA==" in daemon.requests[0]


WITHOUT_TEXTUAL = """
import sys
sys.modules["textual"] = None
from vllm_watch.cli.command_line import main
main(sys.argv[1:])
"""


def printed_on_a_terminal(*command):
    """Return the exit status of a process whose three streams are a terminal, and what it printed."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as terminal:
            printed = terminal.read(1000)
            return process.wait(SECONDS), printed.decode().strip()


@pytest.mark.slow
def test_textual_is_missing():
    """Without the extra the command says how to install it."""
    status, printed = printed_on_a_terminal(sys.executable, "-c", WITHOUT_TEXTUAL, "top", "--recording", DAY)

    assert status == 2
    assert printed == (
        "vllm-watch: textual is not installed: in the sources, pip install '.[top]'; "
        "with --once a screen is printed without it"
    )
