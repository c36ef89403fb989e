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

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.support.http_servers import free_port


VLLM_WATCH = [sys.executable, "-m", "vllm_watch"]
_CPUCLOCK_SCHED = 2
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


@contextmanager
def writer(logs: Sequence[Path], lines_per_second: float) -> Iterator[None]:
    """Write lines to logs in turn, each as one write, in a process; `ChildProcessError` if that could not keep up."""
    command = [sys.executable, "-m", "tests.benchmarks.writer", str(lines_per_second), *map(str, logs)]
    with subprocess.Popen(command) as process:
        try:
            yield
        finally:
            is_running = process.poll() is None
            process.kill()
    if not is_running:
        raise ChildProcessError(f"the writer ended with {process.returncode}")


def passing(servers: Sequence[Server], seconds: float, interval: float) -> None:
    """Let time pass, and read the page of each server at intervals in it."""
    start = time.monotonic()
    while (left := start + seconds - time.monotonic()) > 0:
        for server in servers:
            server.get(headers=PROMETHEUS)
        time.sleep(max(min(interval, left), 0))


def processor_seconds(pid: int) -> float:
    """Return the processor time used so far, in seconds; not in ticks of 10 ms, as /proc has it."""
    return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)  # As clock_getcpuclockid(3), which Python does not have.


def resident_mebibytes(pid: int) -> float:
    """Return the resident memory, in MiB."""
    return int(_status(pid, "VmRSS").split()[0]) / 1024


def threads(pid: int) -> int:
    """Return the number of threads."""
    return int(_status(pid, "Threads"))


def descriptors(pid: int) -> int:
    """Return the number of open file descriptors."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def _status(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.partition(":")[2].strip() for line in lines if line.startswith(name + ":"))
