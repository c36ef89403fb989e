# SPDX-License-Identifier: Apache-2.0
"""Pages that grow for ever: label sets that nobody wants, by the ten thousand, cost little; all that is read ends."""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from tests.fuzz.runs import read_corpus
from tests.support.pages import label_sets, page
from tests.support.recordings import bodies_of

from vllm_watch_parsers.exposition import (
    MAX_FOREIGN_NAMES,
    MAX_LINE,
    MAX_LINES,
    ExpositionParser,
    parse_exposition,
)
from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.metric_names import LORA_MOST, lora_unknown
from vllm_watch_parsers.scrape import MetricsReading, read_metrics


PAGE = page(running=3).encode()


def values(body):
    """Return the values of a page's wanted samples."""
    return [value for series in parse_exposition(body, WANTED).series.values() for value in series.values()]


def steps(body):
    """Return how many functions are called to read a page."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event in {"call", "c_call"}

    read_metrics(body)  # What is remembered from page to page is remembered now.
    sys.setprofile(note)
    try:
        read_metrics(body)
    finally:
        sys.setprofile(None)
    return count


def test_label_sets_that_nobody_wants_are_not_taken_apart():
    """Of LoRA label sets by the ten thousand each takes a few steps, and none is kept but the newest."""
    assert steps(PAGE + label_sets(10_000)) - steps(PAGE) < 10_000 * 12


def test_wild_bodies_take_hardly_more_steps_than_two_ordinary_pages():
    """What the fuzzer has kept, and torn pages: none is looked at for long."""
    recorded = bodies_of("day")
    ordinary = recorded[len(recorded) // 2]
    wild = list(read_corpus("exposition").values())
    wild += [ordinary[at:] + ordinary[:at] for at in range(0, len(ordinary), len(ordinary) // 60)]
    most = 2.4 * steps(ordinary)

    assert [number for number, body in enumerate(wild) if steps(body) > most] == []


def test_what_is_read_stays_the_same():
    """The wanted samples of a grown page are those of the page, wherever the label sets stand."""
    expected = read_metrics(PAGE)

    assert isinstance(expected, MetricsReading)
    expected = expected._replace(server_values={LORA_MOST: 8.0, lora_unknown("several_processes"): 1.0})
    assert read_metrics(PAGE + label_sets(3000)) == expected
    assert read_metrics(label_sets(3000) + PAGE) == expected


def test_label_sets_between_wanted_lines_hide_none():
    """A wanted line in the midst of thousands of others is read."""
    body = label_sets(3000) + b"vllm:num_requests_running 3\n" + label_sets(3000) + b"vllm:num_requests_waiting 4\n"

    assert values(body) == [3, 4]


@pytest.mark.parametrize("name", [b"vllm:num_requests", b"vllm:prompt_tokens_created", b"v", b"http_requests_to"])
def test_a_name_that_another_begins_with_hides_none(name):
    """Names that nobody wants may be the beginning of one that is read."""
    body = name + b'{a="b"} 1\n' + name + b"_total 2\nvllm:num_requests_running 3\nhttp_requests_total 4\n"

    assert values(body) == [3, 4]


@pytest.mark.parametrize("size", [7, 1000, 3 * MAX_LINE])
def test_it_does_not_matter_in_which_pieces_a_page_comes(size):
    """A page is the same in pieces of any size, over-long lines and all."""
    long = b'vllm:lora_requests_info{waiting_lora_adapters="' + b"x" * 2 * MAX_LINE + b'"} 1\n'
    body = label_sets(200) + long + PAGE + long + label_sets(200) + b"# " + b"y" * 2 * MAX_LINE + b"\n# EOF\n"
    whole = parse_exposition(body, WANTED)

    reader = ExpositionParser(WANTED)
    for start in range(0, len(body), size):
        reader.feed(body[start : start + size])
    found = reader.finish()
    assert found == whole
    assert (whole.problem, whole.long_lines, whole.is_openmetrics) == (None, 2, True)


def test_a_line_without_end_is_incomplete():
    """A page that stops inside an over-long line is cut off."""
    assert parse_exposition(PAGE + b"vllm:x{" + b"y" * 2 * MAX_LINE, WANTED).problem == "incomplete"


def test_a_page_is_never_held_whole():
    """Fed in pieces, a page of tens of megabytes takes next to no memory."""
    piece = label_sets(2000)
    reader = ExpositionParser(WANTED)
    tracemalloc.start()
    for _ in range(40):
        reader.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert reader.finish().problem is None
    assert 40 * len(piece) > 12_000_000
    assert peak < 5 * len(piece)


def test_wanted_lines_have_an_end_together():
    """Long lines of wanted names are no page before their number is too high: what is read of a page is bounded."""
    line = b'vllm:num_requests_running{engine="0",x="' + b"y" * 10_000 + b'"} 1\n'

    assert parse_exposition(line * 400, WANTED).problem is None
    assert parse_exposition(line * 500, WANTED).problem == "too_many_samples"


def test_other_names_have_an_end():
    """Label sets may grow for ever, the number of names may not."""
    lines = [b"vllm:x%d_y 1\n" % number for number in range(MAX_FOREIGN_NAMES + 1)]

    assert parse_exposition(b"".join(lines[:-1]), WANTED).problem is None
    assert parse_exposition(b"".join(lines), WANTED).problem == "too_many_samples"


@pytest.mark.parametrize("line", [b"\n", b"# HELP a text\n", b"\r\n"])
def test_lines_that_say_nothing_are_limited(line):
    """A page of empty lines or comments is read up to a limit."""
    assert parse_exposition(line * MAX_LINES, WANTED).problem is None
    assert parse_exposition(line * (MAX_LINES + 1), WANTED).problem == "too_many_samples"


def test_ordinary_comments_are_far_from_the_limit():
    """A page with a hundred times the comments of any server is read."""
    assert isinstance(read_metrics(b"# HELP a text\n" * 50_000 + PAGE), MetricsReading)
