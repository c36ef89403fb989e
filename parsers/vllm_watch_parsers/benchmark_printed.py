# SPDX-License-Identifier: Apache-2.0
"""
The block that ``vllm bench serve`` and ``benchmark_serving.py`` print, releases 0.4 to 0.33.

It is found inside anything a terminal shows: a log of a container or of CI, with other text before each line, progress
bars on the same line, colours, or a mail that quotes it. Above it the client prints its arguments and the rate.
"""

from __future__ import annotations

import re

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from vllm_watch_parsers.benchmark_json import read_serve
from vllm_watch_parsers.benchmark_result import BenchmarkError, MetricName, ServeResult
from vllm_watch_parsers.fields import MAX_REQUESTS, number, whole
from vllm_watch_parsers.flags import top_level_items, unquote


ARGUMENTS = "Namespace("
"""How the client's arguments start, which it prints as Python text."""

_TITLE = re.compile(r"={3,}\s?Serving Benchmark Result\s?={3,}\s*\Z")
_END = re.compile(r"={40,}\s*\Z")
_MAX_BLOCK = 400
"""Lines of the longest block: every metric with dozens of percentiles, and the acceptance of every position."""

_LINES: Mapping[str, str] = {
    "Successful requests": "completed",
    "Failed requests": "failed",
    "Maximum request concurrency": "max_concurrency",
    "Request rate configured (RPS)": "request_rate",
    "Benchmark duration (s)": "duration",
    "Total input tokens": "total_input_tokens",
    "Total generated tokens": "total_output_tokens",
    "Request throughput (req/s)": "request_throughput",
    "Input token throughput (tok/s)": "input_throughput",
    "Output token throughput (tok/s)": "output_throughput",
    "Total token throughput (tok/s)": "total_token_throughput",
    "Request goodput (req/s)": "request_goodput",
    "Peak output token throughput (tok/s)": "max_output_tokens_per_s",
    "Peak concurrent requests": "max_concurrent_requests",
    "Acceptance rate (%)": "spec_decode_acceptance_rate",
    "Drafts": "spec_decode_num_drafts",
    "Draft tokens": "spec_decode_draft_tokens",
    "Accepted tokens": "spec_decode_accepted_tokens",
    "Acceptance length": "spec_decode_acceptance_length",
}
"""The lines of a block, and the keys of the JSON, of which not all are read; a capital letter may be a small one."""

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
_BY_LOWER_CASE = {line.lower(): key for line, key in _LINES.items()}

_RATE = re.compile(r"Traffic request rate: ([0-9.]{1,40}|inf)\s*\Z")
_BURSTINESS = re.compile(r"Burstiness factor: ([0-9.]{1,40}) \(")
_LIMIT = re.compile(r"Maximum request concurrency: (\d{1,8}|None)\s*\Z", re.ASCII)
_OBJECTIVE = re.compile(r"'(ttft|tpot|e2el):(\d{1,9}(?:\.\d{1,9})?)'", re.ASCII)
_MODERN = ("Burstiness factor: ", "Maximum request concurrency: ")
"""What the client prints from 0.6.4 on, the first release with mean and median of E2EL as they are."""

_MODERN_KEYS = frozenset({"max_concurrency", "request_goodput", "failed"})
_REQUIRED = ("Successful requests", "Benchmark duration (s)", "Total input tokens", "Request throughput (req/s)")


_BREAKS = re.compile(
    r" (?=(?:Total Token throughput \(tok/s\)|Per-position acceptance \(%\)|"
    + "|".join(map(re.escape, _LONGEST_FIRST))
    + r"|(?:Mean|Median|P\d[\d.]*) (?:"
    + "|".join(map(re.escape, _METRICS))
    + r") \(ms\)|Position \d{1,3}):)| (?=-{4,}[^-]|={3,}(?: Serving|={30}))",
)
"""The blanks that stand for the end of a line where a block was pasted as one line."""


_READ = (_TITLE, _END, _STATISTIC, _COUNT, _RATE, _BURSTINESS, _LIMIT)

READ_ARGUMENTS = frozenset(
    {
        *("backend", "burstiness", "endpoint_type", "goodput", "max_concurrency", "model", "num_prompts"),
        *("num_warmups", "ramp_up_end_rps", "ramp_up_start_rps", "ramp_up_strategy", "request_rate", "temperature"),
    }
)
"""The client's arguments that are read."""


def read_part(line: str) -> str:
    """Return what is read of a line of a terminal, nothing of most; of the client's arguments those that are read."""
    if ARGUMENTS in line:
        items = top_level_items(line[line.index(ARGUMENTS) :])
        return ARGUMENTS + ", ".join(f"{name}={value}" for name, value in items if name in READ_ARGUMENTS) + ")"
    return next((found[0] for form in _READ if (found := form.search(line))), "")


def pasted_as_one(line: str) -> bool:
    """Return whether a line has the title of a block and its first values too."""
    title = line.find("Serving Benchmark Result")
    return title >= 0 and "Successful requests:" in line[title : title + 400]


def split_block(line: str) -> str:
    """Return the lines of a block that was pasted as one."""
    return _BREAKS.sub("\n", line)


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
    counts = _counts(lines[start + 1 : end])
    for name in _REQUIRED:
        if _LINES[name] not in counts:
            raise BenchmarkError(start + 1, f'the block that starts here has no line "{name}:"')
    return _result(counts, lines[above:start], start + 1), end + 1


def _is_end(line: str) -> bool:
    return is_title(line) or _END.search(line) is not None


def _counts(lines: Iterable[str]) -> dict[str, Any]:
    """Return the values of a block under the keys of the JSON; lines that are unknown say nothing."""
    values: dict[str, Any] = {}
    for line in lines:
        if statistic := _STATISTIC.search(line):
            values[f"{statistic[1].lower()}_{_METRICS[statistic[2]]}_ms"] = _value(statistic[3])
        elif count := _COUNT.search(line):
            values[_BY_LOWER_CASE[count[1].lower()]] = _value(count[2])
    return values


def _value(text: str) -> float | str:
    """Return a printed number, or the text of what is none."""
    found = number(text)
    return text if found is None else found


def _result(counts: Mapping[str, Any], above: list[str], line: int) -> ServeResult:
    """Read a block's values as those of the JSON, with what the client prints above it on the load."""
    arguments = _arguments(above)
    values: dict[str, Any] = {
        "backend": _named(arguments, "backend") or _named(arguments, "endpoint_type"),
        "model_id": _named(arguments, "model"),
        "num_prompts": _whole(arguments.get("num_prompts")),
        "request_rate": _real(_last(_RATE, above) or arguments.get("request_rate")),
        "ramp_up_strategy": _named(arguments, "ramp_up_strategy"),
        "ramp_up_start_rps": _real(arguments.get("ramp_up_start_rps")),
        "ramp_up_end_rps": _real(arguments.get("ramp_up_end_rps")),
    }
    limit = _last(_LIMIT, above) or arguments.get("max_concurrency")
    if limit is not None:
        values["max_concurrency"] = _whole(limit)
    burstiness = _real(_last(_BURSTINESS, above) or arguments.get("burstiness"))
    is_modern = bool(_MODERN_KEYS & counts.keys()) or any(mark in text for text in above for mark in _MODERN)
    if is_modern or burstiness is not None:
        values["burstiness"] = burstiness
    result = read_serve({**values, **counts}, line)
    settings = result.settings._replace(
        temperature=number(arguments.get("temperature", "")),
        num_warmups=_whole(arguments.get("num_warmups")),
        goodput={name: float(limit) for name, limit in _OBJECTIVE.findall(arguments.get("goodput", ""))},
    )
    return result._replace(settings=settings)


def _arguments(above: list[str]) -> dict[str, str]:
    """Return the client's arguments, which it prints as Python text when it starts."""
    found = [line[line.index(ARGUMENTS) :] for line in above if ARGUMENTS in line]
    return dict(top_level_items(found[-1])) if found else {}


def _last(form: re.Pattern[str], lines: list[str]) -> str | None:
    found = [match[1] for line in lines if (match := form.search(line))]
    return found[-1] if found else None


def _named(arguments: Mapping[str, str], name: str) -> str | None:
    return unquote(arguments.get(name, ""))


def _real(text: str | None) -> float | str | None:
    """Return a number from 0 on; ``inf`` as the JSON has it."""
    value = number(text or "")
    return "inf" if text == "inf" else value if value is not None and value >= 0 else None


def _whole(text: str | None) -> int | None:
    value = whole(text or "")
    return value if value is not None and value <= MAX_REQUESTS else None
