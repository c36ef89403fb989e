# SPDX-License-Identifier: Apache-2.0
"""
A stand-in for the library of NVIDIA's driver, and what it reports: scenes, written into a file that it reads.

    def test_…(fake_nvml):                              # built once in a run; processes that are started now have it
        fake_nvml.show(Scene([h100(0), h100(1)]))       # what it reports from now on; show another one at any time
        …
        fake_nvml.show(Scene([h100(0), lost(h100(1))])) # a GPU fell off the bus
        fake_nvml.show(scene.hanging("any", 10))        # the tenth call does not return, until another scene is shown

Without the fixture: ``FakeNvml(folder)``, and its `environment` for the processes.
"""

from __future__ import annotations

import subprocess
import tempfile
import time

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support import tools
from tests.support.shared import shared
from tests.support.waiting import SECONDS


SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"

LOST, RESET_REQUIRED, NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 15, 16, 3, 4, 999
"""Codes that calls return."""

ALL_LINKS = 0xFFFF_FFFF
"""The scope of a field that is the sum over all NVLinks."""

UNSIGNED_INT, UNSIGNED_LONG_LONG = 1, 3
GIB = 1024**3


@dataclass(frozen=True)
class Field:
    """
    A value with a number of its own.

    Args:
        value: What it is when the scene begins.
        rate: What it grows by in a second.
        scope: What it is of: the number of a link.
        type: How it is given.
        code: What asking for it returns.
    """

    value: float = 0
    rate: float = 0
    scope: int = 0
    type: int = UNSIGNED_LONG_LONG
    code: int = 0


@dataclass(frozen=True)
class Gpu:
    """
    A GPU, or an instance of one; what it does not have, asking for it returns "not supported".

    Args:
        uuid: Its UUID.
        pci: Its place as the library writes it: ``00000000:9B:00.0``.
        name: Its model.
        values: What has a function of its own: busy, memory_busy (percent), memory_total, memory_used,
            memory_reserved (bytes), temperature (°C), sm_clock, sm_clock_max (MHz), power, power_limit (mW).
        fields: What `nvmlDeviceGetFieldValues` reports, by number; several for several links.
        processes: Bytes by process.
        handle: What asking for its handle returns.
        error: What every call about it returns.
        instances: Its MIG instances; `None` if it is not divided.
    """

    uuid: str
    pci: str
    name: str = "NVIDIA H100 80GB HBM3"
    values: Mapping[str, float] = field(default_factory=dict)
    fields: Mapping[int, Field | Sequence[Field]] = field(default_factory=dict)
    processes: Mapping[int, int] = field(default_factory=dict)
    handle: int = 0
    error: int = 0
    instances: Sequence[Gpu] | None = None

    def lines(self, word: str = "gpu") -> list[str]:
        """Return the lines of the file that stand for it."""
        own = [_line(word, self.uuid, self.pci, self.name), _line("handle", self.handle), _line("error", self.error)]
        own += [_line("mig", int(self.instances is not None))]
        own += [_line("value", name, f"{value:f}", 0) for name, value in self.values.items()]
        own += [_line("process", pid, size) for pid, size in self.processes.items()]
        for number, given in self.fields.items():
            for each in [given] if isinstance(given, Field) else given:
                own.append(
                    _line("field", number, each.scope, each.type, each.code, f"{each.value:f}", f"{each.rate:f}")
                )
        return own + [line for instance in self.instances or () for line in instance.lines("instance")]


@dataclass(frozen=True)
class Scene:
    """
    What the library reports.

    Args:
        gpus: The GPUs by index.
        driver: The driver's version; empty while it is not loaded.
        fails: The code that a function returns, whatever it is asked, e.g. ``{"nvmlInitWithFlags": 18}``.
        is_strict: Whether a call for several fields fails if it does not have one of them.
        hangs: From which call on a function does not return, counted since the process started; ``any`` counts all.
    """

    gpus: Sequence[Gpu] = ()
    driver: str = "570.86.15"
    fails: Mapping[str, int] = field(default_factory=dict)
    hangs: Mapping[str, int] = field(default_factory=dict)
    is_strict: bool = False

    def hanging(self, function: str, nth: int = 1) -> Scene:
        """Return the same scene in which a function does not return, from its nth call on."""
        return replace(self, hangs={**self.hangs, function: nth})

    def failing(self, function: str, code: int) -> Scene:
        """Return the same scene in which a function returns a code."""
        return replace(self, fails={**self.fails, function: code})

    def text(self) -> str:
        """Return the file's content; the GPUs' counters start to grow now."""
        lines = [_line("start", time.clock_gettime(time.CLOCK_BOOTTIME))]
        lines += [_line("driver", self.driver)] if self.driver else []
        lines += [_line("strict", int(self.is_strict))]
        lines += [_line("fails", *each) for each in self.fails.items()]
        lines += [_line("hangs", *each) for each in self.hangs.items()]
        return "".join([*lines, *(line for gpu in self.gpus for line in gpu.lines())])


class FakeNvml:
    """
    The built library, and the file with its scene.

    Args:
        folder: Where the file is.
        first: The first scene.
    """

    def __init__(self, folder: Path, first: Scene | None = None) -> None:
        self._scene = folder / "scene"
        self._calls = folder / "calls"
        self._library = folder / LIBRARY
        self._library.write_bytes(shared(build))
        self.show(first or Scene())

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs in its environment to find the library and the scene."""
        return {
            "LD_LIBRARY_PATH": str(self._library.parent),
            "FAKE_NVML_SCENE": str(self._scene),
            "FAKE_NVML_CALLS": str(self._calls),
        }

    def show(self, scene: Scene) -> None:
        """Let the library report this from its next call on."""
        new = self._scene.with_suffix(".new")
        new.write_text(scene.text(), encoding="utf-8")
        new.replace(self._scene)

    def calls(self) -> list[str]:
        """Return the calls so far: a function's name, and the numbers of the fields that it was asked for."""
        return self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []


@pytest.fixture
def fake_nvml(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """Give the processes that a test starts the stand-in; calls that do not return do so when the test ends."""
    fake = FakeNvml(tmp_path_factory.mktemp("nvml"))
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    yield fake
    fake.show(Scene(driver=""))


def build() -> bytes:
    """Return the built library."""
    compiler = tools.find("cc")
    assert compiler is not None, tools.source("cc")
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, LIBRARY)
        subprocess.run([compiler, *flags, "-o", library, SOURCE], check=True, timeout=SECONDS)
        return library.read_bytes()


def h100(index: int, **changes: object) -> Gpu:
    """
    Return a GPU that works: 93 % busy, 640 W of 700 W, 61 °C, 18 links, no error.

    Args:
        index: Tells it from others, in its UUID and its place.
        changes: What else is so, by the names of `Gpu`; of `values` and `fields` only those that differ.
    """
    values = {
        "busy": 93, "memory_busy": 41, "memory_total": 80 * GIB, "memory_used": 72 * GIB, "memory_reserved": GIB // 2,
        "temperature": 61, "sm_clock": 1755, "sm_clock_max": 1980, "power": 640_000, "power_limit": 700_000,
    }  # fmt: skip
    gpu = Gpu(
        uuid=f"GPU-{index:08x}-0000-4000-8000-{index:012x}",
        pci=f"00000000:{0x18 + index:02X}:00.0",
        values={**values, **changes.pop("values", {})},
        fields={**_fields(), **changes.pop("fields", {})},
    )
    return replace(gpu, **changes)


def _fields() -> dict[int, Field | Sequence[Field]]:
    links = range(18)
    still = {3: 2, 4: 0, 5: 7, 6: 1, 142: 1, 143: 2, 144: 0, 145: 0, 94: 3, 173: 5, 179: 0, 180: 0, 230: 0}
    throttled = {74: 5e9, 75: 0, 76: 0, 77: 0, 79: 0, 269: 0, 270: 0, 271: 0}
    return {
        **{number: Field(value, type=UNSIGNED_INT) for number, value in still.items()},
        **{number: Field(value) for number, value in throttled.items()},
        82: Field(68, type=UNSIGNED_INT),
        83: Field(5_000_000_000, rate=640_000),
        91: Field(len(links), type=UNSIGNED_INT),
        138: Field(1 << 30, rate=1 << 20, scope=ALL_LINKS),
        139: Field(1 << 31, rate=1 << 20, scope=ALL_LINKS),
        **{number: [Field(0, scope=link) for link in links] for number in (161, 162, 163)},
        165: [Field(1, scope=link, type=UNSIGNED_INT) for link in links],
        185: Field(640_000, type=UNSIGNED_INT),
        190: Field(700_000, type=UNSIGNED_INT),
        197: Field(1 << 40, rate=1 << 24),
        198: Field(1 << 41, rate=1 << 24),
    }


def throttled(gpu: Gpu, reason: int = 75, share: float = 0.5) -> Gpu:
    """Return a GPU whose clocks are lowered for a share of the time, counted by a field; by heat if none is named."""
    return replace(
        gpu, values={**gpu.values, "sm_clock": 345}, fields={**gpu.fields, reason: Field(0, rate=share * 1e9)}
    )


def lost(gpu: Gpu, code: int = LOST) -> Gpu:
    """Return a GPU about which every call fails."""
    return replace(gpu, error=code)


def reset(gpu: Gpu) -> Gpu:
    """Return a GPU whose driver was loaded anew: what it counts since then begins again."""
    counters = {3: Field(0), 4: Field(0), 74: Field(0), 75: Field(0), 83: Field(1000, rate=640_000), 94: Field(0)}
    return replace(gpu, fields={**gpu.fields, **counters})


def geforce(index: int, **changes: object) -> Gpu:
    """Return a consumer's GPU that reports little: how busy it is, its memory, power, temperature and clock."""
    gpu = h100(index, name="NVIDIA GeForce RTX 3060")
    small = {**gpu.values, "memory_total": 12 * GIB, "memory_used": 11 * GIB, "power": 140_000, "power_limit": 170_000}
    return replace(gpu, values=small, fields={}, **changes)


def divided(index: int, *instances: Mapping[int, int]) -> Gpu:
    """Return a GPU in MIG mode: an instance with a seventh of the memory for each mapping of processes to bytes."""
    whole = h100(index)
    gone = ("busy", "memory_busy")
    parts = [
        Gpu(
            uuid=f"MIG-{index:08x}-0000-4000-8000-{number:012x}",
            pci=whole.pci,
            name="NVIDIA H100 80GB HBM3 MIG 1g.10gb",
            values={"memory_total": 10 * GIB, "memory_used": sum(processes.values())},
            processes=processes,
        )
        for number, processes in enumerate(instances)
    ]
    return replace(
        whole,
        values={name: value for name, value in whole.values.items() if name not in gone},
        fields={number: given for number, given in whole.fields.items() if number not in {142, 143, 144, 145}},
        processes={pid: size for processes in instances for pid, size in processes.items()},
        instances=parts,
    )


def two_servers(first: Sequence[int], second: Sequence[int]) -> Scene:
    """Return eight GPUs: on each of the first four a process of one server, on the others one of another server."""
    pids = [*first, *second]
    assert len(pids) == 8, "a process for each GPU"
    return Scene([h100(index, processes={pid: 70 * GIB}) for index, pid in enumerate(pids)])


def _line(*words: object) -> str:
    return "\t".join(map(str, words)) + "\n"
