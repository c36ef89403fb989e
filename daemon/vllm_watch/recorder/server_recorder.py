# SPDX-License-Identifier: Apache-2.0
"""What records one server: a thread reads its log, one its /metrics, and its GPUs are those of a shared reading."""

from __future__ import annotations

import threading
import time

from collections.abc import Callable, Collection

from vllm_watch.catalog.reasons import GPU
from vllm_watch.config.model import ServerConfig
from vllm_watch.reading.log_reader import LogBatch
from vllm_watch.recorder.private_text import Kind, PrivateText
from vllm_watch.recorder.recording_session import RecordingSession
from vllm_watch.recorder.redacting_reader import RedactingReader, start_lines
from vllm_watch.sources.checkpoint import Loaded, Positions
from vllm_watch.sources.scraper import Scraper, scrape_target
from vllm_watch.sources.tailers import tailer_of
from vllm_watch.state.gpu_use import GpuUse
from vllm_watch.support.clock import Clock


POLL_SECONDS = 0.2
"""How often a log is polled: its lines get the time of the poll."""

END_SECONDS = 10.0
"""How long the end waits for a thread: a file system may hang, and a scrape has its own limit."""


class RecorderThread:
    """
    Does something at intervals until it is stopped, and once more then.

    Args:
        name: The thread's name.
        session: Where failures are noted.
        clock: The time.
        interval: Seconds from one turn to the next.
        work: What to do in each turn.
    """

    def __init__(
        self, name: str, session: RecordingSession, clock: Clock, interval: float, work: Callable[[], None]
    ) -> None:
        self.has_worked = threading.Event()
        """Set after the first turn."""
        self._session, self._clock, self._interval, self._work = session, clock, interval, work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the first turn."""
        self._thread.start()

    def end(self) -> None:
        """Have the last turn done; one that hangs is not waited for."""
        self._stop.set()
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        try:
            due = self._clock.now()
            while not self._clock.wait(self._stop, due - self._clock.now()):
                self._work()
                self.has_worked.set()
                missed = max(int((self._clock.now() - due) / self._interval), 0)  # They are not made up for.
                due += (missed + 1) * self._interval
            self._work()
        except Exception as error:  # noqa: BLE001 - Whatever it is, the recording must say that it is not whole.
            self._session.fail(error)
            self.has_worked.set()


def recorder_threads(
    server: ServerConfig, session: RecordingSession, clock: Clock, kept: Collection[Kind]
) -> list[RecorderThread]:
    """Return the threads that record a server; `kept` are the kinds of private data that stay."""
    threads = []
    if server.has_log:
        log = LogRecorder(server, session, clock, kept)
        threads.append(RecorderThread(f"log {server.name}", session, clock, POLL_SECONDS, log.poll))
    if server.metrics is not None:
        scraper = Scraper(scrape_target(server.metrics), clock)

        def scrape() -> None:
            pieces: list[bytes] = []
            started = time.monotonic()
            reason = scraper.fetch(pieces.append)
            session.add_scrape(server.name, time.monotonic() - started, b"".join(pieces), reason)

        threads.append(RecorderThread(f"scrape {server.name}", session, clock, server.metrics.interval, scrape))
    return threads


class GpuRecorder:
    """
    Records the GPUs of a server: each reading once, and why there is none once.

    Args:
        name: The server's name.
        session: Where to write.
    """

    def __init__(self, name: str, session: RecordingSession) -> None:
        self._name, self._session = name, session
        self._last: GpuUse | None = None

    @property
    def name(self) -> str:
        """The server's name."""
        return self._name

    def apply_gpus(self, use: GpuUse, _interval: float) -> None:
        """Record what is new; of a server without GPUs only what is wrong."""
        said = use if use.reason == "ok" else use._replace(at=0.0)
        is_wrong = use.reason is not None and GPU[use.reason].kind != "quiet"
        if said != self._last and (use.gpus or is_wrong):
            self._session.add_gpus(self._name, use)
        self._last = said


class LogRecorder:
    """
    Records a server's log from the first poll on, and before it how the server was started.

    Args:
        server: The server, which has a log.
        session: Where to write.
        clock: The time.
        kept: Kinds of private data that stay.
    """

    def __init__(
        self, server: ServerConfig, session: RecordingSession, clock: Clock, kept: Collection[Kind] = ()
    ) -> None:
        private = PrivateText(kept)
        self._tailer = tailer_of(server, Loaded(Positions(), "absent"), clock, lambda: RedactingReader(private))
        self._server, self._session, self._clock = server.name, session, clock

    def poll(self) -> None:
        """Record what is new."""
        while True:
            for batch in self._tailer.poll(self._clock.now()):
                self._take(batch)
            self._session.note_log_reason(self._server, self._tailer.status().reason)
            if not self._tailer.has_more or self._session.problem is not None:
                return

    def _take(self, batch: LogBatch) -> None:
        if batch.kept is None:
            return
        if batch.is_history:
            for at, lines in start_lines(batch):
                self._session.add_history(self._server, at, lines)
        else:
            self._session.add_log(self._server, batch.kept, is_after_gap=batch.is_after_gap)
