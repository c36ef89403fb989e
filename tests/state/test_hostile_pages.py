# SPDX-License-Identifier: Apache-2.0
"""Pages of /metrics that are wrong, huge or other than before: what becomes of each, and of what was known before."""

from __future__ import annotations

import functools

import pytest

from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.exposition import exported
from tests.support.samples import sample
from tests.support.server_stories import Server, page
from tests.support.waiting import computes_at_most

from vllm_watch.daemon.sources.scraper import MAX_BODY
from vllm_watch_parsers.exposition import MAX_SAMPLES, MAX_WANTED_BYTES
from vllm_watch_parsers.scrape import MAX_ENGINES


pytestmark = pytest.mark.slow


SECONDS = 30
"""Of the processor, for a second's work: machines differ."""

GOOD = page(running=3, generated=100)
NEXT = page(running=4, generated=200)
RUNNING = b'vllm:num_requests_running{engine="0",model_name="m"} '


def cut(lines, most=MAX_BODY):
    """Return lines as a body that is as long as one may be."""
    body = bytearray()
    for line in lines:
        if len(body) + len(line) > most:
            break
        body += line
    return bytes(body)


def with_running(text):
    """Return a page whose running requests are written so."""
    return NEXT.replace(RUNNING + b"4", RUNNING + text)


LABELS = b",".join(b'l%d="x"' % number for number in range(80_000))


def a_million(line):
    """Return a body of one line a million times, each with a number of its own, as far as they go into one."""
    return cut(line % number for number in range(1_000_000))


REFUSED = {
    "80,000 labels": (NEXT + b"vllm:num_requests_running{" + LABELS + b"} 1\n", "not_metrics"),
    "a line of 1 MB": (NEXT + RUNNING[:-2] + b',x="' + b"x" * 1_000_000 + b'"} 1\n', "not_metrics"),
    "1,000,000 series": (functools.partial(a_million, b"a%d 1\n"), "too_many_samples"),
    "1,000,000 engines": (
        functools.partial(a_million, b'vllm:num_requests_running{engine="%d"} 1\n'),
        "too_many_samples",
    ),
    "1_000": (with_running(b"1_000"), "not_metrics"),
    "NUL": (with_running(b"5\0"), "not_metrics"),
    "NUL in a label": (NEXT.replace(b'engine="0"', b'engine="0\0"', 1) + b"\0\n", "not_metrics"),
    "HTML": (b"<html><body>502 Bad Gateway</body></html>\n", "not_metrics"),
    "HTML behind a page": (NEXT + b"<html></html>\n", "not_metrics"),
    "half a body": (NEXT[: len(NEXT) // 2], "incomplete"),
    "all but the last byte": (NEXT[:-1], "incomplete"),
    "the last line is wrong": (NEXT + b"vllm:x{ 1\n", "not_metrics"),
    "no vLLM": (b"python_info 1\n", "stats_disabled"),
    "nothing": (b"", "not_metrics"),
}


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_page_that_is_refused_changes_nothing(body, reason):
    """S7: what is no page is refused in time with its reason, and no line of it, however good, is taken in."""
    body = body() if callable(body) else body
    server = Server(has_log=False).scrape(GOOD)
    before = server.state.snapshot(server.now)
    with computes_at_most(SECONDS):
        server.scrape(body, reason="unreadable")
    after = server.state.snapshot(server.now)

    assert reason == after.sources[0].reason
    assert not after.sources[0].is_up
    assert before.engines == after.engines
    assert before.values_out_of_range == after.values_out_of_range
    assert (before.starts, before.start_time) == (after.starts, after.start_time)


TAKEN = {
    "as it is": (NEXT, 4.0),
    "CRLF": (NEXT.replace(b"\n", b"\r\n"), 4.0),
    "timestamps": (NEXT.replace(b"\n", b" 1700000000000\n"), 4.0),
    "twice, the last counts": (NEXT + RUNNING + b"7\n", 7.0),
    "twice in another order": (NEXT + b'vllm:num_requests_running{model_name="m",engine="0"} 7\n', 7.0),
    "1e2": (with_running(b"1e2"), 100.0),
    "a comment of 1 MB": (NEXT + b"# " + b"x" * 1_000_000 + b"\n", 4.0),
    "no number": (with_running(b"NaN"), None),
    "1e400": (with_running(b"1e400"), None),
    "endless": (with_running(b"+Inf"), None),
    "below zero": (with_running(b"-1"), None),
}


@pytest.mark.parametrize(("body", "running"), TAKEN.values(), ids=TAKEN)
def test_a_page_that_is_odd_is_read(body, running):
    """S7: duplicates, times and line ends do no harm; what is no count is refused and counted, the rest is read."""
    server = Server(has_log=False).scrape(GOOD).scrape(body, after=5)
    gauge = server.value("requests_running")
    snapshot = server.state.snapshot(server.now)

    assert "ok" == server.reason("metrics")
    assert (running and (running, "metrics")) == gauge
    assert 200.0 == snapshot.engines[0].counters["generation_tokens_total"].value
    assert ({} if running else {("metrics", "requests_running"): 1}) == snapshot.values_out_of_range


LARGE = {
    "engines": (b'vllm:num_requests_running{engine="%d"} 1\n', MAX_ENGINES),
    "counters with times": (b'vllm:generation_tokens_total{engine="%d"} 1 1700000000000\n', MAX_ENGINES),
    "models": (b'vllm:prompt_tokens_total{engine="0",model_name="%d"} 1\n', MAX_ENGINES),
    "reasons": (b'vllm:request_success_total{engine="0",finished_reason="%d"} 1\n', 1),
    "buckets": (b'vllm:time_to_first_token_seconds_bucket{engine="0",le="%d"} 1\n', 1),
    "one series": (b'vllm:num_requests_running{engine="0"} %d\n', 1),
    "labels": (b'vllm:num_requests_running{engine="%d",' + LABELS[: LABELS.index(b",l60=")] + b"} 1\n", MAX_ENGINES),
}


TRIED = sample(("engines", "buckets", "one series", "labels"), tuple(LARGE))


@pytest.mark.parametrize(("line", "engines"), [pytest.param(*LARGE[name], id=name) for name in TRIED])
def test_the_largest_page_is_read_in_time(line, engines):
    """S7: as many samples as may be, of whatever kind, are read in time, and not all of them are kept."""
    lines = (line % number for number in range(MAX_SAMPLES - 10))
    body = cut(lines, MAX_WANTED_BYTES - len(GOOD)) + GOOD.replace(b'engine="0"', b'engine="00"')
    with computes_at_most(SECONDS):
        server = Server(has_log=False).scrape(body)
    found = server.state.snapshot(server.now).engines

    assert "ok" == server.reason("metrics")
    assert len(found) <= engines + 1


def shown(server, after=0.0):
    """Return the page's values by name and labels, later."""
    server.now += after
    snapshot = server.state.snapshot(server.now)
    return {
        (sample.name.removeprefix("vllm_watch_"), *sorted(sample.labels.items())): sample.value
        for family in parse_text(exported(snapshot).decode())
        for sample in family.samples
    }


def of(values, **labels):
    """Return the names of the series that have these labels."""
    return {name for name, *pairs in values if labels.items() <= dict(pairs).items()}


class TestOtherThanBefore:
    """What the last page does not have is not shown."""

    def test_an_engine_appears_and_disappears(self):
        """S8: a new engine's series are there with its first page, and gone with the first page without it."""
        server = Server(has_log=False).scrape(page(engine="0"))
        first = shown(server)
        both = shown(server.scrape(page(engine="0") + page(engine="1"), after=5))
        last = shown(server.scrape(page(engine="1"), after=5))

        assert of(first, engine="0") == of(both, engine="0") == of(both, engine="1") == of(last, engine="1")
        assert {"requests_running", "engine_state", "generation_tokens_total"} <= of(last, engine="1")
        assert not of(first, engine="1")
        assert not of(last, engine="0")
