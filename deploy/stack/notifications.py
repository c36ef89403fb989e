# SPDX-License-Identifier: Apache-2.0
"""Gets what Alertmanager sends, and tells it in lines: what pages, what warns, and what is over."""

from __future__ import annotations

import json
import re
import threading

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from deploy.stack.processes import HOST

from vllm_watch.daemon.catalog.number_texts import duration
from vllm_watch.daemon.support.printable import printable


RESOLVED = "RESOLVED"
PAGE = "PAGE"
WARNING = "warning"
WORDS: Mapping[str, str] = {"page": PAGE, "channel": WARNING, "digest": "info"}
"""What a message to each shipped receiver is called; those to another are called by its name."""

HEARTBEAT = "deadman"
"""The receiver that only hears that alerts are delivered."""

_WIDTH = len(RESOLVED)
_TREE = Path(__file__).parents[2]
_RUNBOOKS = "alerts/runbooks"
_FRACTION = re.compile(r"\.\d+")


class Line(NamedTuple):
    """
    One thing that Alertmanager says.

    Args:
        word: `PAGE`, another of `WORDS`, or `RESOLVED`.
        alert: The alert's name.
        subject: The server and engine, or what else it is about.
        text: The summary, or how long it has lasted.
        runbook: Where the runbook is; empty if there is none.
    """

    word: str
    alert: str
    subject: str
    text: str
    runbook: str = ""

    def __str__(self) -> str:
        """Return it on one line, without the time."""
        parts = (f"{self.word:{_WIDTH}}", f"{self.alert:21}", self.subject, self.text, self.runbook)
        return "  ".join(part for part in parts if part)


class Notifications:
    """
    Turns messages into lines, and knows what has been said.

    Alertmanager sends all alerts of a group whenever one of them is new or over, and again after a time: only what is
    new or over is a line.

    Args:
        speed: Seconds of a recording per second.
    """

    def __init__(self, speed: float = 1) -> None:
        self._speed = speed
        self._firing: set[tuple[str, str, str]] = set()
        self._has_heartbeat = False

    def lines(self, receiver: str, message: Mapping[str, Any]) -> list[Line]:
        """
        Return what a message says.

        Args:
            receiver: Who it is for.
            message: Its JSON, as Alertmanager documents it for webhooks.
        """
        if receiver == HEARTBEAT:
            return self._heartbeat()
        return [line for alert in message["alerts"] for line in self._new(receiver, alert)]

    def _heartbeat(self) -> list[Line]:
        if self._has_heartbeat:
            return []
        self._has_heartbeat = True
        return [Line("ok", "Watchdog", "", "Rules are evaluated, and messages arrive here.")]

    def _new(self, receiver: str, alert: Mapping[str, Any]) -> Iterator[Line]:
        """Yield what is new of an alert."""
        key = (receiver, alert["fingerprint"], alert["startsAt"])
        if _is_firing(alert) and key not in self._firing:
            self._firing.add(key)
            yield self._firing_line(receiver, alert)
        elif not _is_firing(alert) and key in self._firing:
            self._firing.remove(key)
            yield self._resolved_line(alert)

    def _firing_line(self, receiver: str, alert: Mapping[str, Any]) -> Line:
        texts = alert["annotations"]
        word = printable(WORDS.get(receiver, receiver))
        summary, runbook = printable(texts.get("summary", "")), _runbook(texts.get("runbook_url", ""))
        return Line(word, _name(alert), _subject(alert["labels"]), summary, runbook)

    def _resolved_line(self, alert: Mapping[str, Any]) -> Line:
        lasted = (_moment(alert["endsAt"]) - _moment(alert["startsAt"])).total_seconds()
        text = f"after {duration(round(lasted))}"
        if self._speed != 1:
            text += f", {duration(round(lasted * self._speed))} of the recording"
        return Line(RESOLVED, _name(alert), _subject(alert["labels"]), text)


def _is_firing(alert: Mapping[str, Any]) -> bool:
    return bool(alert["status"] == "firing")


def _name(alert: Mapping[str, Any]) -> str:
    return printable(alert["labels"].get("alertname", "?"))


def _subject(labels: Mapping[str, str]) -> str:
    """Return what an alert is about: a server and its engine, or a daemon."""
    server, engine = labels.get("server"), labels.get("engine")
    if server is None:
        return printable(labels.get("instance", ""))
    return printable(f"{server} engine {engine}" if engine is not None else server)


def _runbook(url: str) -> str:
    """Return the path of a runbook in this tree, or its URL if it is not in it."""
    path = f"{_RUNBOOKS}/{url.rpartition('/')[2]}"
    return path if url and (_TREE / path).is_file() else printable(url)


def _moment(text: str) -> datetime:
    """Return a time as Alertmanager writes it, with up to nine digits after the point."""
    return datetime.fromisoformat(_FRACTION.sub("", text).replace("Z", "+00:00"))


_REQUEST_SECONDS = 10
_STOP_SECONDS = 0.05

Take = Callable[[str, dict[str, Any]], None]
"""Called in a thread of its own with a receiver's name and a message to it."""


@contextmanager
def receiver(take: Take) -> Iterator[str]:
    """Get messages until the context ends; yield the URL, each receiver's name is a path below it."""

    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_SECONDS

        def do_POST(self) -> None:
            status = HTTPStatus.OK
            try:
                take(self.path.strip("/"), json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            except (TypeError, ValueError):  # Not Alertmanager's.
                status = HTTPStatus.BAD_REQUEST
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The base class names it so.
            pass

    server = ThreadingHTTPServer((HOST, 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(_STOP_SECONDS,), name="receiver", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
