# SPDX-License-Identifier: Apache-2.0
"""An engine that its operator put to sleep or paused sleeps: it is not stalled, and nobody asks it for tokens."""

from __future__ import annotations

import pytest

from tests.state.test_probe_source import Probed
from tests.support.server_stories import READY, STARTING, Server, line, page

from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.probe_source import ProbeResult


LABELS = 'engine="0",model_name="m"'
ASLEEP = b"(EngineCore pid=7) INFO 11-21 02:35:10 [abstract.py:390] It took 0.000540 seconds to fall asleep."
OLD_AWAKE = b"INFO 11-21 02:35:10 [executor_base.py:229] It took 0.003701 seconds to wake up."
AWAKE = b"INFO 11-21 02:35:10 [abstract.py:408] It took 0.003701 seconds to wake up tags {'weights', 'kv_cache'}."
HALF_AWAKE = b"INFO 11-21 02:35:10 [abstract.py:408] It took 0.001391 seconds to wake up tags ['weights']."
OTHER_HALF = b"INFO 11-21 02:35:10 [abstract.py:408] It took 0.001391 seconds to wake up tags ['kv_cache']."
PAUSED = b"(EngineCore pid=7) INFO 11-21 02:35:10 [scheduler.py:2756] setting pause state to PAUSED_ALL"
CLOSED = b"(EngineCore pid=7) INFO 11-21 02:35:10 [scheduler.py:2756] setting pause state to PAUSED_NEW"
RESUMED = b"(EngineCore pid=7) INFO 11-21 02:35:10 [scheduler.py:2756] setting pause state to UNPAUSED"


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


def scraped(server, body, times, every=5.0):
    """Let the same page be read again and again; return the states seen."""
    return {server.scrape(body, after=every).engine().state for _ in range(times)}


class TestByThePage:
    """What /metrics says."""

    @pytest.mark.parametrize("levels", [(0, 1, 0), (0, 0, 1), (0, 0, 0)], ids=["level 1", "level 2", "level 0"])
    def test_an_engine_that_is_not_awake_sleeps(self, levels):
        """At every level of sleep the engine sleeps, with whatever requests it keeps, and never stalls."""
        server = Server(has_log=False).scrape(page(running=8, waiting=2, generated=50, extra=sleep_state(1)))
        body = page(running=8, waiting=2, generated=60, extra=sleep_state(*levels))

        assert {"sleeping"} == scraped(server, body, 100)

    def test_waking_ends_it(self):
        """When the page says awake again the engine is what it is, and what stood still before is no stall."""
        server = Server(has_log=False).scrape(page(running=8, generated=50, extra=sleep_state(1)))
        scraped(server, page(running=8, generated=50, extra=sleep_state(0)), 30)

        assert {"serving"} == scraped(server, page(running=8, generated=50, extra=sleep_state(1)), 6)
        assert {"stalled"} == scraped(server, page(running=8, generated=50, extra=sleep_state(1)), 3)

    def test_a_word_that_was_left_behind_is_not_believed(self):
        """Releases that forget to say awake are not asleep while tokens come."""
        server = Server(has_log=False).scrape(page(running=8, generated=50, extra=sleep_state(0)))
        server.scrape(page(running=8, generated=60, extra=sleep_state(0)), after=5)

        assert {"stalled", "serving"} == scraped(server, page(running=8, generated=60, extra=sleep_state(0)), 10)

    def test_a_pause_that_was_asked_for_is_seen(self):
        """A server that counts a call to pause and none to resume since is paused."""
        server = Server(has_log=False).scrape(page(running=8, generated=50, extra=calls()))

        assert {"sleeping"} == scraped(server, page(running=8, generated=60, extra=calls(1)), 20)
        assert {"serving"} == scraped(server, page(running=8, generated=70, extra=calls(1, 1)), 1)

    def test_a_restart_ends_it(self):
        """A server that was started anew is not asleep."""
        server = Server(has_log=False).scrape(page(generated=50, extra=calls()))
        paused = server.scrape(page(generated=50, extra=calls(1)), after=5).engine().state
        server.scrape(page(start=500.0, extra=calls(0)), after=5)

        assert ("sleeping", "idle") == (paused, server.engine().state)


class TestByTheLog:
    """What the engine prints."""

    @pytest.mark.parametrize(
        ("begin", "end"),
        [([ASLEEP], [AWAKE]), ([ASLEEP], [OLD_AWAKE]), ([PAUSED], [RESUMED]), ([CLOSED, ASLEEP], [AWAKE, RESUMED])],
        ids=["asleep", "asleep, old", "paused", "both"],
    )
    @pytest.mark.parametrize("has_metrics", [False, True])
    def test_sleep_and_pause_last_until_they_end(self, begin, end, has_metrics):
        """From the line that begins it to the line that ends it the engine sleeps, whatever stands still."""
        server = Server(has_metrics=has_metrics).log(STARTING, READY, line(1, generation=5.0)).log(line(1), after=10)
        if has_metrics:
            server.scrape(page(running=1, generated=50))
        server.log(*begin, after=1)
        kept = server.scrape(page(running=1, generated=50), after=600) if has_metrics else server
        asleep = kept.engine(after=0 if has_metrics else 600).state
        server.log(*end, after=1)

        assert ("sleeping", False) == (asleep, server.engine().state in {"sleeping", "stalled"})

    def test_half_awake_is_asleep(self):
        """An engine whose weights are back and whose KV cache is not takes up no request."""
        server = Server(has_metrics=False).log(STARTING, READY, line(), ASLEEP).log(HALF_AWAKE, after=20)
        half = server.engine(after=100).state
        server.log(OTHER_HALF)

        assert ("sleeping", "idle") == (half, server.engine().state)

    def test_a_start_ends_it(self):
        """A server that is started again is not paused."""
        server = Server(has_metrics=False).log(STARTING, READY, PAUSED).log(STARTING, READY, after=60)

        assert "idle" == server.engine().state

    def test_what_had_begun_may_end(self):
        """A pause that waits for running requests is over for nobody: while they get tokens the engine serves."""
        server = Server().log(STARTING, READY).scrape(page(running=4, generated=50)).log(CLOSED, after=1)
        server.scrape(page(running=4, generated=50), after=4)
        busy = {server.scrape(page(running=4, generated=50 + n), after=5).engine().state for n in range(1, 60)}
        drained = scraped(server, page(generated=109), 20)

        assert ({"serving"}, {"serving", "sleeping"}) == (busy, drained - {"idle"})
        assert "sleeping" == server.engine().state

    def test_a_lost_word_or_a_strangers_keeps_nobody_asleep(self):
        """A prompt that is computed minutes after a pause shows that there is none."""
        server = Server().log(STARTING, READY).scrape(page(generated=50)).log(PAUSED, after=1)
        scraped(server, page(generated=50), 30)
        prompt = page(running=1, generated=55).replace(
            b"prompt_tokens_total{%b} 0" % LABELS.encode(), b"prompt_tokens_total{%b} 9" % LABELS.encode()
        )
        server.scrape(prompt, after=5)

        assert {"serving", "stalled"} == scraped(server, prompt, 20)

    def test_from_the_log_alone_a_prompt_ends_it_too(self):
        """A statistics line with prompt tokens minutes after a pause shows that there is none."""
        server = Server(has_metrics=False).log(STARTING, READY, PAUSED)
        paused = server.engine(after=180).state
        server.log(line(1, prompt=50.0, generation=5.0)).log(line(), after=10)

        assert ("sleeping", "idle") == (paused, server.engine(after=600).state)

    def test_resuming_is_believed_at_once(self):
        """A page that still says asleep is older than the line that says resumed."""
        server = Server().log(STARTING, READY).scrape(page(running=1, generated=5, extra=sleep_state(0)))
        asleep = server.engine().state

        assert ("sleeping", "serving") == (asleep, server.log(RESUMED, after=1).engine().state)


def test_the_log_is_quiet_for_the_sleep():
    """While the engine sleeps its log is quiet for that, and for no other reason."""
    server = Server(has_metrics=False).log(STARTING, READY, line(3, generation=5.0)).log(PAUSED, after=1)
    fresh = server.reason("log")
    server.now += 300

    assert ("ok", "sleeping") == (fresh, server.reason("log"))


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

    def test_the_reason_is_said(self):
        """While the server sleeps the probe says so: it has neither failed nor is it overdue."""
        server = Probed().scrape(page(extra=sleep_state(1)))
        server.probe("timeout", takes=20.0)
        server.scrape(page(extra=sleep_state(0)), after=5)
        server.state.next_probe(server.now)
        snapshot = server.state.snapshot(server.now + 1)

        assert ("sleeping", None) == (snapshot.sources[-1].reason, snapshot.probe)

    def test_what_failed_before_is_void_after(self):
        """A probe that was held by the sleep is no failure of the server that woke."""
        server = Probed().scrape(page(extra=sleep_state(1)))
        server.state.start_probe(server.now)
        server.scrape(page(extra=sleep_state(0)), after=5)
        server.state.next_probe(server.now)
        server.state.apply_probe(ProbeResult(server.now + 10, "timeout", None))
        server.scrape(page(extra=sleep_state(1)), after=15)
        server.state.next_probe(server.now)

        assert "starting" == server.state.snapshot(server.now).sources[-1].reason


class TestByTheAccessLog:
    """0.12 to 0.31 print nothing of a pause but the call itself."""

    @pytest.mark.parametrize("code", ["200 OK", "404 Not Found"])
    def test_a_call_to_pause_counts_if_it_was_done(self, code):
        """A call that was answered with 200 paused the server; one that was not found did not."""
        call = f'INFO:     127.0.0.1:51684 - "POST /pause?mode=keep HTTP/1.1" {code}'.encode()
        server = Server(has_metrics=False).log(STARTING, READY, line(3, generation=5.0)).log(line(3), call, after=10)

        assert ("sleeping" if code == "200 OK" else "stalled") == server.engine(after=300).state

    def test_a_call_to_resume_ends_it(self):
        """A call to resume that was answered ends the pause."""
        pause = b'INFO:     127.0.0.1:51684 - "POST /pause HTTP/1.1" 200 OK'
        server = Server(has_metrics=False).log(STARTING, READY, line()).log(pause)
        paused = server.engine(after=300).state

        assert ("sleeping", "idle") == (paused, server.log(pause.replace(b"pause", b"resume")).engine().state)


def test_a_start_that_only_the_page_tells_of_ends_it():
    """A server that was started anew is not paused, even if its log did not say so."""
    server = Server().log(STARTING, READY).scrape(page(generated=50, start=900.0)).log(PAUSED, after=1)
    paused = server.engine(after=5).state
    server.scrape(page(start=1020.0), after=60)

    assert ("sleeping", "idle") == (paused, server.engine().state)


def call(path):
    """Return the line of a call that was answered."""
    return f'INFO:     127.0.0.1:51684 - "POST {path} HTTP/1.1" 200 OK'.encode()


class TestARestThatNobodyVouchesFor:
    """It is not believed: a false stall is seen, an engine that hangs behind a rest that is over is not."""

    @pytest.mark.parametrize("totals", [(2, 1), (3, 2), (1, 0)])
    def test_totals_tell_nothing(self, totals):
        """How often a server was paused before anyone watched does not tell whether it is."""
        server = Server(has_log=False).scrape(page(generated=50, extra=calls(*totals)))

        assert {"serving", "stalled"} == scraped(server, page(running=4, generated=50, extra=calls(*totals)), 60)

    def test_tokens_of_the_log_end_it_beside_a_page(self):
        """Prompts that the log told of long after a pause end it, though no page has shown a token yet."""
        server = Server().log(STARTING, READY, PAUSED).log(line(1, prompt=50.0, generation=5.0), after=600)

        assert "stalled" in scraped(server, page(running=4, waiting=3, generated=50), 60)

    @pytest.mark.parametrize("is_history", [False, True])
    def test_a_pause_before_lines_that_were_passed_over_is_void(self, is_history):
        """Of a pause whose end may be among the lines that were not read nothing is known."""
        server = Server().log(STARTING, READY, PAUSED, is_history=True)
        batch = server.reader.read([call("/health")], ArrivalTimes(server.now))
        server.state.apply_log(batch._replace(is_after_gap=True, is_history=is_history))

        assert "stalled" in scraped(server, page(running=4, waiting=3, generated=50), 120)

    @pytest.mark.parametrize("has_log", [False, True])
    def test_waking_ends_a_pause_too(self, has_log):
        """A server that was paused, put to sleep and woken goes on without a call to resume."""
        server = Server(has_log=has_log).scrape(page(generated=50, extra=calls() + sleep_state(1)))
        if has_log:
            server.log(STARTING, READY).log(call("/pause"), after=1)
        server.scrape(page(running=2, generated=50, extra=calls(1) + sleep_state(1)), after=5)
        paused = server.engine().state
        server.scrape(page(running=2, generated=50, extra=calls(1) + sleep_state(0, 1)), after=5)

        assert "sleeping" == paused == server.engine().state
        assert "stalled" in scraped(server, page(running=2, generated=50, extra=calls(1) + sleep_state(1)), 30)

    def test_a_call_to_wake_up_ends_a_pause_in_the_log(self):
        """A log that prints calls only tells of a pause that waking ended."""
        server = Server(has_metrics=False).log(STARTING, READY, line()).log(call("/pause"), ASLEEP, after=1)
        asleep = server.engine(after=300).state

        assert ("sleeping", "idle") == (asleep, server.log(AWAKE, call("/wake_up"), after=1).engine().state)

    def test_half_awake_with_a_call_is_asleep(self):
        """A call to wake up that brought back only some memory ends nothing."""
        server = Server(has_metrics=False).log(STARTING, READY, line()).log(call("/pause"), ASLEEP, after=1)

        assert "sleeping" == server.log(HALF_AWAKE, call("/wake_up"), after=1).engine(after=300).state

    def test_of_both_in_one_look_the_order_is_lost(self):
        """A server that was paused and resumed between two looks is not taken to be paused."""
        server = Server(has_metrics=False).log(STARTING, READY, line(4, generation=5.0)).log(call("/pause"), after=1)
        server.log(call("/pause"), call("/resume"), after=30).log(line(4, 2), after=5)
        other = Server(has_log=False).scrape(page(generated=50, extra=calls()))
        other.scrape(page(running=2, generated=50, extra=calls(1)), after=5)

        assert "stalled" == server.engine(after=600).state
        assert "stalled" in scraped(other, page(running=2, generated=50, extra=calls(2, 1)), 30)

    def test_a_pause_that_is_answered_late(self):
        """A call to pause that waits for what runs may be answered after the call to resume: it is over then."""
        server = Server(has_log=False).scrape(page(generated=50, extra=calls(1, 1)))
        server.scrape(page(generated=60, extra=calls(2, 1)), after=5).scrape(
            page(generated=60, extra=calls(2, 2)), after=5
        )
        server.scrape(page(generated=60, extra=calls(2, 3)), after=5)

        assert "stalled" in scraped(server, page(running=1, generated=60, extra=calls(3, 3)), 60)

    def test_a_pause_soon_after_the_last_one_is_one(self):
        """A server that is paused, put to sleep, woken, resumed and paused again within two minutes is paused."""
        server = Server(has_log=False).scrape(page(generated=50, extra=calls() + sleep_state(1)))
        for counts, awake in (((1, 0), 1), ((1, 0), 0), ((1, 0), 1), ((1, 1), 1)):
            server.scrape(page(generated=50, extra=calls(*counts) + sleep_state(awake)), after=5)

        body = page(running=1, generated=50, extra=calls(2, 1) + sleep_state(1))
        assert {"sleeping"} == scraped(server, body, 60)

    def test_lines_on_each_pause_go_before_counts(self):
        """Where the log prints each pause in its order, the page's counts of both calls change nothing."""
        server = Server().log(STARTING, READY).scrape(page(generated=50, extra=calls()))
        server.log(PAUSED, RESUMED, PAUSED, after=1)

        assert {"sleeping"} == scraped(server, page(running=1, generated=50, extra=calls(2, 1)), 60)


def test_a_clock_that_is_ahead_by_minutes_ends_no_pause():
    """A start that is still to come when it is first said is no start after a pause, when its time has come either."""
    server = Server().log(STARTING, READY).scrape(page(generated=50, start=1120.0)).log(PAUSED, after=50)

    assert {"sleeping"} == scraped(server, page(running=4, generated=50, start=1120.0), 60)
