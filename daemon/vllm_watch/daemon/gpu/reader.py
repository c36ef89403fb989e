# SPDX-License-Identifier: Apache-2.0
"""
The newest reading of the GPUs: asks the child process for it, and starts another child when one has ended.

At most one call of the driver is outstanding, ever: a child that does not answer is waited for, however long that
takes, and meanwhile none is started beside it.
"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import threading

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import structlog

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.catalog.reasons import GPU, GpuReason, explain
from vllm_watch.daemon.gpu.device import BROKEN, reason_of
from vllm_watch.daemon.reading.framing import LineFramer
from vllm_watch.daemon.state.gpu_report import GpuKey, GpuProcess, GpuReading, GpuReport, is_instance
from vllm_watch.daemon.support.clock import Clock, RestartDelay


log = structlog.get_logger("vllm_watch.gpu")

PATIENCE = 1.0
"""A report waits this many seconds for the child's answer; a late answer goes to the next report."""

DEADLINE = 10.0
FIRST_DEADLINE = 60.0
"""Without nvidia-persistenced the first call initialises each card, which takes seconds."""

_DELAYS = (1.0, 300.0)
"""The first delay and the longest before another child is started."""

_ANSWER = b'{"'
"""How an answer begins; what else a child prints are errors, or a library's remarks."""

COMMAND = (sys.executable, "-m", "vllm_watch.daemon.gpu.child")

MAX_ANSWER = 1024 * 1024
"""Longer lines are no answers: one has some kilobytes for each GPU."""

MAX_LINES = 64
"""The most lines that wait to be taken, the last ones: an answer is among them, for after it a child waits."""

_READ_SIZE = 64 * 1024


def has_module() -> bool:
    """Whether nvidia-ml-py is there, which the extra `gpu` brings; it is not imported."""
    return importlib.util.find_spec("pynvml") is not None


class GpuMessage(msgspec.Struct):
    """One GPU; `values` are by series and labels, with spaces between."""

    gpu: str
    number: int
    name: str
    pci_bus_id: str
    mig: bool
    state: GpuState
    values: dict[str, float]
    processes: tuple[tuple[int, float | None], ...] | None

    def reading(self, driver_version: str) -> GpuReading:
        """Return it as the daemon has it."""
        mig = "1" if self.mig else "0"
        about = (self.gpu, self.number, self.name, self.pci_bus_id, driver_version, "nvidia", mig, self.state)
        values = {_key(name): value for name, value in self.values.items()}
        processes = None if self.processes is None else tuple(GpuProcess(*each) for each in self.processes)
        return GpuReading(*about, values, processes)


class ReadingMessage(msgspec.Struct):
    """
    All GPUs; `unopened` has the codes of those that could not be opened, by index, and `listed_at` is when the
    processes on them were listed.
    """

    driver_version: str
    gpus: list[GpuMessage]
    unopened: dict[int, int]
    listed_at: float
    seconds: float

    def readings(self) -> tuple[GpuReading, ...]:
        """Return the readings of all GPUs."""
        return tuple(each.reading(self.driver_version) for each in self.gpus)


class FailureMessage(msgspec.Struct):
    """Why the GPUs cannot be read: the code that a call returned, and a sentence."""

    code: int
    what: str


_READING = msgspec.json.Decoder(ReadingMessage)
_FAILURE = msgspec.json.Decoder(FailureMessage)


def decode(line: bytes) -> ReadingMessage | FailureMessage:
    """Return the message of a line. Raises `msgspec.MsgspecError` if it is none, e.g. a Python error."""
    return (_FAILURE if line.startswith(b'{"code"') else _READING).decode(line)


@functools.lru_cache(maxsize=512)
def _key(name: str) -> GpuKey:
    return tuple(name.split(" "))


class Said(NamedTuple):
    """A line of the child without its end, and when it came, in seconds of the daemon's clock."""

    line: bytes
    at: float


class ReaderProcess:
    """
    A running child process. Raises `OSError` if it cannot be started.

    It is never killed: in a call of the driver that could harm the GPU. It ends when its input does, at the latest when
    the call that it is in returns.

    Attributes:
        changed: Set when it said something or ended.
    """

    def __init__(self, now: Callable[[], float], command: Sequence[str] = COMMAND) -> None:
        self._now = now
        self._said: deque[Said] = deque(maxlen=MAX_LINES)
        self._is_over = False
        self.changed = threading.Event()
        self._process = subprocess.Popen(  # noqa: S603  # Our own program; no shell.
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
            cwd="/",  # Python looks for modules there first.
            start_new_session=True,  # A terminal's Ctrl-C is for the daemon.
        )
        self._thread = threading.Thread(target=self._run, name="gpu-reader", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self._is_over

    def ask(self) -> None:
        """Ask for a reading of now."""
        self.changed.clear()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # It ended, which `is_over` will tell.
                self._process.stdin.write(b"%.3f\n" % self._now())
                self._process.stdin.flush()

    def take(self) -> list[Said]:
        """Return what it said since the last time."""
        return [self._said.popleft() for _ in range(len(self._said))]

    def close(self) -> None:
        """Let it end, and wait a moment for that; one that is in a call that does not return is left alone."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        """Collect its lines until it ends, and wait for it, however long that takes."""
        if self._process.stdout is not None:
            framer = LineFramer(MAX_ANSWER)
            with self._process.stdout as output:
                while data := output.read(_READ_SIZE):
                    for line in filter(None, framer.feed(data)):
                        self._said.append(Said(line, self._now()))
                        self.changed.set()
        self._is_over = True
        self.changed.set()
        self._process.wait()


class GpuReader:
    """Reads the GPUs, for one thread. The deadlines are the seconds after which a call counts as hanging."""

    def __init__(
        self,
        clock: Clock,
        *,
        start: Callable[[Callable[[], float]], ReaderProcess] = ReaderProcess,
        deadline: float = DEADLINE,
        first_deadline: float = FIRST_DEADLINE,
    ) -> None:
        self._clock = clock
        self._start_child = start
        self._deadline, self._first_deadline = deadline, first_deadline
        self._child: ReaderProcess | None = None
        self._ending: ReaderProcess | None = None
        """One that was closed in a call: none is started before it has ended."""
        self._asked_at: float | None = None
        self._is_late = self._has_answered = self._was_read = False
        self._last_words = ""
        self._delay = RestartDelay(*_DELAYS)
        self._known: dict[str, GpuReading] = {}
        """The last reading of each GPU; not of MIG instances, which are made and removed at will."""
        self._unopened: Mapping[int, int] = {}
        self._report = GpuReport(clock.now(), "starting")

    def report(self) -> GpuReport:
        """Return the newest reading, made now if the child answers within `PATIENCE`, or why there is none."""
        now = self._clock.now()
        if self._child is None and self._may_start(now):
            self._start(now)
        if self._child is not None:
            self._listen(self._child, now)
        if self._report.reason != "ok":
            self._report = self._report._replace(at=self._clock.now())
        return self._report

    def close(self) -> None:
        """
        Let the child end; one in a call that does not return is left alone, and ends when the call returns.

        A later `report` starts another one, but not before that.
        """
        if self._child is not None:
            self._child.close()
            self._ending, self._child = self._child, None

    def _may_start(self, now: float) -> bool:
        is_alone = self._ending is None or self._ending.is_over
        return is_alone and self._delay.is_over(now)

    def _start(self, now: float) -> None:
        if not has_module():
            self._fail("no_module", now)
            return
        self._asked_at, self._is_late, self._has_answered, self._last_words = None, False, False, ""
        try:
            self._child = self._start_child(self._clock.now)
        except OSError as error:
            self._fail("reader_ended", now, str(error))

    def _listen(self, child: ReaderProcess, now: float) -> None:
        """Ask the child if nothing is outstanding, wait a moment, and take what it said."""
        if self._asked_at is None:
            child.ask()
            self._asked_at = now
        self._clock.wait(child.changed, PATIENCE)
        is_over = child.is_over
        for said in child.take():
            self._hear(said)
        now = self._clock.now()
        if is_over and self._child is not None:
            self._fail("reader_ended", now, self._last_words)
        else:
            self._judge(now)

    def _judge(self, now: float) -> None:
        """Note whether what is outstanding takes too long."""
        deadline = self._deadline if self._has_answered else self._first_deadline
        if self._asked_at is not None and now - self._asked_at > deadline:
            self._is_late = True
            self._note(GpuReport(now, "call_hangs"))

    def _hear(self, said: Said) -> None:
        try:
            message = decode(said.line)
        except msgspec.MsgspecError:
            self._last_words = said.line.decode(errors="replace").strip()
            if said.line.startswith(_ANSWER):  # Nothing better will come: it waits for the next request.
                self._fail("reader_ended", said.at, self._last_words)
            return
        if isinstance(message, FailureMessage):
            self._fail(reason_of(message.code, was_read=self._was_read), said.at, message.what)
            return
        was_late, self._is_late = self._is_late, False
        self._asked_at, self._has_answered = None, True
        if not was_late:  # A part of a late answer is as old as the call that did not return.
            self._take(message, said.at)

    def _take(self, message: ReadingMessage, at: float) -> None:
        if message.unopened != self._unopened and message.unopened:
            log.warning("gpu.not_opened", codes_by_number=message.unopened)
        self._unopened = message.unopened
        gpus = self._with_lost(message.readings())
        self._delay.reset()
        self._was_read = self._was_read or bool(gpus)
        unopened = {number: BROKEN.get(code) for number, code in message.unopened.items()}
        reason: GpuReason = "ok" if gpus else "no_gpus"
        self._note(GpuReport(at, reason, message.seconds if gpus else 0.0, gpus, unopened, message.listed_at))

    def _with_lost(self, readings: Iterable[GpuReading]) -> tuple[GpuReading, ...]:
        """Return the readings in the driver's order; a GPU that was read and is missing among them is lost."""
        shown = {each.gpu: each for each in readings}
        self._known |= {uuid: each for uuid, each in shown.items() if not is_instance(uuid)}
        missing = [each for uuid, each in self._known.items() if uuid not in shown]
        lost = [
            each._replace(state="lost" if each.state == "ok" else each.state, values={}, processes=None)
            for each in missing
        ]
        return tuple(sorted([*shown.values(), *lost], key=lambda each: each.number))

    def _fail(self, reason: GpuReason, now: float, detail: str = "") -> None:
        self.close()
        self._delay.fail(now)
        self._note(GpuReport(now, reason), detail)

    def _note(self, report: GpuReport, detail: str = "") -> None:
        if report.reason != self._report.reason:
            kind = GPU[report.reason].kind
            write = log.info if kind in {"ok", "quiet"} else log.warning
            write("gpu.changed", reason=report.reason, meaning=explain("gpu", report.reason), detail=detail)
        self._report = report
