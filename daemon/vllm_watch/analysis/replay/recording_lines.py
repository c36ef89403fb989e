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
    {"t", "removed": {"prompts": 3, …}}  how many of each kind of private data were removed
    {"t", "end": "interrupted"}          the last line: why the recording ended

Bytes that are not UTF-8 are in ``log_base64`` and ``body_base64``. A reader ignores keys that it does not know.

The file is a sequence of complete xz streams, as ``xz`` and Python's `lzma` read them: whoever writes it may be killed
at any time, and all streams before are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from vllm_watch.daemon.catalog.gpu_texts import GpuState
from vllm_watch.daemon.catalog.reasons import GpuReason
from vllm_watch.daemon.state.gpu_report import GpuReading, HowKnown, ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.kept_facts import CommandLine
from vllm_watch_parsers.flags import CommandFacts


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


def command_line(facts: CommandFacts, clean: Callable[[str], str]) -> CommandLine | None:
    """Return what is recorded of a command line, its texts without what is private; `None` if there is none."""
    return None if facts.flags is None else CommandLine.of(facts, clean)


class Sources(msgspec.Struct, frozen=True, omit_defaults=True):
    """
    What is recorded of a server.

    Args:
        log: Whether its log is.
        scrape_interval: Seconds between two scrapes; `None` without /metrics.
        gpu_interval: Seconds between two readings of its GPUs; `None` where none are read.
        cost_per_hour: What it costs in an hour, in any currency, if that is configured.
        command_line: What its command line said, where its process was found.
    """

    log: bool
    scrape_interval: Interval | None = None
    gpu_interval: Interval | None = None
    cost_per_hour: Annotated[float, msgspec.Meta(gt=0, le=1e15)] | None = None
    command_line: CommandLine | None = None


class Header(msgspec.Struct, frozen=True):
    """
    The first line.

    Args:
        vllm_watch_recording: The format.
        started_unix: When the recording was started, in seconds since the epoch.
        servers: What is recorded of each server, by name.
        vllm_watch: The version that wrote it; nothing if that was another program.
        removed: Which kinds of private data are removed, and which are not.
    """

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


_OF_GPU = [name for name in RecordedGpu.__struct_fields__ if name != "reading"]
_OF_READING = [name for name in RecordedGpuReading.__struct_fields__ if name != "values"]
"""What has the same name and value in a recording and in the state."""


def recorded_gpus(use: GpuUse, started: float) -> RecordedGpus:
    """
    Return what is recorded of a reading.

    Args:
        use: What it says of the server.
        started: When the recording was started, by the same clock.
    """
    return RecordedGpus(at=round(use.at - started, 3), reason=use.reason, gpus=tuple(map(_recorded, use.gpus)))


def gpu_use(line: RecordedGpus, started: float) -> GpuUse:
    """
    Return what was recorded as the state takes it in.

    Args:
        line: What was recorded.
        started: When the recording was started, in seconds since the epoch.
    """
    return GpuUse(started + line.at, line.reason, tuple(map(_server_gpu, line.gpus)))


def _recorded(gpu: ServerGpu) -> RecordedGpu:
    known = gpu.reading
    reading = None if known is None else RecordedGpuReading(**_of(known, _OF_READING), values=_by_text(known))
    return RecordedGpu(**_of(gpu, _OF_GPU), reading=reading)


def _server_gpu(gpu: RecordedGpu) -> ServerGpu:
    known = gpu.reading
    reading = None if known is None else GpuReading(**_of(known, _OF_READING), **_beside(gpu.gpu, known))
    return ServerGpu(**_of(gpu, _OF_GPU), reading=reading)


def _of(whole: object, names: list[str]) -> dict[str, Any]:
    return {name: getattr(whole, name) for name in names}


def _by_text(reading: GpuReading) -> dict[str, float]:
    return {" ".join(key): value for key, value in reading.values.items()}


def _beside(gpu: str, known: RecordedGpuReading) -> dict[str, Any]:
    """Return what a reading has in another form, or not in a recording."""
    return {
        "gpu": gpu,
        "values": {tuple(key.split(" ")): value for key, value in known.values.items()},
        "processes": None,
    }
