# SPDX-License-Identifier: Apache-2.0
"""Whether two sides can be compared at all: looked at before any number."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vllm_watch.analysis.comparison.finding import Finding
from vllm_watch.analysis.comparison.pair import Pair
from vllm_watch.analysis.comparison.same_load import (
    check_lengths,
    check_load,
    check_model,
    check_prefix_cache,
    check_temperature,
)
from vllm_watch.analysis.comparison.sound_runs import (
    check_acceptance,
    check_duration,
    check_errors,
    check_idle,
    check_in_flight,
    check_order,
    check_overlap,
    check_repetition,
    check_saturation,
    check_steadiness,
    check_variation,
)


_CHECKS: tuple[Callable[[Pair], Iterator[Finding]], ...] = (
    check_repetition,
    check_overlap,
    check_model,
    check_load,
    check_lengths,
    check_prefix_cache,
    check_temperature,
    check_errors,
    check_duration,
    check_idle,
    check_saturation,
    check_steadiness,
    check_in_flight,
    check_variation,
    check_acceptance,
    check_order,
)


def findings(pair: Pair) -> tuple[Finding, ...]:
    """Return all that speaks against comparing two sides, what prevents it first."""
    found = [finding for check in _CHECKS for finding in check(pair)]
    return tuple(sorted(found, key=lambda finding: not finding.prevents))
