# SPDX-License-Identifier: Apache-2.0
"""The longest lines that framing lets through, made of what each pattern begins with: none is slow."""

from __future__ import annotations

import itertools

import pytest

from tests.parsers.lines import SPEC_MESSAGE, STATS_MESSAGE, TIME, json_record, record
from tests.support.samples import sample
from tests.support.waiting import computes_at_most

from vllm_watch_parsers.exposition import parse_exposition
from vllm_watch_parsers.line import UNKNOWN_RECORD, parse_line
from vllm_watch_parsers.prefix import Record, parse_prefixed_head


pytestmark = pytest.mark.slow


MAX_LINE = 64 * 1024
SECONDS = 30
"""Generous: a pattern that goes wrong takes minutes."""

SITES = ["loggers.py", "core.py", "engine.py"]
OPEN_RECORDS = [
    None,
    UNKNOWN_RECORD,
    Record(f"ERROR {TIME} [core.py:1] ".encode(), "", TIME, "", names_causes=True, is_logo=False),
    Record(f"ERROR {TIME} [core.py:1] ".encode(), "", TIME, "", names_causes=False, is_logo=True),
]

SITES_AFTER_RECORDS = sample(
    list(zip(itertools.cycle(SITES), OPEN_RECORDS, strict=False)), list(itertools.product(SITES, OPEN_RECORDS))
)
"""Call sites, and the record that was open before."""


@pytest.fixture(autouse=True)
def alarm():
    """Fail a test that takes more than `SECONDS` of processor time."""
    with computes_at_most(SECONDS):
        yield


def combined(befores: list[str], starts: list[str]) -> list[tuple[str, str]]:
    """Return what a text begins with and what is repeated in it: each in turn, or each with each."""
    return sample(list(zip(itertools.cycle(befores), starts, strict=False)), list(itertools.product(befores, starts)))


def repeated(text: str) -> str:
    """Return a text repeated to the greatest length of a line."""
    return (text * (MAX_LINE // len(text) + 1))[:MAX_LINE]


STARTS = [
    "(A pid=1) ",
    "(A ",
    "(",
    "(A pid=",
    "(A pid=1, ip=",
    "a" * 64 + "(A pid=1) ",
    "INFO ",
    f"INFO {TIME} ",
    f"INFO {TIME} [a.py:1] ",
    f"INFO {TIME} [",
    f"x INFO {TIME} [a",
    "INFO:     ",
    'INFO:     a - "',
    'INFO:     a - "GET ',
    'INFO:     a - "GET / HTTP/1.1" ',
    'INFO:     a - "GET / HTTP/1.1" 200 ',
    "INFO:     Finished server process [1",
    "[rank0]:[E1121 04:47:39.1 ProcessGroupNCCL.cpp:1] [",
    "torch.OutOfMemoryError",
    "a.Error: ",
    "a.Error('",
    "\x1b[",
    "\x1b[0m",
    "\x1b[0;",
    " [repeated 3x across cluster]",
    " [repeated ",
    "\r",
    " ",
    "{",
    '{"a":',
    '{"message": "',
    "[",
    "\\",
    "é",
    "\udcff",
]


@pytest.mark.parametrize(("before", "start"), combined(["", "(APIServer pid=7) ", 'INFO:     a - "GET '], STARTS))
def test_no_line_is_slow(start, before):
    """I5: the beginnings of heads, access lines and bare failures, repeated, are dismissed at once."""
    line = (before + repeated(start)).encode("utf-8", "surrogateescape")[:MAX_LINE]
    for open_record in OPEN_RECORDS:
        parse_line(line, open_record)
        parse_line(line + b"\r", open_record)
    parse_prefixed_head(line)


MESSAGES = [
    STATS_MESSAGE,
    SPEC_MESSAGE,
    "Engine 000: ",
    "Avg prompt throughput: ",
    "Avg prompt ",
    "Running: 1 reqs, ",
    "Running: ",
    "Running: 1",
    "Running: 1,",
    "A: 1, ",
    "A: ",
    "A A: ",
    "A",
    "1,",
    "1.1",
    "KV fetch: 1 waiting to start, 1 in progress, ",
    "Prefix cache hit rate: GPU: 1",
    "SpecDecoding metrics: ",
    "SpecDecoding metrics: A: 1, ",
    "Per-position acceptance rate: 0.1, ",
    "Per-position acceptance rate: ",
    "0.1, ",
    "nan, ",
    "Speculative metrics: ",
    "args: ",
    "args: Namespace(a=",
    "args: Namespace(a='",
    "args: Namespace(a='\\'",
    "\\'",
    "'\\",
    '\\"',
    "'",
    "'\"",
    "[",
    "[{(<",
    "a=[],",
    "non-default args: {'a': ",
    "non-default args: {'speculative_config': 'num_spec_tokens",
    "num_spec_tokens=1",
    "Initializing a V1 LLM engine (v0.1) with config: a=",
    "Initializing a V1 LLM engine (v0.1",
    "vLLM API server version 0.1",
    "vLLM server version 0.1, serving model ",
    "Using max model len 1",
    "Starting to load model ",
    "Starting to load model a...",
    "...",
    "Loading weights took 1",
    "Model loading took 1,",
    "# GPU blocks: 1",
    "GPU KV cache size: 1,",
    "GPU + host ",
    " KV cache size: ",
    "Maximum concurrency for 1,",
    "Engine 1: vllm cache_config_info ",
    "Auto-fit max_model_len: reduced from 1",
    "init engine (profile, create kv cache, warmup model) took 1 s (compilation: ",
    "Worker a",
    "Worker proc ",
    "Engine core proc ",
    "Request a",
    "No available shared memory broadcast block found in 1",
    "ValueError: Free memory on device 1",
    "a.Error: NCCL ",
    "TimeoutError: RPC call to a",
    " ▀",
    " ▀▀▀▀█ version ",
    "█",
]


@pytest.mark.parametrize(
    ("before", "start"),
    combined(["", "Avg prompt ", "SpecDecoding metrics: ", "args: Namespace(", "args: {'a': '", 'args: "'], MESSAGES),
)
def test_no_message_is_slow(start, before):
    """I5: the beginnings of all messages, repeated, are judged at once, from every kind of call site."""
    message = before + repeated(start)
    for site, open_record in SITES_AFTER_RECORDS:
        parse_line(record(message, site, "ERROR")[:MAX_LINE], open_record)
    parse_line(json_record(message, name="vllm.a.metrics")[:MAX_LINE])
    parse_line(json_record(message, levelname="ERROR", name="vllm.a.core", exc_info=message))


SERIES = [
    "a",
    "a{",
    'a{b="',
    'a{b="c",',
    'a{b="c"',
    'a{b="\\"',
    'a{b="\\',
    '"',
    '"{',
    "{}",
    "a{} ",
    "a 1 ",
    "a 1e",
    "a 1 1 # ",
    " ",
    "\t",
    "1.",
    "# ",
]


@pytest.mark.parametrize(("before", "start"), combined(["", "a", 'a{b="', "a{", "a 1 # "], SERIES))
def test_no_page_is_slow(start, before):
    """I5: the beginnings of samples, repeated in one line and in very many, are read or refused at once."""
    line = before + repeated(start)
    for body in (line[: 16 * 1024], line, f"{line[:1000]}\n" * 1000, "\n" * 100_000, f"{start}\n" * 100_000):
        parse_exposition(f"{body}\n".encode(), {"a"})
