# SPDX-License-Identifier: Apache-2.0
"""What few servers have: LoRA adapters, estimates of work, lives of KV blocks; and the API server's own process."""

from __future__ import annotations

from typing import Final

from boards.kit import palette, promql
from boards.kit.links import runbooks
from boards.kit.panels import BYTES_PER_SECOND, EVENTS, LATENCY, PER_SECOND, RATIO, TOKENS, Panel, Query, lines, shares
from boards.kit.texts import Texts


FLOPS: Final = "flops"

_OUTCOMES = {"tool_call": palette.GREEN, "no_tool_call": palette.GREY}
_ESTIMATES = {"read": palette.SKY, "write": palette.ORANGE}


def panels(t: Texts) -> list[Panel]:
    """Return nine panels: three rows of three."""
    return [
        _adapters(t),
        _flops(t),
        _memory(t),
        _buckets(t, "kv_idle", "kv_block_idle_before_evict_seconds"),
        _buckets(t, "kv_reuse", "kv_block_reuse_gap_seconds"),
        _buckets(t, "inference", "inference_time_seconds"),
        _limits(t),
        _tool_calls(t),
        _process(t),
    ]


def _adapters(t: Texts) -> Panel:
    return lines(
        t.panel("adapters"),
        EVENTS,
        [
            Query(promql.of_server("lora_active_adapters"), t.of_server("active"), palette.SKY),
            Query(promql.of_server("lora_max_adapters"), t.of_server("max_loras"), palette.GREY),
        ],
        stepped=True,
        soft_most=1,
        runbooks=runbooks(t, "VllmQueueStanding"),
    )


def _flops(t: Texts) -> Panel:
    achieved = promql.per_server(promql.of_engine("achieved_flops_per_second"), "max")
    return lines(t.panel("flops"), FLOPS, [Query(achieved, "{{server}}", palette.SKY, several=True)], soft_most=1)


def _memory(t: Texts) -> Panel:
    return lines(
        t.panel("memory_work"),
        BYTES_PER_SECOND,
        [
            Query(
                promql.per_server(promql.of_engine(f"achieved_{way}_bytes_per_second"), "max"), t.of_server(way), color
            )
            for way, color in _ESTIMATES.items()
        ],
        soft_most=1,
    )


def _buckets(t: Texts, key: str, histogram: str) -> Panel:
    """Return a distribution; nothing while nothing was observed, so that the panel says why it is empty."""
    observed, number = (promql.rate(promql.of_engine(f"{histogram}_{part}")) for part in ("bucket", "count"))
    seen = f"sum by (le) ({observed}) and on () (sum({number}) > 0)"
    return shares(t.panel(key), LATENCY, Query(seen, "{{le}}"))


def _limits(t: Texts) -> Panel:
    """Return what requests may generate beside what they do."""
    return lines(
        t.panel("limits_of_requests"),
        TOKENS,
        [
            Query(promql.quantile(0.5, "request_max_tokens"), t.of_server("limit_p50"), palette.GREY),
            Query(promql.quantile(0.95, "request_generation_tokens"), t.of_server("generated_p95"), palette.GREEN),
        ],
        soft_most=1,
    )


def _tool_calls(t: Texts) -> Panel:
    """Return the calls of the parser for whole answers: of streamed ones it counts pieces."""
    return lines(
        t.panel("tool_calls"),
        PER_SECOND,
        [
            Query(
                promql.rate(promql.of_server("tool_parser_calls_total", f'mode="non_streaming",outcome="{outcome}"')),
                t.of_server(outcome),
                color,
            )
            for outcome, color in _OUTCOMES.items()
        ],
        soft_most=1,
    )


def _process(t: Texts) -> Panel:
    """Return what the API server's process takes of one processor, and of the files that it may have open."""
    open_files, most = promql.of_server("server_process_open_fds"), promql.of_server("server_process_max_fds")
    return lines(
        t.panel("process"),
        RATIO,
        [
            Query(promql.rate(promql.of_server("server_process_cpu_seconds_total")), t.of_server("cpu"), palette.SKY),
            Query(f"{open_files} / {most}", t.of_server("files"), palette.ORANGE),
        ],
        soft_most=1,
    )
