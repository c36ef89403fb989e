# SPDX-License-Identifier: Apache-2.0
"""A body is read as it is by itself, whatever body was read before it and however its lines are taken together."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest

from tests.support.recordings import RECORDINGS, bodies_of
from tests.support.samples import sample

from vllm_watch_parsers.exposition import MAX_LINES, ExpositionParser
from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.repeated_bodies import MAX_BODY, RepeatedBodies
from vllm_watch_parsers.scrape import MetricsReading, read_metrics, reading_of


BODIES = {name: list(bodies_of(name)) for name in RECORDINGS}
EVERY = sample(10, whole=1)
"""All bodies are read, and every tenth, or each, is looked at."""
DAMAGES = [
    (b" 0.0\n", b" zero\n"),
    (b" 0.0\n", b" 1_0\n"),
    (b" 0.0\n", b" 1 1700000000000\n"),
    (b" 0.0\n", b"\t2\r\n"),
    (b" 0.0\n", b" NaN \n"),
    (b" 0.0\n", b"\n"),
    (b'engine="0"', b'engine="1"'),
    (b'engine="0"', b'engine="0'),
    (b"vllm:", b"other:"),
    (b"_sum{", b"_created{"),
    (b"# TYPE ", b"# "),
    (b"# HELP ", b"\n# HELP "),
    (b"\n# TYPE", b"\nvllm:num_requests_running 7\n# TYPE"),
    (b"\n# HELP", b"\nvllm:num_requests_waiting 8\n# HELP"),
]


def read(body, known):
    """Return what a body holds, and its layouts."""
    parser = ExpositionParser(WANTED, known)
    parser.feed(body)
    found = parser.finish()
    return found, parser.layouts


def facts(found):
    """Return what there is to compare of a body; which of an unwanted family's names is its first may differ."""
    return repr(found.samples), found.problem, found.long_lines, found.is_openmetrics


def read_after(body, before):
    """Return what a body holds that comes after another one of the same server, in pieces."""
    bodies = RepeatedBodies(WANTED)
    for each in (before, body):
        bodies.start()
        for start in range(0, len(each), 50_000):
            bodies.feed(each[start : start + 50_000])
        found = bodies.finish()
    return found


def one_by_one(body):
    """Return what a body holds whose lines are all parsed alone: nothing announces a family."""
    return read(body.replace(b"# HELP ", b"# "), {})[0]


@pytest.mark.parametrize("name", sorted(BODIES))
def test_recorded_bodies_one_after_the_other(name):
    """Every recorded body gives the same, alone, after the one before it, and line by line."""
    known = {}
    for number, body in enumerate(BODIES[name]):
        found, known = read(body, known)
        if number % EVERY == 0:
            assert facts(found) == facts(one_by_one(body))
            assert reading_of(found) == read_metrics(body)
        assert known or not found.samples


@pytest.mark.parametrize("name", sorted(BODIES))
def test_recorded_bodies_of_one_server(name):
    """A server's bodies give the same as each of them alone, and most of them have the form of the one before."""
    bodies, forms = RepeatedBodies(WANTED), 0
    for number, body in enumerate(BODIES[name]):
        bodies.start()
        bodies.feed(body)
        found = bodies.finish()
        forms += len(found.groups) == 1
        if number % EVERY == 0:
            assert facts(found) == facts(one_by_one(body))
            assert reading_of(found) == read_metrics(body)
    assert forms > len(BODIES[name]) // 2


def test_a_long_body_and_one_that_broke_off_between_two_others():
    """What came of the body before, and how long that was, does not matter."""
    body = BODIES["day"][40]
    long = body + b"# HELP x a\n# TYPE x gauge\n" + b'x{a="b"} 1\n' * (MAX_BODY // 11)
    bodies = RepeatedBodies(WANTED)
    for each, is_whole in ((body, True), (body[:20_000], False), (long, True), (long[:-50], False), (body, True)):
        bodies.start()
        bodies.feed(each[:30_000])
        bodies.feed(each[30_000:])
        if is_whole:
            assert facts(bodies.finish()) == facts(one_by_one(each))


def test_the_same_series_are_the_same_object():
    """Two servers with the same series share their layout, and so does one server from scrape to scrape."""
    first, second = BODIES["day"][40:42]
    _, layouts = read(first, {})
    _, again = read(second, layouts)
    _, of_other = read(second, {})

    assert len(layouts) > 20
    assert all(layouts[name] is again[name] is of_other[name] for name in layouts.keys() & again.keys())


@pytest.mark.parametrize("damage", DAMAGES, ids=[f"{old!r} {new!r}" for old, new in DAMAGES])
def test_damaged_bodies(damage):
    """A body that differs at any place from the one before it is read as if each of its lines were parsed alone."""
    old, new = damage
    body = BODIES["day"][40]
    _, known = read(body, {})
    places = [at for at in range(len(body)) if body.startswith(old, at)]
    for at in random.Random(old + new).sample(places, min(len(places), sample(5, whole=25))):
        damaged = body[:at] + new + body[at + len(old) :]

        expected, near = facts(one_by_one(damaged)), (at, damaged[at - 80 : at + 80])
        assert facts(read(damaged, known)[0]) == expected, near
        assert facts(read_after(damaged, body)) == expected, near


def test_lines_that_are_gone_or_exchanged():
    """The same holds for a body that lacks lines, or has them in another order."""
    chance = random.Random(7)
    lines = BODIES["day"][40].splitlines(keepends=True)
    _, known = read(b"".join(lines), {})
    for _ in range(40):
        changed = lines.copy()
        del changed[chance.randrange(len(lines)) :][: chance.randrange(3)]
        at = chance.randrange(len(changed) - 4)
        changed[at : at + 4] = chance.sample(changed[at : at + 4], 4)
        body = b"".join(changed)

        expected = facts(one_by_one(body))
        assert facts(read(body, known)[0]) == expected == facts(read_after(body, b"".join(lines)))


def test_what_is_kept_of_a_body_has_an_end():
    """Of a body with families without end the first megabyte is kept, and families of comments only are counted."""
    family = b'# HELP x%d a\n# TYPE x%d gauge\nvllm:num_requests_running{a="%0150d"} 1\n'
    _, layouts = read(b"".join(family % (number, number, number) for number in range(40_000)), {})

    assert 0 < sum(len(head) for layout in layouts.values() for head in layout.heads) < 1_100_000
    assert "too_many_samples" == read(b"# HELP a b\n" * (MAX_LINES + 1000), {})[0].problem


@pytest.mark.slow
def test_series_that_differ_in_each_body_are_not_kept():
    """A server that sends other labels in each scrape takes the memory of one body, not of hundreds."""
    names = sorted(name for name in WANTED if name.endswith("_total"))[:12]
    bodies = RepeatedBodies(WANTED)

    def read_other(number):
        bodies.start()
        for name in names:
            lines = [f'{name}{{engine="{engine}",model_name="{number}"}} 1.0' for engine in range(300)]
            bodies.feed("\n".join([f"# HELP {name} x", f"# TYPE {name} counter", *lines, ""]).encode())
        assert isinstance(reading_of(bodies.finish()), MetricsReading)

    tracemalloc.start()
    try:
        for number in range(10):  # A few bodies' are kept, and the series themselves: up to numbers that these reach.
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
