# SPDX-License-Identifier: Apache-2.0
"""
Results of load tests: of ``vllm bench serve``, as JSON or as it prints them, and of other clients.

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
    read_part,
    read_printed_serve,
    split_block,
)
from vllm_watch_parsers.benchmark_result import BenchmarkError, ServeResult
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


def is_result(text: str) -> bool:
    """
    Return whether a text has a result of vLLM's client.

    JSON is judged by its first keys: `read_benchmarks` may still find it cut off or wrong.
    """
    if _is_json(text):
        keys = top_level_keys(text[:_HEAD])
        return not foreign_object(keys) and is_serve(keys)
    return any(map(is_title, _lines(text)))


def is_client_result(text: str) -> bool:
    """Return whether a text starts as another client's result, or as a list of requests."""
    if not _is_json(text):
        return csv_head(text) is not None
    keys = top_level_keys(text[:_HEAD])
    return client_of(keys) is not None or is_request_list(keys)


def read_benchmarks(text: str) -> tuple[ServeResult, ...]:
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
        raise BenchmarkError(1, "no result of vllm bench serve in it, as JSON or printed")
    return results


def _read_client(text: str) -> tuple[ServeResult, ...]:
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


def _read_json(text: str) -> Iterator[ServeResult]:
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


def _read_object(value: object, line: int) -> ServeResult:
    if not isinstance(value, dict):
        raise BenchmarkError(line, "a result must be a JSON object")
    what = foreign_object(value.keys())
    if what:
        raise BenchmarkError(line, f"this is {what}, not of vllm bench serve")
    if not is_serve(set(value)):
        raise BenchmarkError(line, "this JSON object is no result of vllm bench serve")
    return read_serve(value, line)


def _read_printed(text: str) -> Iterator[ServeResult]:
    lines = _lines(text)
    above = index = 0
    while index < len(lines):
        if lines[index].startswith("{") and is_serve(top_level_keys(lines[index][:_HEAD])):
            raise BenchmarkError(index + 1, "JSON follows printed text, and a file must be one of them")
        if not is_title(lines[index]):
            index += 1
            continue
        result, after = read_printed_serve(lines, index, above)
        if any(_OF_SGLANG.search(text) for text in lines[index:after]):
            raise BenchmarkError(index + 1, f"this is {_SGLANG}, not of vLLM's benchmarks")
        yield result
        above = index = after


def read_lines(text: str) -> str:
    """Return what is read of a terminal's text: lines of results and of the client's arguments, nothing before them."""
    parts = (read_part(line) or "".join(_OF_SGLANG.findall(line)) for line in _lines(text))
    return "".join(f"{part}\n" for part in parts if part)


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
    (
        frozenset({"elapsed_time", "num_requests", "total_num_tokens"}),
        "a result of vllm bench throughput",
    ),
    (frozenset({"avg_latency", "latencies"}), "a result of vllm bench latency"),
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
