# SPDX-License-Identifier: Apache-2.0
"""How many LoRA adapters have requests: the newest series counts, and no name is kept."""

from __future__ import annotations

import pytest

from tests.support.pages import page, started

from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.lora import MAX_LORA_LINE, LoraRequests, LoraScan
from vllm_watch_parsers.repeated_bodies import RepeatedBodies
from vllm_watch_parsers.scrape import read_metrics, reading_of
from vllm_watch_parsers.server_families import LORA_ACTIVE, LORA_MOST


V0_PAGE = 'vllm:num_requests_swapped{model_name="m"} 0\nvllm:num_requests_running{model_name="m"} 1\n'


def lora(running, at="1795270706.8451734", most="2", waiting=None):
    """Return one series as vLLM prints it."""
    waiting = running if waiting is None else waiting
    labels = f'max_lora="{most}",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
    return f"vllm:lora_requests_info{{{labels}}} {at}\n"


def scanned(*lines, size=10**9):
    """Return what is found in lines that come in pieces of a size."""
    scan, body = LoraScan(), "".join(lines).encode()
    for at in range(0, len(body), size):
        scan.feed(body[at : at + size])
    return scan.finish()


def numbers(body):
    """Return the active and the greatest number of adapters on a page."""
    values = read_metrics(body.encode()).server_values
    return values.get(LORA_ACTIVE), values.get(LORA_MOST)


@pytest.mark.parametrize("size", [1, 7, 100, 10**9])
def test_the_newest_series_counts(size):
    """A series says when it was last true: of all the lists that there ever were only one is the present."""
    lines = (lora("a,b,c", 1795.5), "# HELP x y\n", lora("a,b", "1.79552e+03"), lora("", 1795.49), lora("d", 1700))

    assert scanned(*lines, size=size) == LoraRequests(2, 2)


@pytest.mark.parametrize("size", [1, 7, 100, 10**9])
def test_of_one_time_the_first_series_counts(size):
    """In whatever pieces a page comes, the number is the same."""
    assert scanned(lora("a,b,c", 1795.5), lora("a,b", "1.7955e+03"), size=size) == LoraRequests(3, 2)


def test_an_idle_server_has_no_active_adapter():
    """The newest list is empty once the last request has ended."""
    assert scanned(lora("a,b", 10.5), lora("", 11.25)) == LoraRequests(0, 2)


def test_order_makes_another_series_and_the_same_number():
    """`a,b` and `b,a` are two series; both are of two adapters."""
    assert scanned(lora("a,b", 10), lora("b,a", 11)) == scanned(lora("b,a", 10), lora("a,b", 11)) == LoraRequests(2, 2)


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
    long = lora("x" * (2 * MAX_LORA_LINE), 5)

    assert scanned(lora("a", 10), long, lora("b", 11), size=5000) == LoraRequests(None, 2)
    assert scanned("other" * MAX_LORA_LINE, "\n", lora("a", 10), size=5000) == LoraRequests(1, 2)


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


def test_a_body_that_comes_again_is_read_anew():
    """Of bodies with the same series only values are parsed: the newest of these is found among them."""
    bodies = RepeatedBodies(WANTED)
    found = []
    for times in ((10, 20), (30, 20), (30, 40)):
        text = page() + started(1000.0) + lora("a", times[0]) + lora("a,b", times[1])
        bodies.start()
        for line in text.splitlines(keepends=True):
            bodies.feed(line.encode())
        found.append(reading_of(bodies.finish()).server_values.get(LORA_ACTIVE))

    assert found == [2, 1, 2]


def test_no_name_is_in_a_reading():
    """What leaves the parser has numbers only."""
    secret = "customer-4711"
    reading = read_metrics((page() + started(1000.0) + lora(f"a,{secret}")).encode())

    assert reading.server_values[LORA_ACTIVE] == 2
    assert secret not in repr(reading)
