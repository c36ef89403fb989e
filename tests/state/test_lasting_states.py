# SPDX-License-Identifier: Apache-2.0
"""A state is of the last seconds and not of the moment of a reading: it does not flap, and goes with the rates."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hypothesis import given
from hypothesis import strategies as st
from tests.support.server_stories import BOTH, LOG, METRICS, READY, STARTING, Server, line, page


INTERVALS = pytest.mark.parametrize("interval", [2.0, 5.0, 15.0])
"""Seconds between two scrapes."""

PRINTED_EVERY = pytest.mark.parametrize("interval", [5.0, 10.0, 60.0])
"""Seconds between two lines, as V0, V1 and VLLM_LOG_STATS_INTERVAL have it."""

MOMENTS = st.tuples(st.sampled_from([2.0, 5.0, 15.0]), st.integers(0, 3), st.integers(0, 3), st.integers(0, 9))
"""Seconds until a scrape, requests that run, that wait, and the tokens since the one before."""


class Scraped:
    """A server that is scraped every so often, and what was seen of it."""

    def __init__(self, interval=5.0):
        self.server = Server(has_log=False, interval=interval)
        self.interval = interval
        self.generated = 50
        self.seen = []
        self.look(tokens=0)

    def look(self, *, tokens, running=0, waiting=0, after=None):
        """Scrape it once more, after so many tokens."""
        self.generated += tokens
        self.server.scrape(page(running, waiting, self.generated), after=self.interval if after is None else after)
        engine = self.server.engine()
        rate = engine.gauges.get("generation_tokens_per_second")
        self.seen.append((self.server.now, engine.state, None if rate is None else rate.value))

    def go(self, seconds, **what):
        """Let so much time pass; return the states in it."""
        before = len(self.seen)
        for _ in range(round(seconds / self.interval)):
            self.look(**what)
        return [state for _, state, _ in self.seen[before:]]

    def changes(self):
        """Return the changes of state that are events."""
        return [(event.before, event.what) for event in self.server.state.snapshot(self.server.now).events]


def logged(interval, lines):
    """Return the states of a server right after each of its lines, and its changes of state."""
    server = Server(has_metrics=False).log(STARTING, READY)
    states = [server.log(each, after=interval).engine().state for each in lines]
    events = server.state.snapshot(server.now).events
    return states, [(event.before, event.what) for event in events if event.kind == "state"]


@INTERVALS
def test_an_engine_whose_work_ended_is_idle_when_its_rate_is_0(interval):
    """It is idle at the first scrape that is 10 s after the last one that saw work, as soon as tokens/s are 0."""
    scraped = Scraped(interval)
    scraped.go(60, tokens=100)
    last = scraped.server.now
    scraped.go(60, tokens=0)
    after = [(at - last, state, rate) for at, state, rate in scraped.seen if at > last]

    assert next(at for at, state, _ in after if state == "idle") == max(10.0, interval)
    assert all((state == "idle") is (rate == 0) for _, state, rate in after)


@given(st.lists(MOMENTS, min_size=2, max_size=40))
def test_an_idle_engine_generates_nothing(moments):
    """Whatever happens between scrapes at whatever times, no engine is idle beside tokens/s."""
    scraped = Scraped()
    for after, running, waiting, tokens in moments:
        scraped.look(tokens=tokens, running=running, waiting=waiting, after=after)

    assert {rate or 0 for _, state, rate in scraped.seen if state == "idle"} <= {0}


@given(st.lists(MOMENTS, min_size=2, max_size=40))
def test_an_engine_that_makes_progress_is_never_idle(moments):
    """If there are tokens in each interval, the engine is serving or saturated, whatever a scrape meets."""
    scraped = Scraped()
    for after, running, waiting, tokens in moments:
        scraped.look(tokens=1 + tokens, running=running, waiting=waiting, after=after)

    assert {state for _, state, _ in scraped.seen[1:]} <= {"serving", "saturated"}


@given(st.lists(st.tuples(st.sampled_from([2.0, 5.0, 15.0]), st.integers(0, 2)), min_size=2, max_size=60))
def test_saturated_and_serving_last(queue):
    """A change between the two is not taken back within 9 s, whatever queue the scrapes meet."""
    scraped = Scraped()
    for after, waiting in queue:
        scraped.look(tokens=9, running=1, waiting=waiting, after=after)
    changes = [at for (_, old, _), (at, new, _) in pairwise(scraped.seen[1:]) if old != new]

    assert all(later - earlier >= 9 for earlier, later in pairwise(changes))


@INTERVALS
def test_a_queue_of_a_moment_does_not_saturate(interval):
    """Requests that wait in every second scrape make no saturated engine, and no event."""
    scraped = Scraped(interval)
    states = {
        state for step in range(60) for state in scraped.go(interval, tokens=100, running=4, waiting=3 * (step % 2))
    }

    assert (states, scraped.changes()) == ({"serving"}, [])


@INTERVALS
def test_a_queue_that_lasts_saturates(interval):
    """The engine is saturated 10 s after the first of scrapes with a queue, until 10 s after the first one without."""
    scraped = Scraped(interval)
    enough = max(10.0, interval)
    before = scraped.go(60, tokens=100, running=4)
    start = scraped.server.now + interval
    scraped.go(60, tokens=100, running=4, waiting=3)
    scraped.go(interval, tokens=100, running=4)  # A moment without a queue.
    scraped.go(60, tokens=100, running=4, waiting=3)
    end = scraped.server.now + interval
    scraped.go(60, tokens=100, running=4)
    saturated = [at for at, state, _ in scraped.seen if state == "saturated"]

    assert set(before) == {"serving"}
    assert (saturated[0], saturated[-1] + interval) == (start + enough, end + enough)
    assert scraped.changes() == [("serving", "saturated"), ("saturated", "serving")]


@PRINTED_EVERY
def test_a_line_with_tokens_is_an_interval_with_work(interval):
    """A light load of which no request runs when a line is printed is serving, and a line of zeros is idle at once."""
    states, events = logged(interval, [*[line(generation=9.0)] * 9, line(), line(generation=9.0)])

    assert (states, events) == (["serving"] * 9 + ["idle", "serving"], [])


@PRINTED_EVERY
def test_a_queue_in_the_log_that_lasts_saturates(interval):
    """The same as in scrapes, by the times of the lines: a queue in every second line does not."""
    enough = round(10 / interval) if interval < 10 else 1
    alone, queued = line(4, generation=9.0), line(4, 3, generation=9.0)
    states, events = logged(interval, [alone, *[queued, alone] * 5, *[queued] * 5, *[alone] * 5])

    assert states == ["serving"] * (11 + enough) + ["saturated"] * 5 + ["serving"] * (5 - enough)
    assert events == [("serving", "saturated"), ("saturated", "serving")]


@pytest.mark.parametrize("has_metrics", [False, True], ids=["log alone", "/metrics is missing"])
@pytest.mark.parametrize("interval", [5.0, 10.0])
def test_the_first_line_of_a_request_is_no_stall(interval, has_metrics):
    """After ten idle minutes a request without a token is stalled a minute later, and not before."""
    server = Server(has_metrics=has_metrics).log(line(1, generation=9.0))
    for _ in range(round(600 / interval)):
        server.log(line(), after=interval)
        if has_metrics:
            server.scrape(reason="not_found")
    began = server.now + interval
    states = {}
    while server.now < began + 90:
        server.log(line(1), after=interval)
        states[server.now - began] = server.engine().state

    assert {second for second, state in states.items() if state == "stalled"} == {
        second for second in states if second >= 60
    }


ANSWERED = page(generated=50)
RESTARTED = [ANSWERED, 5, STARTING, "refused", *[5, "refused"] * 8, 2, READY]
STILL = page(running=2, generated=60)
STORIES = {
    "A stalled engine whose clients all leave is idle at once: nothing was done for them.": (
        METRICS,
        [page(2, generated=50), 5, STILL, *[5, STILL] * 8, "= stalled", 5, page(generated=60, kv=0.1), "= idle"],
    ),
    "Of one page the moment is all that is known.": (METRICS, [page(running=1, waiting=2), "= saturated"]),
    "So it is of a page without requests.": (METRICS, [ANSWERED, "= idle"]),
    "Hours in which all requests are deferred are no work: the clock of a stall starts when one of them runs.": (
        LOG,
        [
            line(1, generation=9.0), *[10, line(0, 2, deferred=2)] * 360, *[10, line(1)] * 6, "= serving", 10, line(1),
            "= stalled",
        ],
    ),
    # Between the line that the server is ready and its first answer.
    "A server that was started again is neither unknown nor idle nor down before it listens.": (
        BOTH,
        [*RESTARTED, "= starting", 2, "= starting", 1, "refused", "= starting", 5, page(start=900.0), "= idle"],
    ),
    "A refusal that lasts 10 s longer is no start.": (
        BOTH, [*RESTARTED, 9.9, "refused", "= starting", 0.1, "refused", "= down"]
    ),
    "Once it has answered, a refused connection is its end.": (
        BOTH, [*RESTARTED, 1, page(start=900.0), 1, "refused", "= down"]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "story"), STORIES.values(), ids=STORIES)
def test_what_state_it_is(sources, story):
    """The sentence says what is true, and the story shows it."""
    Server(**sources).tell(*story)
