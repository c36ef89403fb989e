# SPDX-License-Identifier: Apache-2.0
"""What records one server: a thread reads its log, one its /metrics, and its GPUs are those of a shared reading."""

from __future__ import annotations

import threading
import time

from collections.abc import Callable, Collection, Iterator
from functools import partial

from vllm_watch.analysis.recorder.recording_session import RecordingSession
from vllm_watch.analysis.recorder.redaction import RedactingReader
from vllm_watch.daemon.catalog.reasons import GPU
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.sources.checkpoint import NOTHING_BEFORE
from vllm_watch.daemon.sources.log_tailer import tailer_of
from vllm_watch.daemon.sources.scraper import Scraper
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch_parsers.events import Lifecycle, StartupFact


POLL_SECONDS = 0.2
"""How often a log is polled: its lines get the time of the poll."""

MAX_READS = 4
"""Pieces of a log in one turn: what was read is kept before more is read."""

END_SECONDS = 10.0
"""How long the end waits for a thread: a file system may hang, and a scrape has its own limit."""


class RecorderThread:
    """Does `work` at intervals, again at once while that returns true, until it is stopped, and then `finish`."""

    def __init__(
        self,
        name: str,
        session: RecordingSession,
        interval: float,
        work: Callable[[], bool],
        finish: Callable[[], object],
    ) -> None:
        self.has_worked = threading.Event()
        """Set after the first turn."""
        self._session, self._clock, self._interval = session, session.clock, interval
        self._work, self._finish = work, finish
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the first turn."""
        self._thread.start()

    def request_stop(self) -> None:
        """Have the last turn done."""
        self._stop.set()

    def join(self) -> None:
        """Wait for the end of the last turn; one that hangs is not waited for."""
        self._thread.join(END_SECONDS)

    def _run(self) -> None:
        try:
            due = self._clock.now()
            while not self._clock.wait(self._stop, due - self._clock.now()):
                has_more = self._work()
                self.has_worked.set()
                if has_more:
                    continue
                missed = max(int((self._clock.now() - due) / self._interval), 0)  # They are not made up for.
                due += (missed + 1) * self._interval
            self._finish()
        except Exception as error:  # noqa: BLE001 - Whatever it is, the recording must say that it is not whole.
            self._session.fail(error)
            self.has_worked.set()


def end_together(threads: Collection[RecorderThread]) -> None:
    """Have the last turn of all done, at the same time."""
    for thread in threads:
        thread.request_stop()
    for thread in threads:
        thread.join()


def recorder_threads(server: ServerConfig, session: RecordingSession, *, keeps_all: bool) -> list[RecorderThread]:
    """Return the threads that record a server, with `keeps_all` whole lines of its log."""
    threads = []
    if server.has_log:
        log = LogRecorder(server, session, keeps_all=keeps_all)
        threads.append(RecorderThread(f"log {server.name}", session, POLL_SECONDS, log.poll, log.finish))
    if server.metrics is not None:
        scraper = Scraper(server.metrics, session.clock)

        def scrape() -> bool:
            pieces: list[bytes] = []
            started = time.monotonic()
            reason = scraper.fetch(pieces.append)
            session.add_scrape(server.name, time.monotonic() - started, b"".join(pieces), reason)
            return False

        name, interval = f"scrape {server.name}", server.metrics.interval
        threads.append(RecorderThread(name, session, interval, scrape, scrape))
    return threads


class GpuRecorder:
    """Records the GPUs of a server: each reading once, and why there is none once."""

    def __init__(self, name: str, session: RecordingSession) -> None:
        self.name = name
        self._session = session
        self._last: GpuUse | None = None

    def apply_gpus(self, use: GpuUse, _interval: float) -> None:
        """Record what is new; of a server without GPUs only what is wrong."""
        said = use if use.reason == "ok" else use._replace(at=0.0)
        is_wrong = use.reason is not None and GPU[use.reason].kind != "quiet"
        if said != self._last and (use.gpus or is_wrong):
            self._session.add_gpus(self.name, use)
        self._last = said


class LogRecorder:
    """Records a server's log from the first poll on, and before it how the server was started."""

    def __init__(self, server: ServerConfig, session: RecordingSession, *, keeps_all: bool = False) -> None:
        reader = partial(RedactingReader, keeps_all=keeps_all)
        self._tailer = tailer_of(server, NOTHING_BEFORE, session.clock, reader, max_reads=MAX_READS)
        self._server, self._session, self._clock = server.name, session, session.clock
        self._counts = session.counts.servers[server.name]

    def poll(self) -> bool:
        """Record what is new, or a part of it; return whether there is more."""
        for batch in self._tailer.poll(self._clock.now()):
            self._take(batch)
        self._counts.log_reason = self._tailer.status().reason
        return self._tailer.has_more and self._session.problem is None

    def finish(self) -> None:
        """Record what the log holds now, and not what is written meanwhile."""
        has_more = self.poll()
        tail = self._tailer.status().tail
        target = tail.size + (tail.lag or 0)
        while has_more and self._tailer.status().tail.size < target:
            has_more = self.poll()

    def _take(self, batch: LogBatch) -> None:
        if batch.kept is None:
            return
        if batch.is_history:
            for at, lines in start_lines(batch):
                self._session.add_history(self._server, at, lines)
        else:
            self._session.add_log(self._server, batch.kept, is_after_gap=batch.is_after_gap)


def start_lines(batch: LogBatch) -> Iterator[tuple[float, bytes]]:
    """Yield those of a batch's lines that tell how the server was started, each record with its time."""
    if batch.kept is None:
        return
    reader = LogReader()
    times = iter([timed.at for timed in batch.events])
    record: list[bytes] = []
    at, is_wanted = batch.end, False
    for line in batch.kept.lines:
        record = [*record, line] if reader.is_in_record else [line]
        for timed in reader.read([line], ArrivalTimes(batch.end)).events:
            at = next(times, batch.end)
            is_wanted = is_wanted or isinstance(timed.event, StartupFact | Lifecycle)
        if is_wanted and not reader.is_in_record:
            yield at, b"".join(line + b"\n" for line in record)
            is_wanted = False
