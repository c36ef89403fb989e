# SPDX-License-Identifier: Apache-2.0
"""How many LoRA adapters have requests: the newest series counts, and no name is kept."""

from __future__ import annotations

import re

import pytest

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.utils import floatToGoString
from tests.support.pages import page, started

from vllm_watch_parsers.exposition import MAX_LINE, ExpositionParser
from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.lora import LORA_UNKNOWN, MAX_TIME, LoraRequests
from vllm_watch_parsers.metric_names import LORA_ACTIVE, LORA_MOST, lora_unknown
from vllm_watch_parsers.scrape import read_metrics


V0_PAGE = 'vllm:num_requests_swapped{model_name="m"} 0\nvllm:num_requests_running{model_name="m"} 1\n'


def lora(running, at="1795270706.8451734", most="2", waiting=None):
    """Return one series as vLLM prints it."""
    waiting = running if waiting is None else waiting
    labels = f'max_lora="{most}",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
    return f"vllm:lora_requests_info{{{labels}}} {at}\n"


def scanned(*lines, size=10**9):
    """Return what is found in lines that come in pieces of a size."""
    parser, body = ExpositionParser(WANTED), "".join(lines).encode()
    for at in range(0, len(body), size):
        parser.feed(body[at : at + size])
    found = parser.finish()
    assert found.problem is None
    return found.lora


def numbers(body):
    """Return the active and the greatest number of adapters on a page."""
    values = read_metrics(body.encode()).server_values
    return values.get(LORA_ACTIVE), values.get(LORA_MOST)


TIMES = st.sampled_from([0.25, 1795.5, 1e9, 1795270706.5, 1795270706.8451734, 1795270706.8451736, 1795270716.25, 2e10])
WRITTEN = st.one_of(TIMES.map(floatToGoString), TIMES.map(repr), st.sampled_from(["NaN", "-1", "1_0", "1.5 7", ""]))
LINES = st.one_of(
    st.tuples(st.sampled_from(["a", "a,b", "a,b,c", "x} 1.9e+09", ""]), TIMES).map(
        lambda drawn: lora(drawn[0], floatToGoString(drawn[1]))
    ),
    st.tuples(st.sampled_from(["a", "a,b"]), WRITTEN).map(lambda drawn: lora(*drawn)),
    TIMES.map(lambda at: f'vllm:other{{x="vllm:lora_requests_info{{"}} {at}\n'),
    st.sampled_from(["# HELP vllm:lora_requests_info{a} 3e+09\n", "\n"]),
)


def plainly(text):
    """Return what the newest series says, looked at line by line."""
    pattern = r'vllm:lora_requests_info\{.*running_lora_adapters="(.*)",waiting.*\} (\d+(?:\.\d+)?(?:e\+\d+)?)\r?'
    found = [match for match in (re.fullmatch(pattern, line) for line in text.split("\n")) if match is not None]
    newest = max(found, key=lambda match: float(match[2]), default=None)
    if newest is None:
        return None
    if float(newest[2]) > MAX_TIME:
        return LoraRequests(None, 2, "several_processes")
    return LoraRequests(len([name for name in newest[1].split(",") if name]), 2)


@example([lora("a,b,c", 1795.5), "# HELP x y\n", lora("a,b", "1.79552e+03"), lora("", 1795.49)], "\n", 7)
@example([lora("a,b,c", 1795.5), lora("a,b", "1.7955e+03"), lora("d", 1700)], "\n", 100)
@example([lora("a", "1.795e+09"), lora("a,b", "1796000000.5"), lora("c", "1.7950001e+09")], "\r\n", 10**9)
@example([lora("c", "1.7950001e+09"), lora("a,b", "1796000001"), lora("a", "1.795e+09")], "\n", 1)
@example([lora("a,b", 10), lora("b,a", 11)], "\n", 10**9)
@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n"]), st.sampled_from([1, 50, 400, 10**9]))
def test_it_is_what_a_plain_reading_finds(lines, end, size):
    """Whatever lines come in whatever form and pieces: the newest, and of several the first, is found."""
    # Of a family the first line is a sample.
    text = "".join([lora("", 0.125), *lines]).replace("\n", end)

    assert scanned(text, size=size) == plainly(text)


def test_an_idle_server_has_no_active_adapter():
    """The newest list is empty once the last request has ended."""
    assert scanned(lora("a,b", 10.5), lora("", 11.25)) == LoraRequests(0, 2)


def test_the_waiting_label_of_v0_is_not_added():
    """V0's two labels are true: those that only wait do not have a place in the batch."""
    assert scanned(lora("a", waiting="b,c")) == LoraRequests(1, 2)


@pytest.mark.parametrize("name", ['x\\"} 9999999999', "x} 9999999999", 'max_lora=\\"7', "\u6cd5\u5f8b"])
def test_names_may_be_anything(name):
    """What users call an adapter is no value, no label and no other series."""
    assert scanned(lora(f"{name}", 11), lora("a,b", 10)) == LoraRequests(1, 2)


def test_without_a_limit_there_is_none():
    """The Rust front end does not print it."""
    assert scanned(lora("a").replace('max_lora="2",', "")) == LoraRequests(1, None)


def test_a_server_without_lora_has_neither_number():
    """V0 prints the family with a limit of 0 where LoRA is off."""
    assert scanned(lora("", most="0")) == LoraRequests(None, None)
    assert numbers(V0_PAGE + lora("", most="0")) == (None, None)


def test_a_line_that_is_too_long_makes_the_number_unknown():
    """A line that is not held may be the newest; the limit is that of the others."""
    long = lora("x" * (2 * MAX_LINE), 5)

    assert scanned(lora("a", 10), long, lora("b", 11), size=5000) == LoraRequests(None, 2, "long_line")


def test_all_lists_are_read():
    """However many there are: any of them may be the newest."""
    assert scanned(lora("a", 12), *[lora("a,b", 11)] * 20_000, size=5000) == LoraRequests(1, 2)


def test_a_page_without_the_family_has_no_numbers():
    """Nothing is made up."""
    assert scanned(page()) is None
    assert numbers(page()) == (None, None)


def test_one_process_with_one_engine_is_believed():
    """V1 in one process has the time of its start; V0's engine prints for itself; the Rust front end is OpenMetrics."""
    assert numbers(page() + started(1000.0) + lora("a,b")) == (2, 2)
    assert numbers(V0_PAGE + lora("a,b")) == (2, 2)
    assert numbers(page() + lora("a,b") + "# EOF\n") == (2, 2)


def test_several_processes_or_engines_are_not():
    """Processes add up their times, and engines write over each other's: then nobody knows who is active."""
    two_engines = page() + page().replace('engine="0"', 'engine="1"') + started(1000.0) + lora("a")

    assert numbers(page() + lora("a")) == (None, 2)
    assert numbers(page() + started(1000.0) + lora("a", "3590541413.69")) == (None, 2)
    assert numbers(two_engines) == (None, 2)


def reasons(body):
    """Return why a page does not tell how many adapters are active."""
    values = read_metrics(body.encode()).server_values
    return [reason for reason in LORA_UNKNOWN if values.get(lora_unknown(reason)) == 1]


def test_where_the_number_is_unknown_the_reason_is_there():
    """There is the number or one reason; without LoRA there is neither."""
    second = page().replace('engine="0"', 'engine="1"')
    known = page() + started(1000.0)

    assert reasons(known + lora("a")) == []
    assert reasons(known + lora("", most="0")) == reasons(page() + lora("", most="0")) == reasons(known) == []
    assert reasons(page() + lora("a")) == reasons(known + lora("a", "3590541413.69")) == ["several_processes"]
    assert reasons(known + second + lora("a")) == reasons(page() + second + lora("a")) == ["several_engines"]
    assert reasons(known + lora("a") + lora("x" * MAX_LINE)) == ["long_line"]
    assert reasons(known + lora("a").replace("running_", "r_")) == ["not_listed"]


def test_no_name_is_in_a_reading():
    """What leaves the parser has numbers only."""
    secret = "customer-4711"
    reading = read_metrics((page() + started(1000.0) + lora(f"a,{secret}")).encode())

    assert reading.server_values[LORA_ACTIVE] == 2
    assert secret not in repr(reading)
