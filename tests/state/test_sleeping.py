# SPDX-License-Identifier: Apache-2.0
"""An engine that its operator put to sleep or paused sleeps: it is not stalled, and nobody asks it for tokens."""

from __future__ import annotations

import pytest

from tests.state.test_probe_source import Probed
from tests.support.server_stories import BOTH, LOG, METRICS, READY, STARTING, Server, line, page

from vllm_watch.daemon.reading.times import ArrivalTimes


LABELS = 'engine="0",model_name="m"'
ASLEEP = b"(EngineCore pid=7) INFO 11-21 02:35:10 [abstract.py:390] It took 0.000540 seconds to fall asleep."
OLD_AWAKE = b"INFO 11-21 02:35:10 [executor_base.py:229] It took 0.003701 seconds to wake up."
AWAKE = b"INFO 11-21 02:35:10 [abstract.py:408] It took 0.003701 seconds to wake up tags {'weights', 'kv_cache'}."
HALF_AWAKE = b"INFO 11-21 02:35:10 [abstract.py:408] It took 0.001391 seconds to wake up tags ['weights']."
OTHER_HALF = b"INFO 11-21 02:35:10 [abstract.py:408] It took 0.001391 seconds to wake up tags ['kv_cache']."
PAUSED = b"(EngineCore pid=7) INFO 11-21 02:35:10 [scheduler.py:2756] setting pause state to PAUSED_ALL"
CLOSED = b"(EngineCore pid=7) INFO 11-21 02:35:10 [scheduler.py:2756] setting pause state to PAUSED_NEW"
RESUMED = b"(EngineCore pid=7) INFO 11-21 02:35:10 [scheduler.py:2756] setting pause state to UNPAUSED"
UP, BUSY = (STARTING, READY), line(1, generation=5.0)


def sleep_state(awake, offloaded=0, discarded=0):
    """Return a page's lines on how the engine sleeps."""
    states = {"awake": awake, "weights_offloaded": offloaded, "discard_all": discarded}
    return "".join(
        f'vllm:engine_sleep_state{{{LABELS},sleep_state="{name}"}} {value}\n' for name, value in states.items()
    )


def calls(paused=0, resumed=0):
    """Return a page's count of the calls that pause and resume."""
    return "".join(
        f'http_requests_total{{handler="{handler}",method="POST",status="2xx"}} {count}\n'
        for handler, count in (("/pause", paused), ("/resume", resumed))
    )


def call(path, code="200 OK"):
    """Return the line of a call that was answered."""
    return f'INFO:     127.0.0.1:51684 - "POST {path} HTTP/1.1" {code}'.encode()


def again(body, times, *seen):
    """Return a story in which the same page is read again and again, and what is seen each time."""
    return [5, body, *seen] * times


def at_rest(*counts, awake=None, running=1, generated=50, **values):
    """Return a page of an engine that has served somebody, with its counts of calls, and whether it is awake."""
    extra = calls(*counts) + ("" if awake is None else sleep_state(awake))
    return page(running, generated=generated, extra=extra, **values)


STORIES = {
    # By the page.
    "When the page says awake again the engine is what it is, and what stood still before is no stall.": (
        METRICS,
        [
            at_rest(awake=1), *again(at_rest(awake=0), 30), *again(at_rest(awake=1), 6, "= serving"),
            *again(at_rest(awake=1), 3, "= stalled"),
        ],
    ),
    "Releases that forget to say awake are not asleep while tokens come, and stalled if none come any more.": (
        METRICS,
        [
            at_rest(awake=0), *again(at_rest(awake=0, generated=60), 6, "= serving"),
            *again(at_rest(awake=0, generated=60), 5), "= stalled",
        ],
    ),
    "A server that counts a call to pause and none to resume since is paused.": (
        METRICS,
        [
            at_rest(0), *again(at_rest(1, generated=60), 20, "= sleeping"),
            *again(at_rest(1, 1, generated=70), 1, "= serving"),
        ],
    ),
    "A server that was started anew is not asleep.": (
        METRICS, [page(generated=50, extra=calls()), 5, at_rest(1), "= sleeping", 5, page(start=500.0), "= idle"]
    ),
    # By the log.
    "An engine whose weights are back and whose KV cache is not takes up no request.": (
        LOG, [(*UP, line(), ASLEEP), 20, HALF_AWAKE, 100, "= sleeping", OTHER_HALF, "= idle"]
    ),
    "A server that is started again is not paused.": (LOG, [(*UP, PAUSED), 60, UP, "= idle"]),
    "A pause that waits for running requests is over for nobody: while they get tokens the engine serves.": (
        BOTH,
        [
            UP, page(4, generated=50), 1, CLOSED, 4, page(4, generated=50),
            *(each for n in range(1, 60) for each in again(page(4, generated=50 + n), 1, "= serving")),
            *again(page(generated=109), 20), "= sleeping",
        ],
    ),
    "A prompt that is computed minutes after a pause shows that there is none.": (
        BOTH,
        [
            UP, page(generated=50), 1, PAUSED, *again(page(generated=50), 30),
            *again(page(1, generated=55, prompt=9), 2, "= serving"), *again(page(1, generated=55, prompt=9), 20),
            "= stalled",
        ],
    ),
    "A statistics line with prompt tokens minutes after a pause shows that there is none.": (
        LOG,
        [(*UP, PAUSED), 180, "= sleeping", line(1, prompt=50.0, generation=5.0), 10, line(), 600, "= idle"],
    ),
    "A page that still says asleep is older than the line that says resumed.": (
        BOTH, [UP, at_rest(awake=0, generated=5), "= sleeping", 1, RESUMED, "= serving"]
    ),
    "While the engine sleeps its log is quiet for that, and for no other reason.": (
        LOG, [(*UP, BUSY), 1, PAUSED, "log = ok", 300, "log = sleeping"]
    ),
    # By the access log: 0.12 to 0.31 print nothing of a pause but the call itself.
    "A call that was answered with 200 paused the server, and one to resume ends it.": (
        LOG,
        [(*UP, BUSY), 10, (line(3), call("/pause?mode=keep")), 300, "= sleeping", line(), call("/resume"), "= idle"],
    ),
    "A call that was not found paused nothing.": (
        LOG, [(*UP, BUSY), 10, (line(3), call("/pause", "404 Not Found")), 300, "= stalled"]
    ),
    "A log that prints calls only tells of a pause that waking ended.": (
        LOG, [(*UP, line()), 1, (call("/pause"), ASLEEP), 300, "= sleeping", 1, (AWAKE, call("/wake_up")), "= idle"]
    ),
    "A call to wake up that brought back only some memory ends nothing.": (
        LOG, [(*UP, line()), 1, (call("/pause"), ASLEEP), 1, (HALF_AWAKE, call("/wake_up")), 300, "= sleeping"]
    ),
    "A server that was paused and resumed between two looks at its log is not taken to be paused.": (
        LOG,
        [
            (*UP, line(4, generation=5.0)), 1, call("/pause"), 30, (call("/pause"), call("/resume")), 5, line(4, 2),
            600, "= stalled",
        ],
    ),
    # Starts that only the page tells of.
    "A server that was started anew is not paused, even if its log did not say so.": (
        BOTH,
        [UP, page(generated=50, start=900.0), 1, PAUSED, 5, "= sleeping", 60, page(start=1020.0), "= idle"],
    ),
    "A start that is still to come when it is first said is no start after a pause, when its time has come either.": (
        BOTH,
        [
            UP, page(generated=50, start=1120.0), 50, PAUSED,
            *again(page(4, generated=50, start=1120.0), 60, "= sleeping"),
        ],
    ),
    # A rest that nobody vouches for is not believed: a false stall is seen, an engine that hangs behind it is not.
    **{
        f"{paused} calls to pause and {resumed} to resume before anyone watched do not tell whether it is paused.": (
            METRICS, [at_rest(paused, resumed), *again(at_rest(paused, resumed), 60), "= stalled"]
        )
        for paused, resumed in ((2, 1), (3, 2), (1, 0))
    },
    "Prompts that the log told of long after a pause end it, though no page has shown a token yet.": (
        BOTH,
        [
            (*UP, PAUSED), 600, line(1, prompt=50.0, generation=5.0), *again(page(4, 3, generated=50), 30),
            "= stalled",
        ],
    ),
    "A server that was paused, put to sleep and woken goes on without a call to resume.": (
        METRICS,
        [
            at_rest(awake=1), 5, at_rest(1, awake=1), "= sleeping", 5, at_rest(1, awake=0), "= sleeping",
            *again(at_rest(1, awake=1), 30), "= stalled",
        ],
    ),
    "So it does if its log has the call.": (
        BOTH,
        [
            at_rest(awake=1), UP, 1, call("/pause"), 5, at_rest(1, awake=1), "= sleeping", 5, at_rest(1, awake=0),
            "= sleeping", *again(at_rest(1, awake=1), 30), "= stalled",
        ],
    ),
    "A server that was paused and resumed between two pages is not taken to be paused.": (
        METRICS, [at_rest(0), 5, at_rest(1), *again(at_rest(2, 1), 30), "= stalled"]
    ),
    "A server that is paused, put to sleep, woken, resumed and paused again within two minutes is paused.": (
        METRICS,
        [
            at_rest(awake=1), 5, at_rest(1, awake=1), 5, at_rest(1, awake=0), 5, at_rest(1, awake=1), 5,
            at_rest(1, 1, awake=1), *again(at_rest(2, 1, awake=1), 60, "= sleeping"),
        ],
    ),
    "Where the log prints each pause in its order, the page's counts of both calls change nothing.": (
        BOTH, [UP, at_rest(0), 1, (PAUSED, RESUMED, PAUSED), *again(at_rest(2, 1), 60, "= sleeping")]
    ),
}  # fmt: skip


@pytest.mark.parametrize(("sources", "story"), STORIES.values(), ids=STORIES)
def test_whether_an_engine_sleeps(sources, story):
    """The sentence says what is true, and the story shows it."""
    Server(**sources).tell(*story)


@pytest.mark.parametrize("levels", [(0, 1, 0), (0, 0, 1), (0, 0, 0)], ids=["level 1", "level 2", "level 0"])
def test_an_engine_that_is_not_awake_sleeps(levels):
    """At every level of sleep the engine sleeps, with whatever requests it keeps, and never stalls."""
    body = page(running=8, waiting=2, generated=60, extra=sleep_state(*levels))

    Server(**METRICS).tell(page(8, 2, generated=50, extra=sleep_state(1)), *again(body, 100, "= sleeping"))


@pytest.mark.parametrize(
    ("begin", "end"),
    [((ASLEEP,), (AWAKE,)), ((ASLEEP,), (OLD_AWAKE,)), ((PAUSED,), (RESUMED,)), ((CLOSED, ASLEEP), (AWAKE, RESUMED))],
    ids=["asleep", "asleep, old", "paused", "both"],
)
@pytest.mark.parametrize("sources", [LOG, BOTH], ids=["log", "both"])
def test_sleep_and_pause_last_until_they_end(begin, end, sources):
    """From the line that begins it to the line that ends it the engine sleeps, whatever stands still."""
    pages = [page(running=1, generated=50)] if sources is BOTH else []
    server = Server(**sources).tell((*UP, BUSY), 10, line(1), *pages, 1, begin, 600, *pages, "= sleeping", 1, end)

    assert server.engine().state not in {"sleeping", "stalled"}


@pytest.mark.parametrize("is_history", [False, True])
def test_a_pause_before_lines_that_were_passed_over_is_void(is_history):
    """Of a pause whose end may be among the lines that were not read nothing is known."""
    server = Server().log(*UP, PAUSED, is_history=True)
    batch = server.reader.read([call("/health")], ArrivalTimes(server.now))
    server.state.apply_log(batch._replace(is_after_gap=True, is_history=is_history))

    server.tell(*again(page(running=4, waiting=3, generated=50), 120), "= stalled")


class TestTheProbe:
    """Nobody asks an engine that sleeps: it would hold the request, or compute on memory that is gone."""

    def test_a_sleeping_server_is_not_asked(self):
        """There is no next probe while the server sleeps, and one soon after it woke."""
        server = Probed().scrape(page(extra=sleep_state(1)))
        server.probe("ok")
        server.scrape(page(extra=sleep_state(0)), after=60)
        asleep = server.state.next_probe(server.now)
        server.scrape(page(extra=sleep_state(1)), after=600)

        assert asleep is None
        assert 0 >= server.wait
