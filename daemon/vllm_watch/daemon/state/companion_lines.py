# SPDX-License-Identifier: Apache-2.0
"""
Rates on the lines that vLLM prints below an engine's line of statistics: on achieved work, and on diffusion.

vLLM divides what such a line counts by the time since the last one, and prints none while there is nothing to count. So
the first after a pause, or after the start, is diluted by it: only a line that follows one of the interval before is
about its own interval.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vllm_watch_parsers.events import AchievedWork, DiffusionDecoding


CompanionLine = AchievedWork | DiffusionDecoding

_RATES: dict[type[CompanionLine], dict[str, str]] = {
    AchievedWork: {
        "achieved_flops_per_second": "flops_per_second",
        "achieved_memory_bytes_per_second": "memory_bytes_per_second",
    },
    DiffusionDecoding: {"diffusion_committed_tokens_per_second": "committed_tokens_per_second"},
}
"""The series that are rates, and the fields of the line that have them."""

_MEANS: dict[type[CompanionLine], dict[str, str]] = {
    AchievedWork: {},
    DiffusionDecoding: {"diffusion_tokens_per_step": "tokens_per_denoising_step"},
}
"""The series that no pause dilutes."""


class Companion(NamedTuple):
    """The last line of one kind: when it was printed, and its values by series."""

    at: float
    values: Mapping[str, float] = MappingProxyType({})


def companion(line: CompanionLine, at: float, before: Companion | None, interval_start: float) -> Companion:
    """
    Return what a line says of its interval.

    Args:
        line: The line.
        at: When it was printed.
        before: The one of its kind before it.
        interval_start: When the engine printed its last statistics but one.
    """
    follows = before is not None and before.at >= interval_start
    shown = {**_MEANS[type(line)], **(_RATES[type(line)] if follows else {})}
    values = {name: getattr(line, field) for name, field in shown.items()}
    return Companion(at, {name: value for name, value in values.items() if value is not None})
