# SPDX-License-Identifier: Apache-2.0
"""The objective of a load test: ``chat`` and ``batch`` as in the configuration's `slo`, or limits of one's own."""

from __future__ import annotations

from vllm_watch.analysis.loadtest.model import LatencyName, Objective
from vllm_watch.daemon.config.server_config import SLO_PRESETS
from vllm_watch.daemon.config.texts import parse_duration, quote


GIVEN = "given"
EXAMPLES = f"{', '.join(SLO_PRESETS)} or limits such as ttft=300ms,tpot=40ms,e2el=5s"

_LATENCIES: dict[str, LatencyName] = {"ttft": "ttft_ms", "tpot": "tpot_ms", "e2el": "e2el_ms"}
"""What a request as a whole has; the gaps between chunks have no limit, as in ``vllm bench serve --goodput``."""

_LONG_NAMES = {"time_to_first_token": "ttft", "time_per_output_token": "tpot"}
"""As the configuration's `slo` calls them."""

_SHORTEST, _LONGEST = 0.001, 3600.0


def parse_objective(text: str) -> Objective:
    """
    Parse the name of a preset, or limits with their units: ``ttft=300ms,tpot=40ms``, also by the names of `slo`.

    Raises:
        ValueError: It is neither; the message is shown after the option.
    """
    preset = SLO_PRESETS.get(text)
    if preset is not None:
        limits = {"ttft": preset.time_to_first_token, "tpot": preset.time_per_output_token}
        return Objective(name=text, limits={_LATENCIES[name]: seconds * 1000 for name, seconds in limits.items()})
    found: dict[LatencyName, float] = {}
    for part in text.split(","):
        name, separator, limit = (each.strip() for each in part.partition("="))
        name = _LONG_NAMES.get(name, name)
        if not separator or name not in _LATENCIES:
            raise ValueError(f"expected {EXAMPLES}, got {quote(text)}")
        if _LATENCIES[name] in found:
            raise ValueError(f"{name} has two limits in {quote(text)}")
        found[_LATENCIES[name]] = _milliseconds(limit)
    return Objective(name=GIVEN, limits=found)


def _milliseconds(limit: str) -> float:
    seconds = parse_duration(limit)
    if limit[-1].isdigit():
        raise ValueError(f"{quote(limit)} needs a unit: {limit}ms or {limit}s")
    if not _SHORTEST <= seconds <= _LONGEST:
        raise ValueError(f"expected a limit from 1ms to 1h, got {quote(limit)}")
    return seconds * 1000
