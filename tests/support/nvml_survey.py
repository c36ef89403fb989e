# SPDX-License-Identifier: Apache-2.0
"""
What the driver of this machine answers to each question that the daemon asks, and how long it takes.

``python -m tests.support.nvml_survey`` on a machine with a GPU, as the user that the daemon runs as. A row is a source
of `gpu.quantities`, with the code that it returns, the type of the value (nvmlValueType_t; of fields only),
the value as the driver gives it, and the median and the longest time of many calls in microseconds. The last lines have
what whole readings of all GPUs cost, as the daemon makes them: the time that passes, and the processor time, the
driver's included, as a part of a core.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pynvml as nvml

from vllm_watch.daemon.gpu.child import Driver
from vllm_watch.daemon.gpu.quantities import (
    ALL_LINKS,
    EACH_TIME,
    LINK_COUNT,
    OF_LINKS,
    SELDOM,
    SELDOM_SECONDS,
    Call,
    Field,
)


SOURCES = (
    Field(LINK_COUNT),
    *dict.fromkeys(source for sources in {**EACH_TIME, **SELDOM, **OF_LINKS}.values() for source in sources),
    Call("nvmlDeviceGetComputeRunningProcesses_v3"),
    Call("nvmlDeviceGetMigMode"),
)


INTERVAL = 5.0
"""Seconds between two readings, if nothing else is configured."""


def main(arguments: list[str]) -> None:
    """Print the survey of each GPU."""
    parser = argparse.ArgumentParser(description="What this machine's NVIDIA driver answers, and how long it takes.")
    parser.add_argument("--times", type=int, default=1000, help="how often each question is asked")
    try:
        print(*rows(parser.parse_args(arguments).times), sep="\n")  # noqa: T201  # A program for people.
    except nvml.NVMLError as error:
        raise SystemExit(f"the driver cannot be asked: {error}") from None


def rows(times: int) -> Iterator[str]:
    """Yield the lines of all GPUs."""
    began = time.perf_counter()
    nvml.nvmlInit()
    yield f"driver {nvml.nvmlSystemGetDriverVersion()}, initialised in {(time.perf_counter() - began) * 1e3:.1f} ms"
    for number in range(nvml.nvmlDeviceGetCount()):
        began = time.perf_counter()
        handle = nvml.nvmlDeviceGetHandleByIndex(number)
        opened = (time.perf_counter() - began) * 1e3
        yield f"\n{nvml.nvmlDeviceGetUUID(handle)} {nvml.nvmlDeviceGetName(handle)}, opened in {opened:.1f} ms"
        yield f"{'source':50} {'code':>4} {'type':>4} {'value':>22} {'median':>9} {'longest':>9}"
        yield from survey(handle, times)
    yield ""
    yield from readings(times)
    yield f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MiB"


def survey(handle: Any, times: int) -> Iterator[str]:
    """Yield a row for each source."""
    seen = set()
    for source in SOURCES:
        name = _name(source)
        if name in seen:
            continue
        seen.add(name)
        code, kind, value = _answer(handle, source)
        taken = [_seconds(lambda source=source: _answer(handle, source)) * 1e6 for _ in range(times)]
        yield f"{name:50} {code:4} {kind:>4} {value:>22} {statistics.median(taken):9.1f} {max(taken):9.1f}"


def readings(times: int) -> Iterator[str]:
    """Yield what a whole reading of all GPUs costs, with and without what is read seldom."""
    driver, now, processor = Driver(nvml, 0.0), 0.0, []
    for name, step in (("each time", 0.0), ("with what is read seldom", SELDOM_SECONDS)):
        driver.read(now)
        began, taken = time.process_time(), []
        for _ in range(times):
            now += step
            taken.append(_seconds(partial(driver.read, now)) * 1e3)
        processor.append((time.process_time() - began) / times)
        times_of_all = f"median {statistics.median(taken):.2f} ms, longest {max(taken):.2f} ms"
        yield f"a reading {name}: {times_of_all}, processor {processor[-1] * 1e3:.2f} ms"
    others = SELDOM_SECONDS / INTERVAL - 1
    yield f"at {INTERVAL:.0f} s: {(others * processor[0] + processor[1]) / SELDOM_SECONDS:.3%} of a core"


def _name(source: Field | Call) -> str:
    if isinstance(source, Call):
        return " ".join([source.function, *map(str, source.arguments)])
    scope = "all links" if source.scope == ALL_LINKS else "link 0" if source.per_link else ""
    return f"field {source.number} {scope}".strip()


def _answer(handle: Any, source: Field | Call) -> tuple[int, str, str]:
    """Return the code, the type and the value; asked alone, as the daemon asks for many fields in one call."""
    try:
        if isinstance(source, Field):
            (given,) = nvml.nvmlDeviceGetFieldValues(handle, [(source.number, source.scope)])
            return given.nvmlReturn, str(given.valueType), str(given.value.ullVal) if given.nvmlReturn == 0 else "-"
        result = getattr(nvml, source.function)(handle, *source.arguments)
    except nvml.NVMLError as error:
        return error.value, "-", "-"
    if isinstance(result, list):
        return 0, "-", f"{len(result)} values"
    return 0, "-", str(getattr(result, source.part) if source.part else result)


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


if __name__ == "__main__":
    main(sys.argv[1:])
