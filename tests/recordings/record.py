# SPDX-License-Identifier: Apache-2.0
"""
Records a real server: ``python -m tests.recordings.record --log LOG --metrics URL --output FOLDER``.

Start it before the server, and end it with Ctrl-C after the server has ended. The folder is then one that
``vllm-watch demo --recording FOLDER`` replays.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
import urllib.request

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path


INTERVAL = 5.0
TIMEOUT = 4.0
POLL = 0.1


class Recorder:
    """
    Writes a recording: each method notes what has happened by a moment.

    Args:
        output: The recording's folder, which must not exist.
        log: The server's log; it may appear later.
        url: Its /metrics.
        started: The wall clock's time at the recording's start, Unix seconds.
    """

    def __init__(self, output: Path, log: Path, url: str, started: float) -> None:
        (output / "metrics").mkdir(parents=True)
        self._output, self._log, self._url = output, log, url
        self._offset = self._scrapes = 0
        self._write({"started_unix": started})

    def record_log(self, seconds: float) -> None:
        """Note the bytes that were appended to the log."""
        try:
            with self._log.open("rb") as stream:
                stream.seek(self._offset)
                data = stream.read()
        except FileNotFoundError:
            return
        if data:
            self._offset += len(data)
            with (self._output / "vllm.log").open("ab") as copy:
                copy.write(data)
            self._write({"t": round(seconds, 3), "log_bytes": len(data)})

    def record_scrape(self, seconds: float, body: bytes | None, status: int | str) -> None:
        """Note an answer of /metrics, or why there was none."""
        name = None
        if body is not None:
            name = f"metrics/{self._scrapes:04}.txt.gz"
            (self._output / name).write_bytes(gzip.compress(body, mtime=0))
            self._scrapes += 1
        self._write({"t": round(seconds, 3), "scrape": name, "status": status})

    def scrape(self) -> tuple[bytes | None, int | str]:
        """Return the body of /metrics and its status, or none and the kind of failure."""
        try:
            with urllib.request.urlopen(self._url, timeout=TIMEOUT) as answer:
                return answer.read(), answer.status
        except OSError as error:
            return None, getattr(error, "code", type(error).__name__)

    def _write(self, line: dict[str, object]) -> None:
        with (self._output / "timeline.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def record(recorder: Recorder) -> None:
    """Record until interrupted."""
    start = due = time.monotonic()
    pending: Future[tuple[bytes | None, int | str]] | None = None
    with ThreadPoolExecutor(1) as worker:
        while True:
            now = time.monotonic()
            recorder.record_log(now - start)
            if pending is not None and pending.done():
                recorder.record_scrape(now - start, *pending.result())
                pending = None
            if pending is None and now >= due:
                pending, due = worker.submit(recorder.scrape), due + INTERVAL
            time.sleep(POLL)


def main(arguments: Sequence[str]) -> int:
    """Record a server."""
    parser = argparse.ArgumentParser(prog="python -m tests.recordings.record")
    parser.add_argument("--log", type=Path, required=True)
    parser.add_argument("--metrics", required=True, metavar="URL")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER")
    options = parser.parse_args(arguments)
    try:
        record(Recorder(options.output, options.log, options.metrics, time.time()))
    except KeyboardInterrupt:
        return 0
    except FileExistsError:
        parser.error(f"{options.output}/metrics exists: a recording needs a folder of its own")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
