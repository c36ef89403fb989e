# SPDX-License-Identifier: Apache-2.0
"""What stands before the message: every form that vLLM has printed since 0.5, and text that only resembles one."""

from __future__ import annotations

import json

import pytest

from tests.parsers.lines import STATS, STATS_MESSAGE, TIME, events, json_record, old_record, record

from vllm_watch_parsers.line import NOTHING, parse_line
from vllm_watch_parsers.prefix import parse_head, rank_of, strip_ansi


FORMS = {
    "0.5 to 0.7.3: closing bracket alone": old_record(STATS_MESSAGE, "loggers.py"),
    "0.8.0 to 0.10.0: brackets, no process": record(STATS_MESSAGE),
    "0.10.1 to 0.30.0: process before the record": record(STATS_MESSAGE, process="(APIServer pid=7) "),
    "0.10.2 and later at DEBUG: path": record(STATS_MESSAGE, "v1/metrics/loggers.py"),
    "0.10.2 and later at DEBUG: shortened path": record(STATS_MESSAGE, "v1/.../metrics/loggers.py"),
    "printed at DEBUG level": record(STATS_MESSAGE, level="DEBUG"),
    "up to 0.11.2: process always coloured": record(
        STATS_MESSAGE, process="\x1b[1;36m(EngineCore_DP0 pid=9)\x1b[0;0m "
    ),
    "0.12 to 0.15: process coloured": record(STATS_MESSAGE, process="\x1b[0;36m(APIServer pid=7)\x1b[0;0m "),
    "0.12 and later with VLLM_LOGGING_COLOR: all coloured": (
        f"\x1b[0;36m(APIServer pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m{TIME}\x1b[0m "
        f"\x1b[90m[loggers.py:248]\x1b[0m {STATS_MESSAGE}"
    ).encode(),
    "0.6.5 to 0.10.0: worker with a rank": record(STATS_MESSAGE, process="(VllmWorker rank=1 pid=9) "),
    "0.10.1: worker with parallel ranks": record(STATS_MESSAGE, process="(VllmWorker PP0_TP1 pid=9) "),
    "0.11.1 and later: worker with all ranks": record(
        STATS_MESSAGE, process="(Worker_DP0_PP0_PCP0_TP0_DCP0_EP0 pid=9) "
    ),
    "0.10.1 to 0.17.1 with fork: nested": record(
        STATS_MESSAGE, process="(APIServer pid=1) (EngineCore_DP0 pid=9) (Worker_TP0 pid=12) "
    ),
    "0.22.1 and later: supervisor": record(STATS_MESSAGE, process="(DPSupervisor pid=3) "),
    "0.31 and later: before the process names itself": record(STATS_MESSAGE, process="(MainProcess pid=7) "),
    "Ray": record(STATS_MESSAGE, process="(RayWorkerWrapper pid=123) "),
    "Ray from another host": record(STATS_MESSAGE, process="(RayWorkerWrapper pid=123, ip=10.0.0.2) "),
    "Ray, coloured and repeated": (
        record(STATS_MESSAGE, process="\x1b[36m(RayWorkerWrapper pid=5, ip=10.0.0.7)\x1b[0m ")
        + b"\x1b[32m [repeated 3x across cluster]\x1b[0m"
    ),
    "carriage return at the end": record(STATS_MESSAGE) + b"\r",
    "0.32 and later: JSON": json_record(STATS_MESSAGE),
    "JSON, keys in another order": json.dumps(dict(reversed(json.loads(json_record(STATS_MESSAGE)).items()))).encode(),
    "0.10.1 to 0.30.0: JSON behind the process": b"(APIServer pid=7) " + json_record(STATS_MESSAGE),
    "JSON with the message alone": json.dumps({"message": STATS_MESSAGE}).encode(),
}


@pytest.mark.parametrize("line", FORMS.values(), ids=FORMS)
def test_every_form_of_prefix_is_read(line):
    """Statistics are the same whatever stands before them."""
    assert events(line) == (STATS,)


@pytest.mark.parametrize(
    ("line", "process", "time"),
    [
        (FORMS["0.8.0 to 0.10.0: brackets, no process"], "", TIME),
        (FORMS["0.10.1 to 0.30.0: process before the record"], "(APIServer pid=7) ", TIME),
        (FORMS["up to 0.11.2: process always coloured"], "(EngineCore_DP0 pid=9) ", TIME),
        (
            FORMS["0.10.1 to 0.17.1 with fork: nested"],
            "(APIServer pid=1) (EngineCore_DP0 pid=9) (Worker_TP0 pid=12) ",
            TIME,
        ),
        (FORMS["0.32 and later: JSON"], "(APIServer pid=6589) ", "2026-11-21 02:39:36,679"),
        (FORMS["0.10.1 to 0.30.0: JSON behind the process"], "(APIServer pid=7) ", "2026-11-21 02:39:36,679"),
        (FORMS["JSON with the message alone"], "", ""),
    ],
)
def test_process_and_time_are_as_printed(line, process, time):
    """A line's process and time are given as the line prints them, without colours."""
    parsed = parse_line(line)

    assert (parsed.process, parsed.time) == (process, time)


@pytest.mark.parametrize(
    ("process", "rank"),
    [
        ("(EngineCore_0 pid=9) ", "0"),
        ("(EngineCore_DP3 pid=9) ", "3"),
        ("(EngineCore pid=9) ", None),
        ("(APIServer pid=9) ", None),
        ("(ApiServer_2 pid=9) ", "2"),
        ("(APIServer_DP1 pid=9) ", "1"),
        ("(Worker_DP5_TP0_EP5 pid=9) ", "5"),
        ("(Worker_TP1 pid=9) ", None),
        ("(VllmWorker rank=1 pid=9) ", None),
        ("(APIServer pid=1) (EngineCore_DP1 pid=9) ", "1"),
    ],
)
def test_the_rank_is_the_data_parallel_one(process, rank):
    """Only a data-parallel rank or an API server's number is a rank; tensor ranks are not."""
    assert rank_of(process) == rank


@pytest.mark.parametrize(
    "line",
    [
        f"vllm-0 INFO {TIME} [loggers.py:300] {STATS_MESSAGE}".encode(),
        f"(APIServer pid=7) vllm-0 INFO {TIME} [loggers.py:300] {STATS_MESSAGE}".encode(),
        f"vllm-0 (APIServer pid=7) INFO {TIME} [loggers.py:300] {STATS_MESSAGE}".encode(),
        f"vllm-0 INFO {TIME} loggers.py:300] {STATS_MESSAGE}".encode(),
    ],
)
def test_an_operator_s_prefix_is_reported_with_the_line(line):
    """VLLM_LOGGING_PREFIX stands before the process or after it; the reader of lines judges whose it is."""
    parsed = parse_line(line)

    assert parsed.events == (STATS,)
    assert parsed.prefix == "vllm-0 "


def test_no_other_line_has_an_operator_s_prefix():
    """A line in one of vLLM's own forms has none."""
    assert {parse_line(line).prefix for line in FORMS.values()} == {""}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\r",
        b" ",
        b"\x1b[0m",
        b"INFO",
        b"INFO:",
        b"INFO:     ",
        b"(APIServer pid=7)",
        f"INFO {TIME} [loggers.py] {STATS_MESSAGE}".encode(),
        f"INFO {TIME} [loggers.py:x] {STATS_MESSAGE}".encode(),
        f"INFO {TIME} {STATS_MESSAGE}".encode(),
        f"INFO 11-21 [loggers.py:1] {STATS_MESSAGE}".encode(),
        f"info {TIME} [loggers.py:1] {STATS_MESSAGE}".encode(),
        STATS_MESSAGE.encode(),
        b"{",
        b"{}",
        b"{'message': 'Engine 000'}",
        b'{"message": 5}',
        b'{"message": null}',
        b'["message"]',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"message": "Engine 000: ' + b"\xff" * 10 + b'"}',
        b'{"message": ' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_record_says_nothing(line):
    """Torn heads, bare messages and what is no JSON record give nothing."""
    assert parse_line(line).events == ()


def test_json_numbers_and_lone_surrogates_are_harmless():
    """A record may hold any JSON: other types than text count as absent, lone surrogates are kept out of the way."""
    line = json_record(STATS_MESSAGE, levelname=7, processName=None, vllm_process_name=[], process="x", asctime=1.5)

    assert events(line) == (STATS,)
    assert events(b'{"message": "\\ud800 Application startup complete."}') == ()


def test_a_head_without_a_site_keeps_the_text_after_the_process():
    """Bare text of a process (a print, a traceback) is given without its process group."""
    head = parse_head(b"(APIServer pid=7) Traceback (most recent call last):")

    assert head is not None
    assert (head.process, head.site, head.message) == (
        "(APIServer pid=7) ",
        "",
        b"Traceback (most recent call last):",
    )


def test_leading_blanks_belong_to_the_message():
    """One blank follows the call site; further ones are the message's own, as in the logo."""
    head = parse_head(record("  two"))

    assert head is not None
    assert head.message == b"  two"


def test_colours_are_taken_away_and_nothing_else():
    """Colour codes go; other escape sequences stay, so that they match nothing."""
    assert strip_ansi(b"\x1b[1;36mA\x1b[0;0m \x1b[2KB\x1b]0;C") == b"A \x1b[2KB\x1b]0;C"


def test_most_lines_say_nothing_cheaply():
    """A line of no interest gives the one shared empty result."""
    assert parse_line(record("Added request cmpl-1.", "async_llm.py")) is NOTHING
