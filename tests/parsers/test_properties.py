# SPDX-License-Identifier: Apache-2.0
"""What holds for every line and every page, also for those that nobody has thought of."""

from __future__ import annotations

import re

from functools import cache

import pytest

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.parsers.lines import SPEC_MESSAGE, STATS_MESSAGE, TIME, json_record, record
from tests.parsers.releases import PAGES, RELEASES, expected_page, log_lines, page
from tests.support.samples import sample

from vllm_watch_parsers.events import EngineStats, Event, SpecDecoding
from vllm_watch_parsers.exposition import parse_exposition
from vllm_watch_parsers.front_ends import WANTED
from vllm_watch_parsers.line import LogLine, Record, parse_line
from vllm_watch_parsers.prefix import STATS_SITES
from vllm_watch_parsers.scrape import MetricsReading, Unreadable, read_metrics


pytestmark = pytest.mark.slow


QUICK = settings(max_examples=sample(60, whole=300), deadline=None, suppress_health_check=[HealthCheck.too_slow])

EVENT_TYPES = Event.__args__

STATS_SITE = re.compile(rb"(?:metrics\.py|loggers\.py|log_stats\.rs):\d")


@cache
def corpus_lines() -> list[bytes]:
    """Return the different lines of all logs, numbers aside."""
    by_shape = {re.sub(rb"\d+", b"0", line): line for release in RELEASES for line in log_lines(release)}
    return sorted(by_shape.values())


records = st.none() | st.builds(
    Record,
    head=st.sampled_from([b"", b"INFO ", b"ERROR 11-21 04:40:31 async_llm_engine.py:65] ", b"(APIServer pid=7) INFO "]),
    process=st.sampled_from(["", "(APIServer pid=7) ", "(EngineCore_DP0 pid=9) "]),
    time=st.sampled_from([TIME, "", "11-21 04:40:31"]),
    prefix=st.sampled_from(["", "node1 "]),
    names_causes=st.booleans(),
    is_logo=st.booleans(),
)


@st.composite
def mutated(draw, originals):
    """Return one of some texts with pieces cut out, doubled, replaced or put in."""
    text = draw(st.deferred(lambda: st.sampled_from(originals())))
    for _ in range(draw(st.integers(0, 4))):
        first, second = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
        last = min(second, first + draw(st.integers(0, 40)))
        piece = draw(
            st.binary(max_size=8)
            | st.sampled_from(
                [
                    b"",
                    b"\r",
                    b"\n",
                    b'"',
                    b"}",
                    b"{",
                    b"\\",
                    b"nan",
                    b"-1",
                    b"9" * 30,
                    b"] ",
                    b"\xe2\x80\xa8",
                    b"\x1b[0m",
                    b" ",
                ]
            )
            | st.just(text[first:last] * 2)
        )
        text = text[:first] + piece + text[last:]
    return text


def judge(parsed: LogLine) -> None:
    """Hold a parsed line to what is true of all."""
    assert isinstance(parsed, LogLine)
    assert all(isinstance(event, EVENT_TYPES) for event in parsed.events)
    assert hash(parsed) is not None
    for event in parsed.events:
        if isinstance(event, EngineStats):
            assert event.requests_running is None or 0 <= event.requests_running <= 10_000_000
            assert event.kv_cache_usage_ratio is None or 0 <= event.kv_cache_usage_ratio <= 1
            assert event.prefix_cache_hit_ratio is None or 0 <= event.prefix_cache_hit_ratio <= 1
        if isinstance(event, SpecDecoding):
            assert event.acceptance_ratio is None or 0 <= event.acceptance_ratio <= 1


@QUICK
@given(line=st.binary(max_size=400), record_=records)
@example(line=b"INFO 13-41 99:99:99 [loggers.py:1] x", record_=None)
def test_any_bytes_are_a_line(line, record_):
    """No bytes make the parser raise, whatever record is open."""
    judge(parse_line(line, record_))


@QUICK
@given(line=mutated(corpus_lines), record_=records)
def test_any_damage_to_a_real_line_is_survived(line, record_):
    """Real lines, cut and mixed, make no parser raise, and give no impossible value."""
    for part in line.split(b"\n"):
        judge(parse_line(part, record_))


@QUICK
@given(line=mutated(corpus_lines))
def test_statistics_come_only_from_lines_that_name_their_call_site(line):
    """However a real line is damaged, statistics need the name of a file that prints them, or JSON."""
    for part in line.split(b"\n"):
        if any(isinstance(event, (EngineStats, SpecDecoding)) for event in parse_line(part).events):
            assert STATS_SITE.search(re.sub(rb"\x1b\[[0-9;]*m", b"", part)) or b'"message"' in part


file_names = st.from_regex(r"[A-Za-z0-9_./-]{1,40}\.(py|rs|pyc|cpp)", fullmatch=True)


@QUICK
@given(
    site=file_names,
    level=st.sampled_from(["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]),
    process=st.sampled_from(["", "(APIServer pid=7) ", "(a pid=1) (b pid=2) "]),
    message=st.sampled_from([STATS_MESSAGE, SPEC_MESSAGE, f"{STATS_MESSAGE} {SPEC_MESSAGE}"]),
)
def test_other_call_sites_never_give_statistics(site, level, process, message):
    """A perfect message from another file is no statistics, and from the right files it is."""
    said = parse_line(record(message, site, level, process)).events

    if site.rpartition("/")[2] not in STATS_SITES:
        assert not any(isinstance(event, (EngineStats, SpecDecoding)) for event in said)
    elif message in {STATS_MESSAGE, SPEC_MESSAGE}:
        assert len(said) == 1


@QUICK
@given(name=st.text(max_size=30), message=st.sampled_from([STATS_MESSAGE, SPEC_MESSAGE]))
def test_other_loggers_never_give_statistics(name, message):
    """In JSON logs the logger's name stands for the file: only those of the statistics count, or none at all."""
    said = parse_line(json_record(message, name=name)).events

    if name.rpartition(".")[2] not in {"metrics", "loggers", ""}:
        assert not any(isinstance(event, (EngineStats, SpecDecoding)) for event in said)


@QUICK
@given(text=st.text(max_size=200), site=file_names, record_=records)
def test_any_text_is_a_message(text, site, record_):
    """No text makes the message parsers raise, from whatever call site, as a record or as JSON."""
    for start in ("", "Avg prompt ", "SpecDecoding metrics: ", "Speculative metrics: ", "args: ", "Engine 000: "):
        for name in (site, "loggers.py"):
            judge(parse_line(record(start + text, name).replace(b"\n", b""), record_))
        judge(parse_line(json_record(start + text, name=None), record_))


@cache
def small_pages() -> list[bytes]:
    """Return the first part of each pair's first page, which ends with a whole line."""
    pages = [page(release, expected_page(release, prefix)["files"][0]) for release, prefix in PAGES]
    return [body[: body.index(b"\n", 6000) + 1] for body in pages]


@QUICK
@given(body=st.binary(max_size=400))
def test_any_bytes_are_a_page(body):
    """No bytes make the reading raise."""
    assert isinstance(read_metrics(body), (MetricsReading, Unreadable))


@QUICK
@given(body=mutated(small_pages))
def test_any_damage_to_a_real_page_is_survived(body):
    """Real pages, cut and mixed, are read or refused as a whole; values that are read are possible ones."""
    reading = read_metrics(body)

    if isinstance(reading, Unreadable):
        return
    for engine in reading.engines.values():
        assert all(value >= 0 for table in (engine.gauges, engine.counters) for value in table.values())
        for histogram in engine.histograms.values():
            assert list(histogram.counts) == sorted(histogram.counts)
            assert list(histogram.bounds) == sorted(histogram.bounds)


@QUICK
@given(data=st.data())
def test_a_page_cut_off_inside_a_line_is_no_page(data):
    """A body that ends before its last line does is never read, not even in part."""
    body = data.draw(st.sampled_from(small_pages()))
    end = data.draw(st.integers(1, len(body) - 1).filter(lambda at: body[at - 1 : at] != b"\n"))

    assert read_metrics(body[:end]) == Unreadable("incomplete")
    assert parse_exposition(body[:end], WANTED).series == {}


@QUICK
@given(
    data=st.data(),
    junk=st.sampled_from([b"<html>", b"vllm:x", b"vllm:x{", b'vllm:x{a="b} 1', b"x 1 2 3", b"x y", b"x 1..2"]),
)
def test_one_bad_line_spoils_the_page(data, junk):
    """A page with a line that is no sample gives nothing: half a page would look like a server without load."""
    lines = data.draw(st.sampled_from(small_pages())).split(b"\n")
    at = data.draw(st.integers(0, len(lines) - 1))

    assert read_metrics(b"\n".join([*lines[:at], junk, *lines[at:]])) == Unreadable("not_metrics")


label_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def escaped(value: str) -> str:
    """Return a label's value as a page writes it."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@QUICK
@given(
    labels=st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), label_text, max_size=5),
    value=st.floats(allow_nan=False),
)
def test_what_is_written_is_read(labels, value):
    """Any labels and any number come back as they were written."""
    written = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    number = str(value).replace("inf", "Inf")
    found = parse_exposition(f"a{{{written}}} {number}\n".encode(), {"a"})

    assert found.problem is None
    assert [(dict(names), number) for names, number in found.series["a"].items()] == [(labels, value)]


@pytest.mark.parametrize(("release", "prefix"), PAGES)
def test_a_page_is_read_the_same_with_other_line_ends(release, prefix):
    r"""``\r\n`` instead of ``\n`` changes nothing."""
    body = page(release, expected_page(release, prefix)["files"][1])

    assert read_metrics(body.replace(b"\n", b"\r\n")) == read_metrics(body)
