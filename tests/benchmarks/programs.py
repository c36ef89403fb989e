# SPDX-License-Identifier: Apache-2.0
"""The programs that are measured, as processes: the daemon, mtail, and writers of logs."""

from __future__ import annotations

import http.client
import os
import re
import resource
import shutil
import subprocess
import sys
import time

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.benchmarks.process import processor_seconds, resident_mebibytes
from tests.support.http_servers import free_port


VLLM_WATCH = [sys.executable, "-m", "vllm_watch"]
MTAIL_PROGRAMS = Path(__file__).parent
START_SECONDS = 60.0
ANSWER_SECONDS = 60.0

# As Prometheus 2.53 asks.
PROMETHEUS = {
    "Accept": "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
    "Accept-Encoding": "gzip",
}


class Server:
    """
    A program that serves HTTP on a port of its own, from now until the end of the ``with`` block.

    Args:
        command: With ``{port}`` where the port goes.
        environment: What is set beside the environment of this process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.port = free_port()
        self._process = subprocess.Popen(
            [argument.replace("{port}", str(self.port)) for argument in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        self.pid = self._process.pid

    def __enter__(self):
        """Return it."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """End the program."""
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def processor_seconds(self) -> float:
        """The processor time used so far."""
        return processor_seconds(self.pid)

    @property
    def resident_mebibytes(self) -> float:
        """The resident memory."""
        return resident_mebibytes(self.pid)

    def get(self, path: str = "/metrics", headers: Mapping[str, str] | None = None) -> Answer:
        """Ask it for a page."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_SECONDS)
        start = time.monotonic()
        try:
            connection.request("GET", path, headers=headers or {})
            response = connection.getresponse()
            body = response.read()
            return Answer(response.status, body, time.monotonic() - start)
        finally:
            connection.close()

    def lines_read(self) -> float:
        """Return how many lines the daemon has read of all logs."""
        found = re.findall(rb"(?m)^vllm_watch_log_lines_total\{[^}]*\} (\S+)$", self.get().body)
        return sum(map(float, found))

    def until_ready(self, path: str = "/-/ready", pause: float = 0.02) -> float:
        """Wait until a page is answered with 200; return the seconds that it took."""
        start = time.monotonic()
        while time.monotonic() - start < START_SECONDS:
            try:
                if self.get(path).status == http.HTTPStatus.OK:
                    return time.monotonic() - start
            except OSError:
                if self._process.poll() is not None:
                    raise ChildProcessError(f"{self._process.args} ended with {self._process.returncode}") from None
            time.sleep(pause)
        raise TimeoutError(f"{self._process.args} is not ready")


class Answer(NamedTuple):
    """What was answered, and the seconds that it took."""

    status: int
    body: bytes
    seconds: float


class Took(NamedTuple):
    """What a program took: seconds by the clock, and of processor time."""

    seconds: float
    processor: float


def run_to_end(command: Sequence[str]) -> Took:
    """Run a program to its end, its output thrown away; raise `ChildProcessError` if it fails."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    used = wait_for(process)
    return Took(time.perf_counter() - start, used.ru_utime + used.ru_stime)


def wait_for(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    """
    Return what a program has used, once it has ended; if the wait is interrupted, end it.

    Raises:
        ChildProcessError: It has failed.
    """
    try:
        _, status, used = os.wait4(process.pid, 0)
    except BaseException:
        process.kill()
        process.wait()
        raise
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise ChildProcessError(f"{process.args} ended with {process.returncode}")
    return used


def daemon(*options: str, environment: Mapping[str, str] | None = None) -> Server:
    """Start the daemon with options of ``run``."""
    return Server([*VLLM_WATCH, "run", "--listen", "127.0.0.1:{port}", *options], environment)


def has_mtail() -> bool:
    """Whether mtail is installed."""
    return shutil.which("mtail") is not None


def mtail(log: Path, program: str) -> Server:
    """Start mtail on a log, with one of the programs of this folder."""
    return Server(
        [
            "mtail", "--address", "127.0.0.1", "--port", "{port}", "--progs", str(MTAIL_PROGRAMS / program),
            "--logs", str(log), "--logtostderr",
        ]
    )  # fmt: skip


class Writer:
    """Writes lines to logs in turn, each as one write, in a process of its own until the end of the ``with`` block."""

    def __init__(self, logs: Sequence[Path], lines_per_second: float) -> None:
        command = [sys.executable, "-m", "tests.benchmarks.writer", str(lines_per_second), *map(str, logs)]
        self._process = subprocess.Popen(command)

    def __enter__(self):
        """Return it."""
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        """End the process; raise `ChildProcessError` if it could not keep up."""
        is_running = self._process.poll() is None
        self._process.kill()
        self._process.wait()
        if not is_running:
            raise ChildProcessError("the writer could not keep up, or failed")
