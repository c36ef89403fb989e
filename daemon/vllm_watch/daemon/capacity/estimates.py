# SPDX-License-Identifier: Apache-2.0
"""Capacities with their bounds, in tokens per second."""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.daemon.capacity.curve import CURVE_BOUNDS, Curve
from vllm_watch.daemon.capacity.saturation import SATURATED_BOUNDS, Stretch


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
        """Return the part of one of so many equal engines."""
        prompt = self.prompt_tokens_per_second
        return CapacityRange(
            self.tokens_per_second / parts,
            self.low / parts,
            self.high / parts,
            None if prompt is None else prompt / parts,
        )


def saturated_range(stretch: Stretch) -> CapacityRange:
    """Return the capacity that a stretch has shown."""
    return _bounds(stretch.generated or 0.0, SATURATED_BOUNDS, stretch.computed)


def curve_range(curve: Curve) -> CapacityRange:
    """Return the capacity that a curve shows."""
    return _bounds(curve.generated, CURVE_BOUNDS, curve.computed)


def measured_range(value: float, low: float | None, high: float | None, prompt: float | None) -> CapacityRange:
    """Return the capacity that a benchmark has measured, to 10 % where its bounds are not known."""
    parts = BENCH_BOUNDS
    return CapacityRange(
        value, value * parts[0] if low is None else low, value * parts[1] if high is None else high, prompt
    )


def _bounds(value: float, parts: tuple[float, float], prompt: float | None) -> CapacityRange:
    low, high = parts
    return CapacityRange(value, low * value, high * value, prompt)
