# SPDX-License-Identifier: Apache-2.0
"""Capacities with their bounds, in tokens per second."""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.capacity.curve import CURVE_BOUNDS, Curve
from vllm_watch.capacity.saturation import SATURATED_BOUNDS, Stretch


class CapacityRange(NamedTuple):
    """
    How many tokens per second an engine generates at most, and between which values the truth is.

    `prompt_tokens_per_second` are those of prompts that are computed meanwhile, without cached ones.
    """

    tokens_per_second: float
    low: float
    high: float
    prompt_tokens_per_second: float | None = None


def saturated_bounds(stretch: Stretch) -> CapacityRange:
    """Return the capacity that a stretch has shown."""
    return _bounds(stretch.generated or 0.0, SATURATED_BOUNDS, stretch.computed)


def curve_bounds(curve: Curve) -> CapacityRange:
    """Return the capacity that a curve shows."""
    return _bounds(curve.generated, CURVE_BOUNDS, curve.computed)


def _bounds(value: float, parts: tuple[float, float], prompt: float | None) -> CapacityRange:
    low, high = parts
    return CapacityRange(value, low * value, high * value, prompt)
