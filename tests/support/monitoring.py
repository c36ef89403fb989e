# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus and Alertmanager on loopback, with the shipped configuration, and somebody who gets the pages."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

from tests.support import tools
from tests.support.http_servers import HandlerServer
from tests.support.waiting import until


ALERTS = Path(__file__).parents[2] / "alerts"
SHIPPED = ALERTS / "alertmanager" / "alertmanager.yml"
ALERTMANAGER = tools.find("prometheus-alertmanager")
PROMETHEUS = tools.find("prometheus")
NOWHERE = "http://127.0.0.1:9/"
"""Where the shipped receivers are, each in a path of its own name."""

START_SECONDS = 20
END_SECONDS = 10


class Message(NamedTuple):
    """What Alertmanager sent to one receiver, and when (monotonic seconds)."""

    receiver: str
    body: dict
    at: float


class Receivers(HandlerServer):
    """All receivers at once: keeps what comes, by the path it came to."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        kept = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                kept.append(Message(self.path.strip("/"), body, time.monotonic()))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The base class names it so.
                pass

        super().__init__(Handler)
        self.url = f"{self.origin}/"

    def to(self, receiver: str) -> list[Message]:
        """Return what one receiver got so far."""
        return [message for message in list(self.messages) if message.receiver == receiver]


def free_port() -> int:
    """Return a port of loopback on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def get_json(url: str) -> object:
    """Return the answer to a GET."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return json.load(answer)


def get_text(url: str) -> str:
    """Return the answer to a GET as text."""
    with urllib.request.urlopen(url, timeout=5) as answer:
        return answer.read().decode()


def post_json(url: str, document: object) -> None:
    """POST a document."""
    request = urllib.request.Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    urllib.request.urlopen(request, timeout=5).close()


@contextmanager
def process(command: list[str], log: Path, ready_url: str) -> Iterator[subprocess.Popen]:
    """Run a server until the context ends, from when it says that it is ready."""
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        until(lambda: running.poll() is not None or _answers(ready_url), START_SECONDS, log.read_text)
        assert running.poll() is None, log.read_text()
        yield running
    finally:
        running.terminate()
        try:
            running.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(END_SECONDS)


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=1).close()
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
    text = SHIPPED.read_text(encoding="utf-8")
    assert text.count(NOWHERE) == 4
    for shipped, shorter in (waits or {}).items():
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, shorter)
    config = folder / "alertmanager.yml"
    config.write_text(text.replace(NOWHERE, receivers_url), encoding="utf-8")
    shutil.copytree(SHIPPED.parent / "templates", folder / "templates")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        *(ALERTMANAGER, f"--config.file={config}", f"--storage.path={folder / 'alertmanager'}"),
        *(f"--web.listen-address={url.removeprefix('http://')}", "--cluster.listen-address="),
    ]
    with process(command, folder / "alertmanager.log", f"{url}/-/ready"):
        yield url


@contextmanager
def prometheus(folder: Path, rules: Path, daemon: str, alertmanager_address: str) -> Iterator[str]:
    """Run Prometheus with the shipped file, but for its rules' folder and two addresses; give its own."""
    text = (ALERTS / "prometheus" / "prometheus.yml").read_text(encoding="utf-8")
    for shipped, ours in (
        ("../rules/*.yml", f"{rules}/*.yml"),
        ("127.0.0.1:9468", daemon),
        ("127.0.0.1:9093", alertmanager_address),
    ):
        assert text.count(shipped) == 1, shipped
        text = text.replace(shipped, ours)
    config = folder / "prometheus.yml"
    config.write_text(text, encoding="utf-8")
    url = f"http://127.0.0.1:{free_port()}"
    command = [
        *(PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder / 'prometheus'}"),
        f"--web.listen-address={url.removeprefix('http://')}",
        # What is sent before Prometheus has found its Alertmanagers, in its first 5 s, is lost until it is sent again.
        "--rules.alert.resend-delay=5s",
    ]
    with process(command, folder / "prometheus.log", f"{url}/-/ready"):
        yield url
