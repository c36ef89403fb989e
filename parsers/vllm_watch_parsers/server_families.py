# SPDX-License-Identifier: Apache-2.0
"""
Families of /metrics about a whole server: its API server's process, its connections, and operations such as sleep.

None of them has an engine. They are read under the names of their series, with the values of their labels from closed
lists: a value that no list has is `OTHER`.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch_parsers.lora import LoraUnknown


OTHER = "other"

OPERATIONS = ("sleep", "release_kv_cache_memory", "wake")
"""What `/sleep` and `/wake_up` are doing, by the label `operation`."""

WEIGHT_UPDATES = ("init", "shutdown", "start", "start_draft", "update", "finish")
"""What a trainer is doing to the weights, by the label `operation`."""

_OPERATION = (("operation", OPERATIONS),)
_WEIGHT_UPDATE = (("operation", WEIGHT_UPDATES),)


class ServerSeries(NamedTuple):
    """A series without its prefix, and the values of its labels but for the server."""

    name: str
    labels: tuple[str, ...] = ()


class ServerFamily(NamedTuple):
    """What a family is read as. `labels` are those that are kept, each with the values that it may have."""

    name: str
    labels: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def series(self, labels: tuple[tuple[str, str], ...]) -> ServerSeries:
        """Return the series that a sample with these labels belongs to."""
        given = dict(labels)
        kept = ((given.get(name, ""), values) for name, values in self.labels)
        return ServerSeries(self.name, tuple(value if value in values else OTHER for value, values in kept))


SERVER_VALUES: dict[str, ServerFamily] = {
    "process_open_fds": ServerFamily("server_process_open_fds"),
    "process_max_fds": ServerFamily("server_process_max_fds"),
    "process_resident_memory_bytes": ServerFamily("server_process_resident_memory_bytes"),
    "process_cpu_seconds_total": ServerFamily("server_process_cpu_seconds_total"),
    "vllm:websocket_connections_active": ServerFamily("websocket_connections_active"),
    "vllm:websocket_connections_total": ServerFamily("websocket_connections_total"),
    # Of streamed answers it counts each delta, so the mode is kept; models and kinds of requests are added up.
    "vllm:tool_call_parser_invocations_total": ServerFamily(
        "tool_parser_calls_total",
        (("mode", ("non_streaming", "streaming")), ("outcome", ("tool_call", "no_tool_call"))),
    ),
    "vllm:sleep_mode_operations_in_flight": ServerFamily("sleep_operations_in_flight", _OPERATION),
    "vllm:rl_weight_update_operations_in_flight": ServerFamily("weight_update_operations_in_flight", _WEIGHT_UPDATE),
}
"""Gauges and counters, by the name of their samples; series of equal labels are added up."""

SERVER_HISTOGRAMS: dict[str, ServerFamily] = {
    "vllm:websocket_connection_duration_seconds": ServerFamily("websocket_connection_duration_seconds"),
    "vllm:sleep_mode_operation_duration_seconds": ServerFamily("sleep_operation_duration_seconds", _OPERATION),
    "vllm:rl_weight_update_operation_duration_seconds": ServerFamily(
        "weight_update_operation_duration_seconds", _WEIGHT_UPDATE
    ),
}

IN_FLIGHT = frozenset({"sleep_operations_in_flight", "weight_update_operations_in_flight"})
"""While one of these is above 0, tokens stop: somebody works on the engine."""

LORA_ACTIVE = ServerSeries("lora_active_adapters")
LORA_MOST = ServerSeries("lora_max_adapters")


def lora_unknown(reason: LoraUnknown) -> ServerSeries:
    """Return the series that is there instead of `LORA_ACTIVE`."""
    return ServerSeries("lora_active_unknown_info", (reason,))
