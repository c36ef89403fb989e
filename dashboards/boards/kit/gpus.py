# SPDX-License-Identifier: Apache-2.0
"""
GPUs under the chosen servers: what they do, what slows them, and what is wrong with them.

Series of a GPU have its UUID and no server. They are joined with the servers that use it, whoever reads them: this
daemon, another one, or another exporter.
"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models import dashboard as models

from boards.kit import palette, promql
from boards.kit.links import runbooks
from boards.kit.panels import (
    BYTES,
    BYTES_PER_SECOND,
    RATIO,
    SECONDS,
    Column,
    Key,
    Panel,
    Query,
    grid,
    lines,
    value_mapping,
)
from boards.kit.texts import Texts
from boards.kit.thresholds import number
from vllm_watch.daemon.catalog.gpu_texts import GPU_ACTIONS, GPU_STATES, GpuState, GpuThrottling


CELSIUS: Final = "celsius"
WATTS: Final = "suffix: W"

_OF_SERVERS = promql.of_server("server_gpu_info")

GPUS: Final = f"max without (how, shared) ({_OF_SERVERS})"
"""The GPUs that the chosen servers use."""

EVER: Final = f"max without (how, shared) ({promql.over_range(_OF_SERVERS, 'max_over_time')})"
"""The same over the time range, at every moment of it."""

STATE_COLORS: Final[dict[GpuState, str]] = {
    "ok": palette.GREEN,
    "lost": palette.RED,
    "reset_required": palette.VERMILLION,
}

_REASONS: Final[dict[GpuThrottling, str]] = {
    "power_cap": palette.GREY,
    "thermal": palette.ORANGE,
    "hw_thermal": palette.VERMILLION,
    "power_brake": palette.PURPLE,
    "sync_boost": palette.SKY,
    "board": palette.BLUE,
    "reliability": palette.GREEN,
}
"""The colours of reasons why clocks are lowered; the first is no fault."""

_KEYS = ("server", "gpu")
_GPU = "{{server}} GPU {{index}}"
_NUMBER = "topk by (gpu) (1, max by (gpu, index) (vllm_watch_gpu_info))"
"""Its index, of which it has one only."""

_FACTS = "topk by (gpu) (1, max by (gpu, index, name, driver_version) (vllm_watch_gpu_info))"


def of_gpu(series: str, gpus: str = GPUS) -> str:
    """Return what a GPU has, once for each server that uses it; of one GPU there is one value, whoever reads it."""
    return f"{gpus} * on (gpu) group_left () max by (gpu) ({series})"


def numbered(expr: str) -> str:
    """Return what is of GPUs with their index, for people."""
    return f"({expr}) * on (gpu) group_left (index) {_NUMBER}"


def of_servers(series: str, how: str = "sum", gpus: str = GPUS) -> str:
    """Return one value for a server out of those of its GPUs."""
    return f"{how} without (gpu) ({of_gpu(series, gpus)})"


def throttled(reason: str = "") -> str:
    """Return how much of the time a GPU's clocks were lowered, for a reason or for any but its power limit."""
    chosen = f'reason="{reason}"' if reason else 'reason!="power_cap"'
    return promql.rate(f"vllm_watch_gpu_throttled_seconds_total{{{chosen}}}")


def state() -> str:
    """Return each GPU's state as a number: its place among `GPU_STATES`."""
    return _one_of("gpu_state", "state", GPU_STATES)


def state_mappings(t: Texts) -> list[models.ValueMapping]:
    """Return what the states' numbers are called, and their colours."""
    return [
        value_mapping(
            {str(place): (t.name(f"gpu_{name}"), STATE_COLORS[name]) for place, name in enumerate(GPU_STATES, 1)}
        )
    ]


def _one_of(series: str, label: str, names: tuple[str, ...]) -> str:
    return " or ".join(
        f'(vllm_watch_{series}{{{label}="{name}"}} == 1) * {place}' for place, name in enumerate(names, 1)
    )


def panels(t: Texts) -> list[Panel]:
    """Return the panels of a row: what GPUs do, what slows them, what is wrong."""
    return [
        _by_gpu(t, "gpu_busy", RATIO, "vllm_watch_gpu_busy_ratio", ("VllmEngineStalled",)),
        _by_gpu(t, "gpu_memory_busy", RATIO, "vllm_watch_gpu_memory_busy_ratio"),
        _power(t),
        _memory(t),
        _by_gpu(t, "gpu_clock", RATIO, "vllm_watch_gpu_sm_clock_hertz / vllm_watch_gpu_sm_clock_max_hertz"),
        _throttled(t),
        _temperature(t),
        _links(t),
        _table(t),
    ]


def _by_gpu(t: Texts, key: str, unit: str, series: str, alerts: tuple[str, ...] = ()) -> Panel:
    return lines(
        t.panel(key),
        unit,
        [Query(numbered(of_gpu(series)), _GPU, several=True)],
        width=6,
        most=1 if unit == RATIO else None,
        runbooks=runbooks(t, *alerts),
    )


def _power(t: Texts) -> Panel:
    limit = of_servers("vllm_watch_gpu_power_limit_watts", "max")
    return lines(
        t.panel("gpu_power"),
        WATTS,
        [
            Query(numbered(of_gpu("vllm_watch_gpu_power_watts")), _GPU, several=True),
            Query(limit, t.of_server("power_limit"), palette.LIMIT, limit=True),
        ],
        width=6,
    )


def _memory(t: Texts) -> Panel:
    """Return whose the memory of a server's GPUs is, all of them together."""
    own = promql.of_server("gpu_process_memory_bytes")
    # What is free of a divided GPU is in its instances.
    free = (
        "(vllm_watch_gpu_memory_total_bytes - vllm_watch_gpu_memory_used_bytes"
        ' unless on (gpu) vllm_watch_gpu_info{mig="1", gpu!~"MIG-.*"})'
    )
    return lines(
        t.panel("gpu_memory"),
        BYTES,
        [
            Query(f"sum without (gpu) ({own})", t.of_server("of_the_server"), palette.SKY),
            Query(of_servers("vllm_watch_gpu_other_memory_bytes"), t.of_server("of_others"), palette.VERMILLION),
            Query(of_servers(free), t.of_server("free"), palette.GREY),
        ],
        width=6,
        runbooks=runbooks(t, "GpuMemoryShort"),
    )


def _throttled(t: Texts) -> Panel:
    """Return how much of the time clocks were lowered, by reason, as the mean of all chosen GPUs."""
    return lines(
        t.panel("gpu_throttled"),
        RATIO,
        [
            Query(f"avg({of_gpu(throttled(reason))})", t.name(f"throttled_{reason}"), color)
            for reason, color in _REASONS.items()
        ],
        width=6,
        stacked=True,
        soft_most=number("gpu_throttled_share"),
        runbooks=runbooks(t, "GpuThrottled"),
    )


def _temperature(t: Texts) -> Panel:
    core, memory = (f'vllm_watch_gpu_temperature_celsius{{sensor="{sensor}"}}' for sensor in ("core", "memory"))
    return lines(
        t.panel("gpu_temperature"),
        CELSIUS,
        [
            Query(numbered(of_gpu(core)), _GPU, several=True),
            Query(of_servers(memory, "max"), t.of_server("hottest_memory"), palette.LIMIT, limit=True),
        ],
        width=6,
        runbooks=runbooks(t, "GpuThrottled"),
    )


def _links(t: Texts) -> Panel:
    colors = {"nvlink": (palette.BLUE, palette.SKY), "pcie": (palette.VERMILLION, palette.ORANGE)}
    return lines(
        t.panel("gpu_links"),
        BYTES_PER_SECOND,
        [
            Query(
                of_servers(promql.rate(f'vllm_watch_gpu_{link}_bytes_total{{direction="{direction}"}}')),
                t.of_server(f"{link}_{direction}"),
                color,
            )
            for link, both in colors.items()
            for direction, color in zip(("tx", "rx"), both, strict=True)
        ],
        width=6,
        runbooks=runbooks(t, "GpuLinkLost"),
    )


def _table(t: Texts) -> Panel:
    """Return a row for each GPU: how it is, what went wrong with it, and what it is."""
    facts = f"{promql.only(GPUS, *_KEYS)} * on (gpu) group_left (index, name, driver_version) {_FACTS}"
    return grid(
        t.panel("gpu_table"),
        [Key("server", t.name("server"), width=85), Key("gpu", t.name("uuid"), width=335)],
        [*_columns(t), Column(facts, t.name("info"), hidden=True)],
        facts=[
            Key("index", t.name("index"), width=45),
            Key("name", t.name("gpu_model"), width=190),
            Key("driver_version", t.name("driver"), width=85),
        ],
        sort_by=[(t.name("server"), False), (t.name("index"), False)],
        width=24,
        height=9,
        runbooks=runbooks(t, "GpuNeedsAction", "GpuXid", "GpuMemoryFailing"),
    )


def _columns(t: Texts) -> list[Column]:
    uncorrected = 'vllm_watch_gpu_ecc_errors_total{kind="uncorrected", lifetime="boot"}'
    actions = _one_of("gpu_recovery_action", "action", GPU_ACTIONS)
    rows = "vllm_watch_gpu_row_remap_pending + 2 * vllm_watch_gpu_row_remap_failed"
    since = f"time() - {_cell('vllm_watch_gpu_xid_last_timestamp_seconds')}"
    return [
        Column(_cell(state()), t.name("state"), mappings=state_mappings(t), filled=True, width=75),
        Column(_cell(actions), t.name("action"), mappings=_actions(t), width=105),
        Column(since, t.name("last_xid"), SECONDS, steps=[(0, palette.BAD)], width=90),
        Column(_cell(uncorrected), t.name("ecc"), steps=[(1, palette.BAD)], width=45),
        Column(_cell(rows), t.name("rows"), mappings=_rows(t), width=105),
        Column(_cell("vllm_watch_gpu_nvlink_active_links"), t.name("links_up"), width=65),
    ]


def _cell(series: str) -> str:
    return promql.only(of_gpu(series), *_KEYS)


def _actions(t: Texts) -> list[models.ValueMapping]:
    colors = {"none": palette.TEXT}
    return [
        value_mapping(
            {
                str(place): (t.name(f"action_{action}"), colors.get(action, palette.BAD))
                for place, action in enumerate(GPU_ACTIONS, 1)
            }
        )
    ]


def _rows(t: Texts) -> list[models.ValueMapping]:
    words = (("rows_well", palette.TEXT), ("rows_pending", palette.WARNING), ("rows_failed", palette.BAD))
    return [
        value_mapping(
            {
                **{str(value): (t.name(name), color) for value, (name, color) in enumerate(words)},
                "3": (t.name("rows_failed"), palette.BAD),
            }
        )
    ]
