# SPDX-License-Identifier: Apache-2.0
"""Pages that grow for ever: label sets that nobody wants, by the ten thousand, cost little; all that is read ends."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from tests.fuzz.runs import read_corpus
from tests.support.pages import label_sets, page
from tests.support.recordings import bodies_of

from vllm_watch_parsers.exposition import (
    BLOCK,
    MAX_FOREIGN_NAMES,
    MAX_LINE,
    MAX_LINES,
    ExpositionParser,
    parse_exposition,
)
from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.lora import MAX_LORA_BYTES
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


def bytes_gone_through(body):
    """Return of how many bytes the lines are counted or taken apart to read a page."""
    count = 0

    def note(_frame, event, argument):
        nonlocal count
        if event == "c_call" and argument.__name__ in {"count", "split"}:
            count += len(argument.__self__)

    read_metrics(body)
    sys.setprofile(note)
    try:
        read_metrics(body)
    finally:
        sys.setprofile(None)
    return count


def test_label_sets_behind_their_type_are_passed_over_unseen():
    """Of label sets by the ten thousand no line is even counted, but in the blocks where they begin and end."""
    grown = PAGE + label_sets(40_000) + b"# TYPE vllm:num_requests_swapped gauge\nvllm:num_requests_swapped 0\n"

    assert len(grown) > 80 * BLOCK
    assert bytes_gone_through(grown) - bytes_gone_through(PAGE) < 6 * BLOCK


@pytest.mark.parametrize("sets", [10_000, 40_000])
def test_label_sets_that_nobody_wants_are_not_looked_at_one_by_one(sets):
    """Reading a page with tens of thousands of LoRA label sets takes hardly more steps than reading it without."""
    grown = PAGE + label_sets(sets)

    assert steps(grown) - steps(PAGE) < 2000 + 20 * len(grown) / BLOCK


def test_wild_bodies_take_hardly_more_steps_than_two_ordinary_pages():
    """What the fuzzer has kept, torn pages, and label sets by the ten thousand: none is looked at for long."""
    recorded = bodies_of("day")
    ordinary = recorded[len(recorded) // 2]
    wild = list(read_corpus("exposition").values())
    wild += [ordinary[at:] + ordinary[:at] for at in range(0, len(ordinary), len(ordinary) // 60)]
    wild += [ordinary + label_sets(10_000 * times) for times in (1, 2, 4)]
    most = 2.4 * steps(ordinary)

    assert [number for number, body in enumerate(wild) if steps(body) > most] == []


def test_what_is_read_stays_the_same():
    """The wanted samples of a grown page are those of the page, wherever the label sets stand."""
    expected = read_metrics(PAGE)

    assert isinstance(expected, MetricsReading)
    expected = expected._replace(server_values={LORA_MOST: 8.0, lora_unknown("several_processes"): 1.0})
    assert read_metrics(PAGE + label_sets(30_000)) == expected
    assert read_metrics(label_sets(30_000) + PAGE) == expected


def test_label_sets_between_wanted_lines_hide_none():
    """A wanted line in the midst of thousands of others is read."""
    body = label_sets(3000) + b"vllm:num_requests_running 3\n" + label_sets(3000) + b"vllm:num_requests_waiting 4\n"

    assert values(body) == [3, 4]


@pytest.mark.parametrize("comment", [b"# TYPE vllm:num_requests_running gauge\n", b""])
def test_a_block_that_begins_and_ends_alike_hides_none(comment):
    """A wanted family stands behind a comment of its own; where none has one, each line of a block is told apart."""
    sets = label_sets(3000) if comment else label_sets(3000).partition(b"\n")[2]
    body = sets + comment + b"vllm:num_requests_running 3\n" + sets

    assert len(sets) > 2 * BLOCK
    assert values(b"# merged\n" + body) == [3]


def test_wanted_names_of_a_family_between_unwanted_ones_are_kept():
    """A family of which only sums and counts are wanted has thousands of buckets around them."""
    family = b"vllm:kv_offload_load_size"
    engines = b"".join(
        b"".join(b'%s_bucket{engine="%d",le="%d.0"} 1.0\n' % (family, engine, bound) for bound in range(400))
        + b'%s_sum{engine="%d"} 2.0\n' % (family, engine)
        for engine in range(64)
    )
    found = parse_exposition(b"# TYPE %s histogram\n" % family + engines, {f"{family.decode()}_sum"})

    assert len(found.series[f"{family.decode()}_sum"]) == 64


@pytest.mark.parametrize("name", [b"vllm:num_requests", b"vllm:prompt_tokens_created", b"v", b"http_requests_to"])
def test_a_name_that_another_begins_with_hides_none(name):
    """Names that nobody wants may be the beginning of one that is read."""
    body = name + b'{a="b"} 1\n' + name + b"_total 2\nvllm:num_requests_running 3\nhttp_requests_total 4\n"

    assert values(body) == [3, 4]


@pytest.mark.parametrize("size", [1, 7, 1000, BLOCK, 3 * BLOCK])
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


def test_every_long_line_is_counted():
    """Lines over the limit are counted exactly, also where whole blocks are passed over."""
    lengths = [MAX_LINE - 1, MAX_LINE, MAX_LINE + 1, 3 * MAX_LINE, 100, MAX_LINE + 1]
    start, end = b'vllm:lora_requests_info{a="', b'"} 1\n'
    lines = [start + b"x" * (length + 1 - len(start) - len(end)) + end for length in lengths]

    assert parse_exposition(b"".join(lines * 50), WANTED).long_lines == 3 * 50


def test_a_line_without_end_is_incomplete():
    """A page that stops inside an over-long line is cut off."""
    assert parse_exposition(PAGE + b"vllm:x{" + b"y" * 2 * MAX_LINE, WANTED).problem == "incomplete"


def test_a_page_is_never_held_whole():
    """Fed in pieces, a page of tens of megabytes takes next to no memory."""
    piece = label_sets(2000)
    reader = ExpositionParser(WANTED)
    tracemalloc.start()
    for _ in range(100):
        reader.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert reader.finish().problem is None
    assert 100 * len(piece) > 30_000_000
    assert peak < 2_000_000 + MAX_LORA_BYTES


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
    """A page of empty lines or comments is looked at up to a limit: what comes after it costs next to nothing."""
    enough = line * (MAX_LINES // 2)
    reader = ExpositionParser(WANTED)
    for _ in range(2):
        reader.feed(enough)
    reader.feed(line * BLOCK)
    splits = []

    def note(_frame, event, argument):
        if event == "c_call" and argument.__name__ == "split":
            splits.append(argument)

    sys.setprofile(note)
    try:
        reader.feed(enough)
    finally:
        sys.setprofile(None)

    assert ("too_many_samples", []) == (reader.finish().problem, splits)


def test_ordinary_comments_are_far_from_the_limit():
    """A page with a hundred times the comments of any server is read."""
    assert isinstance(read_metrics(b"# HELP a text\n" * 50_000 + PAGE), MetricsReading)


@pytest.mark.slow
def test_series_that_differ_in_each_body_are_not_kept():
    """A server that sends other labels in each scrape takes the memory of some bodies, not of hundreds."""
    names = sorted(name for name in WANTED if name.endswith("_total"))[:12]

    def read_other(number):
        lines = [f'{name}{{engine="{engine}",model_name="{number}"}} 1.0\n' for name in names for engine in range(300)]
        assert isinstance(read_metrics("".join(lines).encode()), MetricsReading)

    tracemalloc.start()
    try:
        for number in range(10):  # Series are kept up to a number that these reach.
            read_other(number)
        gc.collect()
        few, _ = tracemalloc.get_traced_memory()
        for number in range(10, 14):
            read_other(number)
        gc.collect()
        many, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert 1.2 * few > many
