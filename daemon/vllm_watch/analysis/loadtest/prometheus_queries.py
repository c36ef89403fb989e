# SPDX-License-Identifier: Apache-2.0
"""
The queries for one server's series, by the names of the catalog.

Those of a history ask for the last value within one scrape interval, not for the value of up to five minutes before:
where nothing was scraped there is nothing. Counters and buckets are asked for as they are, never as rates.
"""

from __future__ import annotations

import json
import re

from collections.abc import Collection
from typing import NamedTuple

from vllm_watch.analysis.loadtest.energy_and_cost import ENERGY
from vllm_watch.daemon.catalog.series import DONE, FACTS, LATENCY, NOW, PREFIX, Series


ENGINE_LABELS = ("server", "model_name", "engine")
POSITION = "spec_decode_position_acceptance_ratio"
FAILURES = "log_events_total"
STARTS = "server_starts_total"
INFO = "server_info"
CONFIG = "server_config_info"
ENGINE_STATE = "engine_state"
LAST_READING = "source_last_reading_timestamp_seconds"
PRESENCE = "source_up"
"""What every server has at every scrape, whatever its sources report."""

GPU_INFO = "gpu_info"
SERVER_GPU = "server_gpu_info"
PRICE = "server_cost_per_hour"

_LEFT_OUT = {"last_token_timestamp_seconds"}


def _of_engines(series: tuple[Series, ...]) -> tuple[str, ...]:
    return tuple(row.name for row in series if row.labels == ENGINE_LABELS and row.name not in _LEFT_OUT)


GAUGES = _of_engines(NOW.series)
FACT_GAUGES = _of_engines(FACTS.series)
COUNTERS = tuple(row.name for row in DONE.series)
HISTOGRAMS = tuple(row.name for row in LATENCY.series)
PLAIN = (*GAUGES, *FACT_GAUGES, ENGINE_STATE, POSITION, INFO, CONFIG, LAST_READING)
"""What is neither a counter nor a histogram."""


class Queries(NamedTuple):
    """
    The expressions of one server; of `series` there is one for each family of histograms, whose answers are large.

    `energy` is by GPU, whoever reads it, `energy_read` says when, and `divided` which GPUs are not the server's alone.
    """

    sampled: str
    series: tuple[str, ...]
    energy: str
    energy_read: str
    divided: str


def sampled_at(server: str | None) -> str:
    """Return the expression for when a server's values were scraped, by the labels that Prometheus added; or any's."""
    wanted = "" if server is None else _server(server)
    return f"max without (server, source) (timestamp({PREFIX}{PRESENCE}{{{wanted}}}))"


def values_of(names: Collection[str], server: str | None) -> str:
    """Return the expression for series by their names: those of a server and those of none, or all."""
    wanted = "" if server is None else f",server=~{json.dumps(re.escape(server) + '|')}"
    return f'{{__name__=~"{"|".join(sorted(names))}"{wanted}}}'


def servers_within(seconds: float) -> str:
    """Return the expression for all servers with values within some seconds."""
    return f"group by (server) (present_over_time({PREFIX}{PRESENCE}[{_window(seconds)}]))"


def queries(server: str, interval: float) -> Queries:
    """Return the expressions for a server whose values were scraped every `interval` seconds."""
    plain = (*PLAIN, SERVER_GPU, PRICE)
    families = ("|".join(plain), "|".join(COUNTERS), *(f"{name}_(bucket|sum)" for name in HISTOGRAMS))
    energy = PREFIX + ENERGY
    return Queries(
        sampled_at(server),
        tuple(_last(names, server, interval) for names in families),
        _of_gpus(f"max by (gpu) ({energy})", server),
        _of_gpus(f"max by (gpu) (timestamp({energy}))", server),
        _of_gpus(f'max by (gpu) ({PREFIX}{GPU_INFO}{{mig="1"}})', server),
    )


def _of_gpus(by_gpu: str, server: str) -> str:
    """Return what is known of a server's GPUs alone: series of GPUs do not name a server."""
    return f"{by_gpu} and on (gpu) {PREFIX}{SERVER_GPU}{{{_server(server)}}}"


def _last(names: str, server: str, interval: float) -> str:
    return f'last_over_time({{__name__=~"{PREFIX}({names})",{_server(server)}}}[{_window(interval)}])'


def _server(name: str) -> str:
    # A string of PromQL has Go's escapes, and JSON's are among them.
    return f"server={json.dumps(name)}"


def _window(seconds: float) -> str:
    return f"{max(round(1000 * seconds), 1)}ms"
