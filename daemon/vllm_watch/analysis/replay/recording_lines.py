# SPDX-License-Identifier: Apache-2.0
r"""
The lines of a recording in one file: JSON, one value a line, xz-compressed. Reader and writer share this module.

The first line is the `Header`, also with what each server's command line said: its log may have lost its start to a
rotation. Each other is one `Line`: ``t`` is in seconds since the start and never decreases, but is negative for
history. What a line says, its other keys tell:

    {"t", "server", "log": "…\n"}        complete lines of the log, as they came
    {"t", "server", "gap": true, "log"}  the same, after lines that were not read
    {"t", "server", "history": "…\n"}    lines that were there before, of the server's last start
    {"t", "server", "status": 200, "duration", "body": "…"}
                                         a scrape and its body
    {"t", "server", "status": "timeout", "duration"}
                                         a scrape without a complete body, and the reason
    {"t", "server", "gpus": {"at", "reason", "gpus": […]}}
                                         the GPUs that it uses, as they were read at a moment
    {"t", "command": {"argv", "exit_status", "started", "ended"}}
                                         the command that ran meanwhile
    {"t", "benchmark": {"file", "content"}}
                                         a result that the command left
    {"t", "removed": {"lines": 3, …}}    how much was removed, by kind
    {"t", "end": "interrupted"}          the last line: why the recording ended

Bytes that are not UTF-8 are in ``log_base64`` and ``body_base64``. A reader ignores keys that it does not know.

The file is a sequence of complete xz streams, as ``xz`` and Python's `lzma` read them: whoever writes it may be killed
at any time, and all streams before are there.
"""

from __future__ import annotations

import lzma

from collections.abc import Mapping
from typing import IO, Annotated, TypeAlias

import msgspec

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.catalog.reasons import GpuReason
from vllm_watch.daemon.state.gpu_report import GpuReading, HowKnown, ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.flags import CommandFacts, given_flags
from vllm_watch_parsers.startup import known_name


FORMAT = 1
"""What the header's first key says; a file with a higher number cannot be read."""

GPU_INTERVAL = 5.0
"""Seconds between two readings of the GPUs in a recording that does not say it."""

_DAYS = 86_400.0 * 10_000

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=-_DAYS, le=_DAYS)]
"""Of a recording: no clock and no arithmetic fails with them."""

UnixSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
ServerName: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Interval: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=_DAYS)]


class CommandLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """`CommandFacts`, with its flags by name; a file may hold anything in the texts."""

    model_name: str = ""
    has_several_api_servers: bool = False
    log_stats_disabled: bool = False
    flags: Mapping[str, str] | None = None
    model: str | None = None

    @classmethod
    def of(cls, facts: CommandFacts) -> CommandLine:
        """Return what is kept of a command line."""
        return cls(**{**facts._asdict(), "flags": None if facts.flags is None else dict(facts.flags)})

    @property
    def facts(self) -> CommandFacts:
        """The facts, as far as they are flags of the closed list and spelt as they may become labels."""
        flags = None if self.flags is None else given_flags(self.flags.items())
        names = {"model_name": known_name(self.model_name) or "", "model": known_name(self.model)}
        return CommandFacts(**{**msgspec.structs.asdict(self), **names, "flags": flags})


class Sources(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is recorded of a server: intervals are in seconds, `None` of what is not; the cost is in any currency."""

    log: bool
    scrape_interval: Interval | None = None
    gpu_interval: Interval | None = None
    cost_per_hour: Annotated[float, msgspec.Meta(gt=0, le=1e15)] | None = None
    command_line: CommandLine | None = None

    @property
    def command(self) -> CommandFacts:
        """The facts on its command line, as far as it was known."""
        return CommandFacts() if self.command_line is None else self.command_line.facts

    def settings(self, name: str) -> ServerSettings:
        """Return what the state of a recorded server is configured with."""
        return ServerSettings(name, self.log, self.scrape_interval, command=self.command)


class Header(msgspec.Struct, frozen=True):
    """The first line: the format, and the version that wrote it, empty if that was another program."""

    vllm_watch_recording: int
    started_unix: UnixSeconds
    servers: Mapping[ServerName, Sources]
    vllm_watch: str = ""
    removed: Mapping[str, bool] = {}


class Command(msgspec.Struct, frozen=True):
    """A command that ran meanwhile; times in seconds since the recording's start."""

    argv: tuple[str, ...]
    exit_status: int
    started: Seconds
    ended: Seconds


class Benchmark(msgspec.Struct, frozen=True):
    """A result that a benchmark client wrote or printed."""

    file: str
    content: str


class RecordedGpuReading(msgspec.Struct, frozen=True):
    """What a driver said of a GPU; `values` are by series and labels, with spaces between."""

    number: int
    name: str
    pci_bus_id: str
    driver_version: str
    vendor: str
    mig: str
    state: GpuState
    values: Mapping[str, float] = {}


class RecordedGpu(msgspec.Struct, frozen=True, omit_defaults=True):
    """A GPU that a server uses; without a `reading` where nothing was known then."""

    gpu: str
    how: HowKnown
    is_shared: bool = False
    memory: float | None = None
    other_memory: float | None = None
    reading: RecordedGpuReading | None = None


class RecordedGpus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The GPUs of a server: when they were read, and why they were not, if so; without a reason no driver was asked."""

    at: Seconds
    reason: GpuReason | None = None
    gpus: tuple[RecordedGpu, ...] = ()


class Line(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Any other line."""

    t: Seconds
    server: str | None = None
    log: str | None = None
    log_base64: bytes | None = None
    gap: bool = False
    history: str | None = None
    history_base64: bytes | None = None
    status: int | str | None = None
    duration: Annotated[float, msgspec.Meta(ge=0, le=_DAYS)] | None = None
    body: str | None = None
    body_base64: bytes | None = None
    gpus: RecordedGpus | None = None
    command: Command | None = None
    benchmark: Benchmark | None = None
    removed: Mapping[str, Count] | None = None
    end: str | None = None


decode_header = msgspec.json.Decoder(Header).decode
decode_line = msgspec.json.Decoder(Line).decode


def encoded(line: Header | Line) -> bytes:
    """Return a line as it is in the file."""
    return msgspec.json.encode(line) + b"\n"


def log_line(t: float, server: str, data: bytes, *, is_after_gap: bool = False) -> Line:
    """Return complete lines of a log as a line."""
    text, rest = _text(data)
    return Line(t=t, server=server, gap=is_after_gap, log=text, log_base64=rest)


def history_line(t: float, server: str, data: bytes) -> Line:
    """Return lines that were written before the recording, at a negative time."""
    text, rest = _text(data)
    return Line(t=t, server=server, history=text, history_base64=rest)


def scrape_line(t: float, server: str, duration: float, body: bytes, reason: str = "ok") -> Line:
    """Return a scrape: what was answered, or the reason why there is no complete answer."""
    if reason != "ok":
        return Line(t=t, server=server, status=reason, duration=duration)
    text, rest = _text(body)
    return Line(t=t, server=server, status=200, duration=duration, body=text, body_base64=rest)


def _text(data: bytes) -> tuple[str | None, bytes | None]:
    try:
        return data.decode(), None
    except UnicodeDecodeError:
        return None, data


def recorded_gpus(use: GpuUse, started: float) -> RecordedGpus:
    """Return what is recorded of a reading; both times are by the same clock."""
    return RecordedGpus(at=round(use.at - started, 3), reason=use.reason, gpus=tuple(map(_recorded, use.gpus)))


def gpu_use(line: RecordedGpus, started: float) -> GpuUse:
    """Return what was recorded as the state takes it in; `started` is in seconds since the epoch."""
    return GpuUse(started + line.at, line.reason, tuple(map(_server_gpu, line.gpus)))


def _recorded(gpu: ServerGpu) -> RecordedGpu:
    reading = None
    if gpu.reading is not None:
        known = {name: getattr(gpu.reading, name) for name in RecordedGpuReading.__struct_fields__}
        values = {" ".join(key): value for key, value in gpu.reading.values.items()}
        reading = RecordedGpuReading(**{**known, "values": values})
    return RecordedGpu(gpu.gpu, gpu.how, gpu.is_shared, gpu.memory, gpu.other_memory, reading)


def _server_gpu(gpu: RecordedGpu) -> ServerGpu:
    reading = None
    if gpu.reading is not None:
        known = msgspec.structs.asdict(gpu.reading)
        values = {tuple(key.split(" ")): value for key, value in gpu.reading.values.items()}
        reading = GpuReading(**{**known, "gpu": gpu.gpu, "values": values, "processes": None})
    return ServerGpu(**{**msgspec.structs.asdict(gpu), "reading": reading})


MAX_HELD = 4 * 1024 * 1024
"""Bytes after which what is held is written out. Bodies repeat, so that this much compresses well."""

# The fastest preset: bodies repeat each other, and a slower one gains 6 %. The machine has a server to run.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": MAX_HELD}]


class RecordingWriter:
    """Adds lines to a file, which stays open, each after the one before; not for several threads. Raises `OSError`."""

    def __init__(self, file: IO[bytes], header: Header) -> None:
        self._file = file
        self._held = [encoded(header)]
        self._held_size = 0
        self._last = 0.0
        self.size = 0
        """Bytes in the file."""
        self.write_out()

    def add(self, line: Line) -> None:
        """Add a line, to the millisecond; its time is not before the last line's, but of history before 0."""
        t = round(line.t, 3)
        if line.history is not None or line.history_base64 is not None:
            t = min(t, 0.0)
        else:
            t = self._last = max(t, self._last)
        self._held.append(encoded(msgspec.structs.replace(line, t=t)))
        self._held_size += len(self._held[-1])
        if self._held_size >= MAX_HELD:
            self.write_out()

    def end(self, t: float, reason: str, removed: Mapping[str, int]) -> None:
        """Add how much private data was removed and why the recording ended, and write all out."""
        self.add(Line(t=t, removed=removed))
        self.add(Line(t=t, end=reason))
        self.write_out()

    def write_out(self) -> None:
        """Write what is held as one xz stream."""
        if self._held:
            packed = lzma.compress(b"".join(self._held), filters=_FILTERS)
            self._held, self._held_size = [], 0
            self._file.write(packed)
            self._file.flush()
            self.size += len(packed)
