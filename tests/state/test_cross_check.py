# SPDX-License-Identifier: Apache-2.0
"""Two sources that tell different stories: it takes minutes to say so, and nothing less than being wrong."""

from __future__ import annotations

from operator import itemgetter

import pytest

from tests.state.test_shutdown import FINISHED
from tests.support.recordings import recording, snapshots
from tests.support.server_stories import DEAD, Server, line, page

from vllm_watch.analysis.replay.finished_log import LogBytes
from vllm_watch.analysis.replay.recording import MetricsRead
from vllm_watch.analysis.replay.replay import recorded_scrape
from vllm_watch.daemon.reading.log_reader import LogStatus
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


class Run:
    """A server that prints every 10 s and is scraped every 5 s."""

    def __init__(self):
        self.server = Server()
        self.generated = 0.0

    def log(self, *lines):
        """Let lines be written."""
        self.server.log(*lines)
        return self

    def go(self, seconds, *, said=None, rate=100.0, running=4, waiting=0, kv=0.25, forged=None):
        """
        Let time pass.

        Args:
            seconds: How long.
            said: What the log's line says where it differs from the page; `None` for no line at all.
            rate: Tokens generated per second, by the page.
            running: Requests that are running, by the page.
            waiting: Requests that are waiting, by the page.
            kv: The KV cache's use, by the page.
            forged: What a stranger's line says, which is printed as often.
        """
        for second in range(5, seconds + 1, 5):
            self.server.now += 5
            self.generated += rate * 5
            self.server.scrape(page(running=running, waiting=waiting, generated=self.generated, kv=kv))
            if second % 10 == 0 and said is not None:
                self.server.log(line(**{"running": running, "waiting": waiting, "generation": rate, **said}))
            if second % 10 == 5 and forged is not None:
                self.server.log(line(**{"running": running, "waiting": waiting, "generation": rate, **forged}))
        return self

    def found(self):
        """Return what is said of the sources."""
        return dict(self.server.engine().disagreements)


AGREED = {
    "requests_running": False,
    "requests_waiting": False,
    "kv_cache_usage_ratio": False,
    "generation_tokens_per_second": False,
    "engine_state": False,
}


@pytest.mark.parametrize("name", ["day", "stall", "dp1", "vl"])
def test_recorded_servers_agree_with_themselves(name):
    """No recording's log and pages ever disagree: not in overload, not when it dies, freezes or starts again."""
    said = {
        (key, differs)
        for _, snapshot in snapshots(name, step=5.0)
        for engine in snapshot.engines
        for key, differs in engine.disagreements.items()
    }

    assert {differs for _, differs in said} == {False}
    assert {key for key, _ in said} >= {"engine_state"} | ({"requests_running"} if name == "day" else set())


def test_another_servers_log_is_found_out():
    """The overloaded server's log beside the pages of a server that hangs disagree within 3 minutes."""
    later = 200.0
    state = ServerState(ServerSettings("mixed", has_log=True, metrics_interval=5.0))
    log = LogBytes()
    lines = [(event.at, event) for event in recording("day").events() if not isinstance(event, MetricsRead)]
    pages = [(event.at + later, event) for event in recording("stall").events() if isinstance(event, MetricsRead)]
    found = {}
    for at, event in sorted(lines + pages, key=itemgetter(0)):
        if isinstance(event, MetricsRead):
            state.apply_scrape(recorded_scrape(event, at))
        else:
            state.apply_log(log.read(event.data, ArrivalTimes(at)))
            state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=log.counts))
        for name, differs in state.snapshot(at).engines[0].disagreements.items():
            if differs:
                found.setdefault(name, at - later)

    assert found["requests_waiting"] < 180


def differing(quantity):
    """Return what is found where the sources differ in one quantity alone."""
    return {**AGREED, quantity: True}


STORIES = {
    "A log and a page of the same numbers agree in everything.": (lambda run: run.go(120, said={}), AGREED),
    "After a few lines it is too early to say that sources agree.": (
        lambda run: run.go(50, said={}), {"engine_state": False}
    ),
    "More running requests than on any page around it, again and again.": (
        lambda run: run.go(120, said={"running": 40}), differing("requests_running")
    ),
    "More waiting requests.": (lambda run: run.go(120, said={"waiting": 40}), differing("requests_waiting")),
    "More tokens.": (lambda run: run.go(120, said={"generation": 1000.0}), differing("generation_tokens_per_second")),
    "Fewer tokens.": (lambda run: run.go(120, said={"generation": 1.0}), differing("generation_tokens_per_second")),
    "A log of an idle server, silent, beside a page of a busy one: what its last line has holds.": (
        lambda run: run.log(line()).go(180, running=20),
        {**AGREED, "requests_running": True, "generation_tokens_per_second": True},
    ),
    "A log that fell silent because nothing runs, and pages of zeros, agree.": (
        lambda run: run.go(60, said={}).log(line()).go(400, rate=0.0, running=0), AGREED
    ),
    "A cache that stays in use while nothing runs is in the last line as in the pages: silence does not mean 0.": (
        lambda run: run.go(60, said={}).log(line().replace(b"25.0%", b"63.5%")).go(400, rate=0.0, running=0, kv=0.64),
        AGREED,
    ),
    "Strangers' lines that are printed as often as the true ones are half of what the log says: enough.": (
        lambda run: run.go(180, said={}, forged={"waiting": 5000}), differing("requests_waiting")
    ),
    "Five lines that differ, and no more, are no disagreement.": (
        lambda run: run.go(60, said={}).go(50, said={"waiting": 5000}).go(60, said={}), AGREED
    ),
    "When the sources have agreed again for five minutes there is none any more.": (
        lambda run: run.go(120, said={"running": 400}).go(320, said={}), AGREED
    ),
}  # fmt: skip


@pytest.mark.parametrize(("happens", "found"), STORIES.values(), ids=STORIES)
def test_what_the_sources_disagree_about(happens, found):
    """The sentence says what is true: what is found is said, and nothing else."""
    assert found == happens(Run()).found()


@pytest.mark.parametrize(
    ("last", "rate", "contradicted"),
    [(FINISHED, 0.0, True), (DEAD, 100.0, True), (DEAD, 0.0, False)],
)
def test_a_server_that_goes_on_after_its_end(last, rate, contradicted):
    """
    A log that says it is over, and a page that goes on for half a minute after that, disagree.

    The page of a dead engine that stands still does not go on.
    """
    run = Run().go(60, said={})
    run.server.log(last)
    early = run.go(30, rate=rate, running=0).found()["engine_state"]

    assert (False, contradicted) == (early, run.go(5, rate=rate, running=0).found()["engine_state"])
