# SPDX-License-Identifier: Apache-2.0
"""
What the driver of this machine answers to each question that the daemon asks, and how long it takes.

``python -m tests.support.nvml_survey`` on a machine with a GPU, as the user that the daemon runs as. A row is a source
of `vllm_watch.gpu.quantities`, with the code that it returns, the type of the value (nvmlValueType_t; of fields only),
the value as the driver gives it, and the median and the longest time of many calls in microseconds.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time

from collections.abc import Callable, Iterator
from typing import Any

import pynvml as nvml

from vllm_watch.gpu.quantities import ALL_LINKS, EACH_TIME, LINK_COUNT, OF_LINKS, SELDOM, Call, Field


SOURCES = (
    Field(LINK_COUNT),
    *dict.fromkeys(source for each in (*EACH_TIME, *SELDOM, *OF_LINKS) for source in each.sources),
    Call("nvmlDeviceGetComputeRunningProcesses_v3"),
    Call("nvmlDeviceGetMigMode"),
)


def main(arguments: list[str]) -> None:
    """Print the survey of each GPU."""
    parser = argparse.ArgumentParser(description="What this machine's NVIDIA driver answers, and how long it takes.")
    parser.add_argument("--times", type=int, default=1000, help="how often each question is asked")
    print(*rows(parser.parse_args(arguments).times), sep="\n")  # noqa: T201  # A program for people.


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
    yield f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MiB"


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
