# SPDX-License-Identifier: Apache-2.0
"""The quick way for the usual form of statistics gives what the general one gives, or leaves the line to it."""

from __future__ import annotations

import re

import pytest

from hypothesis import given
from hypothesis import strategies as st
from tests.parsers.lines import SPEC_MESSAGE, STATS_MESSAGE, record
from tests.parsers.releases import RELEASES, log_lines

from vllm_watch_parsers import engine_stats, spec_decode
from vllm_watch_parsers.line import NOTHING, parse_line


LINES = [
    record(STATS_MESSAGE, process="(APIServer pid=7) "),
    record(STATS_MESSAGE.replace("8 reqs, ", "8 reqs, Deferred: 3 reqs, "), "v1/metrics/loggers.py"),
    record(f"{STATS_MESSAGE}, External prefix cache hit rate: 1.0%, MM cache hit rate: 2.0%"),
    record(SPEC_MESSAGE, "metrics.py", process="(EngineCore_DP0 pid=7) "),
]
NEVER = re.compile(r"(?!)")
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_NUMBERS = st.one_of(
    st.sampled_from([b"nan", b"-1", b"1e3", b"100.0", b"100.1", b"0.0", b"1.000", b"12,345", b"", b"1_0", b"10000000"]),
    st.from_regex(rb"[0-9]{1,9}(\.[0-9]{1,4})?", fullmatch=True),
)


def same(line: bytes) -> bool:
    """Return whether a line has the usual form; raise AssertionError if it is then read otherwise than by its names."""
    forms = [engine_stats._USUAL, spec_decode._USUAL]
    message = line.decode("latin-1").partition("] ")[2]
    found = parse_line(line)
    with pytest.MonkeyPatch.context() as patch:
        for module in (engine_stats, spec_decode):
            patch.setattr(module, "_USUAL", NEVER)
        by_names = parse_line(line)
    assert found == by_names
    assert [list(map(type, event)) for event in found.events] == [list(map(type, event)) for event in by_names.events]
    return any(form.match(message) for form in forms)


@pytest.mark.parametrize("line", LINES)
def test_the_usual_form_is_parsed_at_once(line):
    """With and without a process, what is deferred, and the other caches."""
    assert same(line)


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_is_read_the_same(release):
    """Each line of each release's log that has the usual form gives the same either way."""
    usual = sum(same(line) for line in log_lines(release))

    assert usual > 10 or release != "0.33.0"


@given(st.sampled_from(LINES), st.data())
def test_any_number_is_read_the_same(line, data):
    """Whatever stands where a number is, the quick way agrees with the general one or leaves the line to it."""
    at = data.draw(st.sampled_from([found.span() for found in _NUMBER.finditer(line)]))
    same(line[: at[0]] + data.draw(_NUMBERS) + line[at[1] :])


@given(st.sampled_from(LINES), st.integers(0, 400), st.binary(max_size=4))
def test_any_bytes_are_read_the_same(line, at, inserted):
    """A line with any bytes inside, or cut, is no exception."""
    same(line[:at] + inserted + line[at:])
    same(line[:at] + inserted)


REQUESTS = [
    record("Received request cmpl-1: prompt: 'x'", "request_logger.py", process="(APIServer pid=7) "),
    record("Received request cmpl-1: prompt: 'x'", "logger.py"),
    record("Added request cmpl-1.", "v1/engine/async_llm.py"),
    b"INFO 11-21 02:35:10 logger.py:36] Received request cmpl-1: prompt: 'Engine 000: ', params: x",
    b"INFO 11-21 02:35:10 async_llm_engine.py:211] Added request cmpl-1.",
]


@pytest.mark.parametrize("line", REQUESTS)
def test_records_of_requests_are_known_by_their_start(line):
    """They are dropped unread, for they have no event."""
    assert parse_line(line) is NOTHING


@given(st.sampled_from(REQUESTS), st.text(max_size=80))
def test_no_record_of_a_request_has_an_event(start, text):
    """Whatever a client sends in its request."""
    line = start + text.replace("\n", "").replace("\r", "").encode("utf-8", "backslashreplace")
    parsed = parse_line(line)

    assert ((), None, False) == (parsed.events, parsed.record, parsed.is_rejected)
