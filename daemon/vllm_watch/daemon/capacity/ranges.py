# SPDX-License-Identifier: Apache-2.0
"""The capacity of an engine in tokens per second, with its bounds, on each basis; or why none is known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vllm_watch.daemon.catalog.codes import CapacityBasis, CapacityReason


BENCH_BOUNDS = (0.9, 1.1)
"""Between which parts of what a benchmark has measured the capacity is."""


class CapacityRange(NamedTuple):
    """
    How many tokens per second an engine generates at most, and between which values the truth is.

    `prompt_tokens_per_second` are those of prompts that are computed meanwhile, without cached ones.
    """

    tokens_per_second: float
    low: float
    high: float
    prompt_tokens_per_second: float | None = None

    def part(self, parts: float) -> CapacityRange:
        """Return the part of one of several equal engines."""
        prompt = self.prompt_tokens_per_second
        return CapacityRange(
            self.tokens_per_second / parts,
            self.low / parts,
            self.high / parts,
            None if prompt is None else prompt / parts,
        )


class EngineCapacity(NamedTuple):
    """The capacities by basis, the best first; `unknown` is why there is none."""

    ranges: Mapping[CapacityBasis, CapacityRange] = MappingProxyType({})
    unknown: CapacityReason | None = None


def measured_range(value: float, low: float | None, high: float | None, prompt: float | None) -> CapacityRange:
    """Return the capacity that a benchmark has measured, to 10 % where its bounds are not known."""
    parts = BENCH_BOUNDS
    return CapacityRange(
        value, value * parts[0] if low is None else low, value * parts[1] if high is None else high, prompt
    )
