# SPDX-License-Identifier: Apache-2.0
"""
Results of benchmarks: vLLM's own, from their JSON or from what they print on a terminal, and other clients'.

A file may have several: ``--append-result`` adds one object after the other, ``vllm bench sweep`` writes a list, a
terminal's log has one block after the other. JSON and printed blocks in one file are an error, and so is anything that
is cut off.
"""

from __future__ import annotations

import re

from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from vllm_watch_parsers.benchmark_json import is_serve, read_serve
from vllm_watch_parsers.benchmark_printed import (
    ARGUMENTS,
    is_title,
    pasted_as_one,
    read_printed_serve,
    split_block,
)
from vllm_watch_parsers.benchmark_printed import read_part as serve_part
from vllm_watch_parsers.benchmark_result import BenchmarkError, BenchmarkKind, BenchmarkResult
from vllm_watch_parsers.benchmark_throughput import (
    is_latency,
    is_printed_latency,
    is_printed_throughput,
    is_throughput,
    read_latency,
    read_printed_latency,
    read_printed_throughput,
    read_throughput,
)
from vllm_watch_parsers.benchmark_throughput import read_part as throughput_part
from vllm_watch_parsers.json_fields import decode_objects, top_level_keys
from vllm_watch_parsers.other_clients import client_of, read_client
from vllm_watch_parsers.request_list import csv_head, is_request_list, read_csv, read_request_list


MAX_TEXT = 1 << 29
"""Characters of the longest text: ten thousand answers of a thousand tokens, with all times, are half of it."""

_HEAD = 1 << 18
"""So many characters have the keys that tell what JSON is: lists come after them."""

_LINE = 512
"""No line of a result is longer."""

_TITLE = "Serving Benchmark Result"
_COLOUR = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")
_MARKS = (_TITLE, "Throughput: ", "Avg latency: ")


def what_is(text: str) -> BenchmarkKind | None:
    """
    Return which benchmark a text is a result of, by the first result in it, or `None` if it has none.

    JSON is judged by its first keys: `read_benchmarks` may still find it cut off or wrong.
    """
    if _is_json(text):
        keys = top_level_keys(text[:_HEAD])
        return None if foreign_object(keys) else _kind_of(keys)
    lines = _lines(text)
    return next((kind for line in lines if (kind := _printed_kind(line))), None)


def is_client_result(text: str) -> bool:
    """Return whether a text starts as another client's result, or as a list of requests."""
    if not _is_json(text):
        return csv_head(text) is not None
    keys = top_level_keys(text[:_HEAD])
    return client_of(keys) is not None or is_request_list(keys)


def read_benchmarks(text: str) -> tuple[BenchmarkResult, ...]:
    """
    Read every result of a file, in the order of the file; there is at least one.

    Raises:
        BenchmarkError: There is none, the file is another program's, or a result is cut off or cannot be believed.
    """
    if len(text) > MAX_TEXT:
        raise BenchmarkError(1, f"the file is longer than {MAX_TEXT:,} characters")
    if not text.strip("\ufeff \t\r\n"):
        raise BenchmarkError(1, "the file is empty")
    results = _read_client(text.lstrip("\ufeff"))
    results = results or tuple(_read_json(text.lstrip("\ufeff")) if _is_json(text) else _read_printed(text))
    if not results:
        raise BenchmarkError(1, "no result of vllm bench serve, throughput or latency in it, as JSON or printed")
    return results


def _read_client(text: str) -> tuple[BenchmarkResult, ...]:
    """Return what another client wrote; nothing if the text is none of that."""
    if not is_client_result(text):
        return ()
    if not _is_json(text):
        return (read_csv(text),)
    client = client_of(top_level_keys(text[:_HEAD]))
    results = (read_request_list(text),) if client is None else read_client(text, client)
    if not results:
        raise BenchmarkError(1, f"a result of {client} without a load")
    return results


def _is_json(text: str) -> bool:
    start = text[:4096].lstrip("\ufeff \t\r\n")
    # A terminal's line can start with a bracket too: "[rank0] …".
    return start.startswith("{") or re.match(r"\[\s*[\[{\]]", start) is not None


def _kind_of(keys: set[str]) -> BenchmarkKind | None:
    if is_serve(keys):
        return "serve"
    if is_throughput(keys):
        return "throughput"
    return "latency" if is_latency(keys) else None


def _read_json(text: str) -> Iterator[BenchmarkResult]:
    for line, value in decode_objects(text):
        if not isinstance(value, list):
            yield _read_object(value, line)
            continue
        if what := _foreign_list(value):
            raise BenchmarkError(line, f"this is {what}")
        for number, entry in enumerate(value):
            try:
                yield _read_object(entry, line)
            except BenchmarkError as error:
                raise BenchmarkError(line, f"[{number}]: {error.reason}") from None


def _read_object(value: object, line: int) -> BenchmarkResult:
    if not isinstance(value, dict):
        raise BenchmarkError(line, "a result must be a JSON object")
    what = foreign_object(value.keys())
    if what:
        raise BenchmarkError(line, f"this is {what}, not a result of vLLM's benchmarks")
    kind = _kind_of(set(value))
    if kind == "serve":
        return read_serve(value, line)
    if kind == "throughput":
        return read_throughput(value, line)
    if kind == "latency":
        return read_latency(value, line)
    raise BenchmarkError(line, "this JSON object is no result of vllm bench serve, throughput or latency")


def _read_printed(text: str) -> Iterator[BenchmarkResult]:
    lines = _lines(text)
    above = index = 0
    while index < len(lines):
        kind = _printed_kind(lines[index])
        if lines[index].startswith("{") and _kind_of(top_level_keys(lines[index][:_HEAD])):
            raise BenchmarkError(index + 1, "JSON follows printed text, and a file must be one of them")
        if kind == "serve":
            result, after = read_printed_serve(lines, index, above)
            if any(_OF_SGLANG.search(text) for text in lines[index:after]):
                raise BenchmarkError(index + 1, f"this is {_SGLANG}, not of vLLM's benchmarks")
            yield result
            above = index = after
            continue
        if kind == "throughput":
            yield read_printed_throughput(lines, index)
        elif kind == "latency":
            yield read_printed_latency(lines, index)
        index += 1


def read_lines(text: str) -> str:
    """Return what is read of a terminal's text: lines of results and of the client's arguments, nothing before them."""
    parts = (serve_part(line) or throughput_part(line) or _sglang_part(line) for line in _lines(text))
    return "".join(part + "\n" for part in parts if part)


def _sglang_part(line: str) -> str:
    found = _OF_SGLANG.search(line)
    return "" if found is None else found[0]


def _printed_kind(line: str) -> BenchmarkKind | None:
    """Return what starts at a line of a terminal."""
    if not any(mark in line for mark in _MARKS):
        return None
    if is_title(line):
        return "serve"
    if is_printed_throughput(line):
        return "throughput"
    return "latency" if is_printed_latency(line) else None


def _with_line_ends(text: str) -> str:
    """Return a text in which the lines of a block that was pasted as one line are lines again."""
    title = text.find(_TITLE)
    end = text.find("\n", title)
    if title < 0 or not pasted_as_one(text[title : len(text) if end < 0 else end]):
        return text
    return "\n".join(split_block(line) if pasted_as_one(line) else line for line in text.split("\n"))


def _lines(text: str) -> list[str]:
    """
    Return the lines as a terminal shows them: without colours, and of a progress bar's states the last one.

    Of a long line only the end counts, after whatever a log has before it; but for the client's arguments, and JSON.
    """
    shown = []
    for line in _with_line_ends(text).split("\n"):
        plain = line if ARGUMENTS in line or line.startswith("{") else line[-_LINE:]
        plain = _COLOUR.sub("", plain) if "\x1b" in plain else plain
        shown.append(plain.rstrip("\r").rpartition("\r")[2] if "\r" in plain else plain)
    return shown


_SGLANG = "a result of SGLang's bench_serving"
_BY_KEYS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"total_output_tokens_retokenized"}), _SGLANG),
    (frozenset({"request_throughput", "input_config"}), "a profile of GenAI-Perf"),
    (frozenset({"metrics", "root_group"}), "a summary of k6"),
    (frozenset({"Time taken for tests (s)"}), "a summary of EvalScope"),
    (frozenset({"results_num_completed_requests"}), "a summary of LLMPerf"),
    (frozenset({"results", "versions", "config"}), "a result of lm-evaluation-harness"),
    (frozenset({"mm_processor_stats"}), "a result of vllm bench mm-processor, which measures no load"),
    (frozenset({"runs"}), "a report of vllm-watch"),
    (frozenset({"pairs", "sides"}), "a comparison of vllm-watch"),
)
_OF_SGLANG = re.compile(r"Total generated tokens \(retokenized\):|Mean E2E Latency \(ms\):")
_PYTORCH = {"benchmark", "metric", "model"}


def foreign_object(keys: AbstractSet[str]) -> str | None:
    """Return what a JSON object with these keys is, if it is known and nothing of ours."""
    return next((what for wanted, what in _BY_KEYS if wanted <= keys), None)


def _foreign_list(entries: list[object]) -> str:
    """Return what a JSON list is, if it is known or empty; else nothing."""
    if not entries:
        return "an empty list"
    if isinstance(entries[0], dict) and entries[0].keys() >= _PYTORCH:
        return "a record for PyTorch's benchmark database; the result is in the file without .pytorch in its name"
    return ""
