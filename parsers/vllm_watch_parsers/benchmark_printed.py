# SPDX-License-Identifier: Apache-2.0
"""
The block that ``vllm bench serve`` and ``benchmark_serving.py`` print, releases 0.4 to 0.33.

It is found inside anything a terminal shows: a log of a container or of CI, with other text before each line, progress
bars on the same line, colours, or a mail that quotes it. Above it the client prints its arguments and the rate.
"""

from __future__ import annotations

import re

from collections.abc import Mapping
from math import inf
from typing import NamedTuple, get_args

from vllm_watch_parsers.benchmark_json import in_order, is_measured, total_throughput, with_statistic
from vllm_watch_parsers.benchmark_result import (
    MAX_MILLISECONDS,
    MAX_SECONDS,
    BenchmarkError,
    E2elOrder,
    LatencyStats,
    MetricName,
    Probe,
    RampUp,
    ServeResult,
    Settings,
    SpecDecode,
)
from vllm_watch_parsers.fields import MAX_DRAFT_TOKENS, MAX_REQUESTS, MAX_TOKENS, MAX_TOKENS_PER_SECOND, number
from vllm_watch_parsers.python_repr import top_level_items, unquote


ARGUMENTS = "Namespace("
"""How the client's arguments start, which it prints as Python text."""

_TITLE = re.compile(r"={3,}\s?Serving Benchmark Result\s?={3,}\s*\Z")
_END = re.compile(r"={40,}\s*\Z")
_MAX_BLOCK = 400
"""Lines of the longest block: every metric with dozens of percentiles, and the acceptance of every position."""

_LINES: Mapping[str, float] = {
    "Successful requests": MAX_REQUESTS,
    "Failed requests": MAX_REQUESTS,
    "Maximum request concurrency": MAX_REQUESTS,
    "Request rate configured (RPS)": 1e9,
    "Benchmark duration (s)": MAX_SECONDS,
    "Total input tokens": MAX_TOKENS,
    "Total generated tokens": MAX_TOKENS,
    "Request throughput (req/s)": MAX_TOKENS_PER_SECOND,
    "Input token throughput (tok/s)": MAX_TOKENS_PER_SECOND,
    "Output token throughput (tok/s)": MAX_TOKENS_PER_SECOND,
    "Total token throughput (tok/s)": MAX_TOKENS_PER_SECOND,
    "Peak output token throughput (tok/s)": MAX_TOKENS_PER_SECOND,
    "Peak concurrent requests": MAX_REQUESTS,
    "Request goodput (req/s)": MAX_TOKENS_PER_SECOND,
    "Probe requests completed": MAX_REQUESTS,
    "Probe requests failed": MAX_REQUESTS,
    "Median probe E2EL (ms)": MAX_MILLISECONDS,
    "P99 probe E2EL (ms)": MAX_MILLISECONDS,
    "Max probe E2EL (ms)": MAX_MILLISECONDS,
    "Acceptance rate (%)": 100,
    "Acceptance length": MAX_DRAFT_TOKENS + 1,
    "Drafts": MAX_TOKENS,
    "Draft tokens": MAX_TOKENS,
    "Accepted tokens": MAX_TOKENS,
}
"""The lines that are read, and the highest value of each; ``Total Token throughput`` had a capital T until 0.12.0."""

_METRICS: Mapping[str, MetricName] = dict(
    zip(
        ("TTFT", "TPOT", "ITL", "E2EL", "Client Queue Time", "E2EL incl. Client Queue"),
        get_args(MetricName),
        strict=True,
    )
)
_VALUE = r":\s+(-?[0-9.,]{1,40}|nan|inf)\s*\Z"
_LONGEST_FIRST = sorted(_LINES, key=len, reverse=True)
_COUNT = re.compile("(" + "|".join(map(re.escape, _LONGEST_FIRST)) + ")" + _VALUE, re.IGNORECASE)
_STATISTIC = re.compile(
    r"(Mean|Median|P\d{1,3}(?:\.\d{1,12})?) (" + "|".join(map(re.escape, _METRICS)) + r") \(ms\)" + _VALUE
)
_POSITION = re.compile(r"Position (\d{1,3})" + _VALUE, re.ASCII)
_BY_LOWER_CASE = {name.lower(): name for name in _LINES}

_RATE = re.compile(r"Traffic request rate: ([0-9.]{1,40}|inf)\s*\Z")
_BURSTINESS = re.compile(r"Burstiness factor: ([0-9.]{1,40}) \(")
_LIMIT = re.compile(r"Maximum request concurrency: (\d{1,8}|None)\s*\Z", re.ASCII)
_OBJECTIVE = re.compile(r"'(ttft|tpot|e2el):(\d{1,9}(?:\.\d{1,9})?)'", re.ASCII)
_MODERN = ("Burstiness factor: ", "Maximum request concurrency: ")
"""What the client prints from 0.6.4 on, the first release with mean and median of E2EL as they are."""

_MODERN_LINES = frozenset({"Maximum request concurrency", "Request goodput (req/s)", "Failed requests"})
_REQUIRED = (
    "Successful requests",
    "Benchmark duration (s)",
    "Total input tokens",
    "Request throughput (req/s)",
)


def is_title(line: str) -> bool:
    """Return whether a line of a terminal is the first one of a block."""
    return ARGUMENTS not in line and _TITLE.search(line) is not None


def read_printed_serve(lines: list[str], start: int, above: int) -> tuple[ServeResult, int]:
    """
    Read the block whose title is the line at `start`.

    Args:
        lines: All lines, as a terminal shows them.
        start: Where the title is.
        above: The first line that belongs to nothing else: arguments and rate are between it and the title.

    Returns:
        The result, and where the lines after the block start.

    Raises:
        BenchmarkError: The block has no end, lacks a line that every release prints, or a value is out of range.
    """
    end = next((i for i in range(start + 1, min(len(lines), start + _MAX_BLOCK)) if _is_end(lines[i])), None)
    if end is None or is_title(lines[end]):
        raise BenchmarkError(start + 1, "the block that starts here is cut off: it has no last line of equal signs")
    return _result(_Block.read(lines, start, end), lines[above:start], start + 1), end + 1


def _is_end(line: str) -> bool:
    return is_title(line) or _END.search(line) is not None


class _Block(NamedTuple):
    """The values of a block, each by the name of its line."""

    counts: dict[str, float]
    latencies: dict[MetricName, LatencyStats]
    positions: tuple[float, ...]

    @classmethod
    def read(cls, lines: list[str], start: int, end: int) -> _Block:
        """Read the lines between title and end; those that are unknown say nothing."""
        counts: dict[str, float] = {}
        latencies: dict[MetricName, LatencyStats] = {}
        positions: list[float] = []
        for index in range(start + 1, end):
            statistic, count = _STATISTIC.search(lines[index]), _COUNT.search(lines[index])
            position = _POSITION.search(lines[index])
            if statistic is not None:
                name = _METRICS[statistic[2]]
                value = _in_range(statistic[3], MAX_MILLISECONDS, index)
                latencies[name] = with_statistic(latencies.get(name, LatencyStats()), statistic[1].lower(), value)
            elif count is not None:
                label = _BY_LOWER_CASE[count[1].lower()]
                counts[label] = _in_range(count[2], _LINES[label], index)
            elif position is not None:
                positions.append(_in_range(position[2], 100, index) / 100)
        measured = {name: stats for name, stats in latencies.items() if is_measured(name, stats)}
        return cls(counts, measured, tuple(positions))

    def whole(self, name: str) -> int | None:
        """Return a count."""
        value = self.counts.get(name)
        return None if value is None else int(value)


def _in_range(text: str, most: float, index: int) -> float:
    value = number(text)
    if value is None or not 0 <= value <= most:
        raise BenchmarkError(index + 1, f"must be a number from 0 to {most:g}, not {text}")
    return value


def _result(block: _Block, above: list[str], line: int) -> ServeResult:
    counts = block.counts
    for name in _REQUIRED:
        if name not in counts:
            raise BenchmarkError(line, f'the block that starts here has no line "{name}:"')
    if not counts["Benchmark duration (s)"]:
        raise BenchmarkError(line, 'the block that starts here has a "Benchmark duration (s):" of 0')
    latencies = dict(block.latencies)
    order: E2elOrder = "as_named"
    is_modern = bool(_MODERN_LINES & counts.keys()) or any(mark in text for text in above for mark in _MODERN)
    if "e2el" in latencies and not is_modern:
        latencies["e2el"], order = in_order(latencies["e2el"], None)
    settings = _settings(above, counts)
    completed = int(counts["Successful requests"])
    failed = block.whole("Failed requests")
    if failed is None and settings.num_prompts is not None:
        failed = max(settings.num_prompts - completed, 0)
    return ServeResult(
        line=line,
        settings=settings,
        duration=counts["Benchmark duration (s)"],
        completed=completed,
        failed=failed,
        is_failed_counted="Failed requests" in counts,
        total_input_tokens=int(counts["Total input tokens"]),
        total_output_tokens=block.whole("Total generated tokens"),
        request_throughput=counts["Request throughput (req/s)"],
        output_throughput=counts.get("Output token throughput (tok/s)"),
        total_token_throughput=total_throughput(
            *(counts.get(f"{part} token throughput (tok/s)") for part in ("Total", "Input", "Output"))
        ),
        request_goodput=counts.get("Request goodput (req/s)"),
        latencies=latencies if completed else {},
        e2el_order=order,
        max_output_tokens_per_s=counts.get("Peak output token throughput (tok/s)"),
        max_concurrent_requests=counts.get("Peak concurrent requests"),
        spec_decode=_spec_decode(block),
        probe=_probe(block),
        is_pooling="Total generated tokens" not in counts,
    )


def _spec_decode(block: _Block) -> SpecDecode | None:
    percent = block.counts.get("Acceptance rate (%)")
    if percent is None:
        return None
    return SpecDecode(
        acceptance_ratio=percent / 100,
        acceptance_length=block.counts.get("Acceptance length"),
        drafts=block.whole("Drafts"),
        draft_tokens=block.whole("Draft tokens"),
        accepted_tokens=block.whole("Accepted tokens"),
        position_acceptance=block.positions,
    )


def _probe(block: _Block) -> Probe | None:
    completed = block.whole("Probe requests completed")
    if completed is None:
        return None
    return Probe(
        completed,
        block.whole("Probe requests failed"),
        *(block.counts.get(f"{statistic} probe E2EL (ms)") for statistic in ("Median", "P99", "Max")),
    )


def _settings(above: list[str], counts: Mapping[str, float]) -> Settings:
    """Return what the lines above the block, and the first ones in it, say of the load."""
    arguments = _arguments(above)
    rate = counts.get("Request rate configured (RPS)", _last(_RATE, above) or arguments.get("request_rate"))
    limit = counts.get("Maximum request concurrency", _last(_LIMIT, above) or arguments.get("max_concurrency"))
    is_limited = None if limit is None else limit != "None"
    burstiness = _last(_BURSTINESS, above) or arguments.get("burstiness")
    return Settings(
        backend=_named(arguments, "backend") or _named(arguments, "endpoint_type"),
        label=_named(arguments, "label"),
        model_id=_named(arguments, "model"),
        tokenizer_id=_named(arguments, "tokenizer"),
        num_prompts=_whole(arguments.get("num_prompts")),
        request_rate=_real(rate),
        burstiness=_real(burstiness),
        max_concurrency=_whole(limit) if is_limited else None,
        is_limited=is_limited,
        ramp_up=_ramp_up(arguments),
        temperature=_real(arguments.get("temperature")),
        num_warmups=_whole(arguments.get("num_warmups")),
        dataset_name=_named(arguments, "dataset_name"),
        goodput={name: float(limit) for name, limit in _OBJECTIVE.findall(arguments.get("goodput", ""))},
    )


def _arguments(above: list[str]) -> dict[str, str]:
    """Return the client's arguments, which it prints as Python text when it starts."""
    found = [line[line.index(ARGUMENTS) :] for line in above if ARGUMENTS in line]
    return dict(top_level_items(found[-1])) if found else {}


def _ramp_up(arguments: Mapping[str, str]) -> RampUp | None:
    strategy = _named(arguments, "ramp_up_strategy")
    if strategy is None:
        return None
    return RampUp(strategy, _real(arguments.get("ramp_up_start_rps")), _real(arguments.get("ramp_up_end_rps")))


def _last(form: re.Pattern[str], lines: list[str]) -> str | None:
    found = [match[1] for line in lines if (match := form.search(line))]
    return found[-1] if found else None


def _named(arguments: Mapping[str, str], name: str) -> str | None:
    return unquote(arguments.get(name, ""))


def _real(value: float | str | None) -> float | None:
    """Return a number from 0 on, however it was printed; ``inf`` is one."""
    if isinstance(value, str):
        value = inf if value == "inf" else number(value)
    return value if value is not None and value >= 0 else None


def _whole(value: float | str | None) -> int | None:
    found = _real(value)
    return int(found) if found is not None and found <= MAX_REQUESTS else None
