# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus and Alertmanager on loopback, with the shipped configuration, and somebody who gets the pages."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from deploy.stack import configuration
from deploy.stack.monitoring import alertmanager_command, prometheus_command
from deploy.stack.notifications import receiver
from tests.support import tools
from tests.support.http_servers import free_port
from tests.support.processes import run_command
from tests.support.waiting import SECONDS, until

from vllm_watch.cli.commands.backfill import write_backfill


ALERTS = Path(__file__).parents[2] / "alerts"
SHIPPED = ALERTS / "alertmanager" / "alertmanager.yml"
ALERTMANAGER = tools.find("prometheus-alertmanager")
PROMETHEUS = tools.find("prometheus")
NOWHERE = "http://127.0.0.1:9/"
"""Where the shipped receivers are, each in a path of its own name."""


class Message(NamedTuple):
    """What Alertmanager sent to one receiver, and when (monotonic seconds)."""

    receiver: str
    body: dict
    at: float


class Receivers:
    """All receivers at once: keeps what comes, by the path it came to."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open = ExitStack()

    def __enter__(self):
        self.url = self._open.enter_context(
            receiver(lambda name, body: self.messages.append(Message(name, body, time.monotonic())))
        )
        return self

    def __exit__(self, *_):
        self._open.close()

    def to(self, name: str) -> list[Message]:
        """Return what one receiver got so far."""
        return [message for message in list(self.messages) if message.receiver == name]


def promtool(*arguments: str | Path) -> tuple[bool, str]:
    """Run promtool; return whether all was well, and what it printed."""
    run = run_command("promtool", *arguments, timeout=5 * SECONDS)
    return run.returncode == 0, run.stdout + run.stderr


def get_json(url: str) -> object:
    """Return the answer to a GET."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return json.load(answer)


def get_text(url: str) -> str:
    """Return the answer to a GET as text."""
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        return answer.read().decode()


def post_json(url: str, document: object) -> None:
    """POST a document."""
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=SECONDS).close()


@contextmanager
def process(command: list[str], log: Path, ready_url: str) -> Iterator[subprocess.Popen]:
    """Run a server until the context ends, from when it says that it is ready."""
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        until(lambda: running.poll() is not None or _answers(ready_url), SECONDS, log.read_text)
        assert running.poll() is None, log.read_text()
        yield running
    finally:
        running.terminate()
        try:
            running.wait(SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(SECONDS)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=SECONDS).close()
    except (OSError, urllib.error.URLError):
        return False
    return True


@contextmanager
def alertmanager(folder: Path, receivers_url: str, waits: Mapping[str, str] | None = None) -> Iterator[str]:
    """
    Run Alertmanager with the shipped file, its receivers at an address of the test; give its own.

    Args:
        folder: Where its files are put.
        receivers_url: Where each receiver is, in a path of its own name.
        waits: The lines of the file with times that are too long for a test, and those in their place.
    """
    text = configuration.alertmanager(
        SHIPPED.read_text(encoding="utf-8"), templates=SHIPPED.parent, receiver=receivers_url
    )
    for shipped, shorter in (waits or {}).items():
        assert shipped in text, shipped
        text = text.replace(shipped, shorter)
    config = folder / "alertmanager.yml"
    config.write_text(text, encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = alertmanager_command(ALERTMANAGER, config, folder / "alertmanager", address)
    with process(command, folder / "alertmanager.log", f"http://{address}/-/ready"):
        yield f"http://{address}"


@contextmanager
def prometheus(folder: Path, rules: Path, daemon: str, alertmanager_address: str) -> Iterator[str]:
    """Run Prometheus with the shipped file, but for its rules' folder and two addresses; give its own."""
    shipped = (ALERTS / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    config = folder / "prometheus.yml"
    config.write_text(
        configuration.prometheus(shipped, rule_folder=rules, daemon=daemon, alertmanager=alertmanager_address),
        encoding="utf-8",
    )
    address = f"127.0.0.1:{free_port()}"
    # What is sent before Prometheus has found its Alertmanagers, in its first 5 s, is lost until it is sent again.
    command = prometheus_command(PROMETHEUS, config, folder / "prometheus", address, resend=5)
    with process(command, folder / "prometheus.log", f"http://{address}/-/ready"):
        yield f"http://{address}"


STEP = 2.0
"""Seconds between two scrapes, in the recordings and of the Prometheus."""


def series_of(recording: Path, folder: Path) -> Path:
    """Write a recording's series into a folder, and return the file."""
    series = folder / f"{recording.name}.om"
    write_backfill([str(recording)], STEP, str(series), lambda _: None)
    return series


@contextmanager
def running_prometheus(
    folder: Path, config: str, *options: str, data: Path | None = None, port: int | None = None
) -> Iterator[str]:
    """Run a Prometheus with a configuration, its files in a folder; give its address."""
    (folder / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{port or free_port()}"
    places = (f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={data or folder / 'data'}")
    command = [str(PROMETHEUS), *places, f"--web.listen-address={address}", *options]
    with process(command, folder / "prometheus.log", f"http://{address}/-/ready"):
        yield f"http://{address}"


@contextmanager
def filled_prometheus(folder: Path, *files: Path) -> Iterator[str]:
    """Run a Prometheus that has the series of these files; give its address."""
    for series in files:
        made = ("promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", series, folder / "data")
        run_command(*made, check=True)
    with running_prometheus(folder, "", "--storage.tsdb.retention.time=100y") as url:
        yield url
