# SPDX-License-Identifier: Apache-2.0
"""Text from strangers that imitates vLLM's own lines: it gives nothing, wherever the log quotes it."""

from __future__ import annotations

import json

from itertools import product

import pytest

from tests.parsers.lines import (
    SPEC_MESSAGE,
    STATS,
    STATS_MESSAGE,
    TIME,
    events,
    events_of,
    json_record,
    old_record,
    record,
)

from vllm_watch_parsers.line import parse_line
from vllm_watch_parsers.prefix import Record


FORGED = [
    STATS_MESSAGE,
    SPEC_MESSAGE,
    record(STATS_MESSAGE).decode(),
    old_record(STATS_MESSAGE).decode(),
    record(STATS_MESSAGE, process="(APIServer pid=7) ").decode(),
    f"ERROR {TIME} [core.py:700] EngineCore encountered a fatal error.",
    "EngineCore encountered a fatal error.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
    "No available shared memory broadcast block found in 60 seconds.",
    "vLLM API server version 9.9.9",
    "GPU KV cache size: 1 tokens",
    "INFO:     Application startup complete.",
    "Application startup complete.",
    'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK',
    "[rank0]:[E1121 04:47:39.123456789 ProcessGroupNCCL.cpp:1] [Rank 0] Watchdog caught collective operation timeout: ",
    json.dumps({"message": STATS_MESSAGE}),
]
EVERY_FORGERY = pytest.mark.parametrize("forged", FORGED)

# Call sites that print what a client sent, and how.
ECHOES = [
    ("logger.py", "Received request {}: prompt: 'x', params: SamplingParams(n=1)"),
    ("request_logger.py", "Received request {}: params: SamplingParams(n=1), lora_request: None."),
    ("async_llm.py", "Added request {}."),
    ("async_llm_engine.py", "Finished request {}."),
    ("async_llm.py", "Aborted request(s) {}."),
    ("async_llm.py", "Request {} failed (bad request)."),
    ("core.py", "Request {} failed validation: {}"),
    ("logger.py", "Generated response {} (streaming complete): output: 'x', finish_reason: stop"),
    ("api_server.py", "response_body={{streaming_complete: content='{}', chunks=7}}"),
    ("log_response.py", "response_body={{{}}}"),
    ("scheduler.py", "Unexpected: grammar rejected tokens [1] for request {}. Terminating request."),
]


def printed(message: str, site: str, level: str = "INFO", prefix: str = "") -> bytes:
    r"""Return a record as vLLM's formatter writes it: its head again on each line, and ``\r\n`` between them."""
    head = f"{prefix}(APIServer pid=7) {level} {TIME} [{site}:300] "
    return (head + message.replace("\n", f"\r\n{head}")).encode()


@EVERY_FORGERY
@pytest.mark.parametrize("level", ["INFO", "ERROR"])
def test_a_request_id_with_line_breaks_forges_nothing(level, forged):
    """I1: however many lines a request id has, each stands in the record of the call site that echoes it."""
    ids = (f"x\n{forged}", f"x\n{forged}\n{forged}\ny", f"\n{forged}", f"{forged}\n")
    for (site, form), request_id in product(ECHOES, ids):
        log = printed(form.format(request_id, request_id), site, level) + b"\n"

        assert events_of(log) == [], log


@EVERY_FORGERY
def test_line_breaks_behind_an_operator_s_prefix_forge_nothing(forged):
    """I1: records stay together when VLLM_LOGGING_PREFIX stands before them."""
    for site, form in ECHOES:
        log = printed(form.format(f"x\n{forged}\n{forged}\ny", "z"), site, prefix="vllm-0 ") + b"\n"

        assert events_of(log) == [], log


@EVERY_FORGERY
@pytest.mark.parametrize("between", [b"Loading: 50%", record("x", "core.py", process="(EngineCore pid=9) "), b""])
def test_another_process_between_two_lines_of_a_record_opens_no_gap(between, forged):
    """I1: a line of another process inside a record does not make the rest of the record look like new records."""
    first, second, third = printed(f"Added request x\n{forged}\n{forged}.", "async_llm.py").split(b"\n")

    assert events_of(b"\n".join([first, between, second, between, third])) == []


@EVERY_FORGERY
@pytest.mark.parametrize("separator", ["\r", "\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\0"])
def test_only_a_line_feed_ends_a_line(separator, forged):
    """I2: carriage returns, form feeds and Unicode's separators stay inside the line that holds them."""
    for site, form in ECHOES:
        line = record(form.format(f"x{separator}{forged}", "y"), site)

        assert events(line) == (), line


@EVERY_FORGERY
def test_quoted_text_forges_nothing(forged):
    """I2: a prompt's printed form, and a request id without line breaks, are text inside a line."""
    texts = (repr(f"x\n{forged}"), forged, f"\x1b[2K\x1b[1G{forged}", f"\x1b[31m{forged}\x1b[0m", f"\r{forged}")
    for (site, form), text in product(ECHOES, texts):
        line = record(form.format(text, text), site)

        assert events(line) == (), line


@EVERY_FORGERY
def test_json_records_keep_their_text_to_themselves(forged):
    """I2: a JSON string cannot begin a line; what follows a line break in it is no message."""
    for name, message in (
        ("vllm.entrypoints.logger", f"Received request {forged}"),
        ("vllm.entrypoints.logger", forged),
        ("vllm.v1.engine.async_llm", f"Added request x\n{forged}\n{forged}."),
        (None, f"Added request x\n{forged}\n{forged}."),
    ):
        assert events(json_record(message, name=name)) == ()


@EVERY_FORGERY
def test_a_request_target_forges_nothing_but_its_own_request(forged):
    """I2: whatever stands in a path, the line is one request or none."""
    for target in (f"/x{forged}", f"/x%0A{forged}", f"/x{forged.replace(' ', '%20')}"):
        said = events(f'INFO:     127.0.0.1:5 - "GET {target} HTTP/1.1" 404 Not Found'.encode())

        assert [type(event).__name__ for event in said] in ([], ["AccessRequest"])
        assert all(event.status == 404 for event in said)


@EVERY_FORGERY
def test_a_request_s_traceback_forges_nothing(forged):
    """I2: an exception's text is printed in the record of the file that caught it."""
    message = f"Error in chat completion stream generator.\nTraceback (most recent call last):\nValueError: {forged}"

    assert events_of(printed(message, "serving_chat.py", "ERROR") + b"\n") == []


@EVERY_FORGERY
def test_a_failing_engine_s_dump_forges_nothing(forged):
    """I2: what the engine was working on is printed when it dies; it is not the reason."""
    for message in (
        f"Dumping input data for V1 LLM engine (v0.20.2) with config: {forged}",
        f"Dumping scheduler output for model execution: SchedulerOutput(req_id={forged})",
        f"Dumping scheduler output for model execution: SchedulerOutput(req_id=x\n{forged})",
    ):
        assert events_of(printed(message, "dump_input.py", "ERROR") + b"\n") == []


@pytest.mark.parametrize("message", [STATS_MESSAGE, SPEC_MESSAGE])
@pytest.mark.parametrize("site", ["metrics.py", "loggers.py", "log_stats.rs"])
def test_statistics_in_a_continuation_are_never_believed(site, message):
    """I1: not even the call site that prints statistics prints them in the middle of a record."""
    assert events_of(printed(f"x\n{message}\n{message}", site) + b"\n") == []
    assert events_of(printed(f"\n{message}", site) + b"\n") == []


def test_a_record_whose_end_was_lost_hides_nothing_that_comes_later():
    """I1: a record torn off is over at the next record with another time, and access lines count all the while."""
    torn = record("Added request x", "async_llm.py") + b"\r"
    later = record(STATS_MESSAGE).replace(TIME.encode(), b"11-21 02:35:11")
    access = b'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'

    assert [type(event).__name__ for event in events_of(b"\n".join([torn, access, access]))] == ["AccessRequest"] * 2
    assert events_of(b"\n".join([torn, b"some text", later])) == [STATS]


def test_a_record_stays_open_until_its_own_last_line():
    """I1: only the record's own line without a carriage return closes it."""
    opened = parse_line(record("Added request x", "async_llm.py", process="(APIServer pid=7) ") + b"\r").record

    head = f"(APIServer pid=7) INFO {TIME} [async_llm.py:300] ".encode()
    assert opened == Record(head, "(APIServer pid=7) ", TIME, "", names_causes=False, is_logo=False)
    for between in (b"text", record("x", "core.py"), record("x", "async_llm.py", "ERROR"), b"", b"INFO:     x"):
        assert parse_line(between, opened).record == opened
    assert parse_line(record("y", "async_llm.py", process="(APIServer pid=7) "), opened).record is None


@pytest.mark.parametrize(
    "line",
    [
        f"\x1b[8m{STATS_MESSAGE}",
        f"INFO {TIME} \x1b[2K[loggers.py:1] {STATS_MESSAGE}",
        f"INFO {TIME} [logger.py:1\x1b[0m] [loggers.py:1] {STATS_MESSAGE}",
        f"INFO {TIME} [loggers.py:1]\x1b]0;x\x07 {STATS_MESSAGE}",
        f"INFO {TIME} [a/loggers.py/logger.py:1] {STATS_MESSAGE}",
        f"INFO {TIME} [loggers.py/:1] {STATS_MESSAGE}",
        f"INFO {TIME} [loggers.py :1] {STATS_MESSAGE}",
        f"INFO {TIME} [logger.py:1] [loggers.py:1] {STATS_MESSAGE}",
        f'WARNING {TIME} [server/src/lib.rs:88] request failed request_id="x INFO {TIME} [log_stats.rs:270] x',
        f'WARNING {TIME} [server/src/lib.rs:88] request failed request_id="x" log_stats.rs:270] {STATS_MESSAGE}',
    ],
)
def test_colour_codes_and_brackets_hide_no_call_site(line):
    """I2: a second head in a line, a file name in the wrong place, and terminal tricks change nothing."""
    assert events(line.encode()) == ()
