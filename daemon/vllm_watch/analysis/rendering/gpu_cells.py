# SPDX-License-Identifier: Apache-2.0
"""One GPU as the cells of a table, the same on a terminal and in a text: what is not known is a dash."""

from __future__ import annotations

from typing import Literal, NamedTuple

from vllm_watch.daemon.catalog.gpu_texts import (
    ACTION_WORDS,
    NORMAL_THROTTLING,
    NOT_READ_WORD,
    OK_WORD,
    REMAP_FAILED_WORD,
    STATE_WORDS,
    THROTTLING_WORDS,
)
from vllm_watch.daemon.catalog.number_texts import MISSING, count, gibibytes, megahertz, of_most, share
from vllm_watch.daemon.exposition.document import GpuDocument


Tone = Literal["text", "over", "wrong"]
"""Whether something is as it should be, deserves a look, or needs somebody."""

_OF_UUID = 4
_LEAST_SHARE = 0.0005
"""Below this a part of the time is written as 0."""


class Word(NamedTuple):
    """What a cell says, and how it is meant."""

    text: str
    tone: Tone = "text"


def title(gpu: GpuDocument) -> str:
    """Return the number of a GPU, or how its UUID begins if its number is not known: ``0``, ``0 MIG``, ``9f3a``."""
    if gpu.index is None:
        return gpu.gpu.partition("-")[2][:_OF_UUID]
    return f"{gpu.index} MIG" if gpu.gpu.startswith("MIG-") else str(gpu.index)


def condition(gpu: GpuDocument) -> Word:
    """Return a GPU's state, else what to do with it."""
    if gpu.state is None:
        return Word(NOT_READ_WORD, "over")
    remap = REMAP_FAILED_WORD if gpu.values.get("gpu_row_remap_failed") else None
    wrong = STATE_WORDS.get(gpu.state) or ACTION_WORDS.get(gpu.recovery_action or "") or remap
    return Word(OK_WORD) if wrong is None else Word(wrong, "wrong")


def throttling(gpu: GpuDocument) -> Word:
    """Return in how many per cent of the last seconds clocks were lowered; reasons that deserve a look come first."""
    if gpu.throttled is None:
        return Word(MISSING)
    found = {reason: part for reason, part in gpu.throttled.items() if part >= _LEAST_SHARE}
    ordered = sorted(found, key=lambda reason: (reason == NORMAL_THROTTLING, -found[reason]))
    text = ", ".join(f"{share(found[reason])} {THROTTLING_WORDS.get(reason, reason)}" for reason in ordered)
    return Word(text or "no", "text" if {NORMAL_THROTTLING}.issuperset(found) else "over")


def busy(gpu: GpuDocument) -> str:
    """Return the part of the time in which it computed anything, as per cent."""
    return share(_value(gpu, "busy_ratio"))


def server_memory(gpu: GpuDocument) -> str:
    """Return the memory that the server has, of all, in GiB: ``70.0 of 80.0``."""
    return of_most(gpu.memory, _value(gpu, "memory_total_bytes"), gibibytes)


def other_memory(gpu: GpuDocument) -> str:
    """Return the memory that processes of no watched server have, in GiB."""
    return gibibytes(gpu.other_memory)


def power(gpu: GpuDocument) -> str:
    """Return the power and its limit in watts: ``640 of 700``."""
    return of_most(*watts(gpu))


def watts(gpu: GpuDocument) -> tuple[float | None, float | None]:
    """Return the power and its limit."""
    return _value(gpu, "power_watts"), _value(gpu, "power_limit_watts")


def temperature(gpu: GpuDocument) -> str:
    """Return the temperature of its core in degrees Celsius."""
    return count(gpu.values_by_label.get("gpu_temperature_celsius", {}).get("core"))


def clock(gpu: GpuDocument) -> str:
    """Return the clock of its multiprocessors in MHz."""
    return megahertz(_value(gpu, "sm_clock_hertz"))


def _value(gpu: GpuDocument, name: str) -> float | None:
    return gpu.values.get(f"gpu_{name}")
