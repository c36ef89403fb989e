# SPDX-License-Identifier: Apache-2.0
"""What happened to a server: with its time, bounded, for an hour."""

from __future__ import annotations

from vllm_watch.daemon.exposition.json_view import event_documents
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.reading.log_reader import LogBatch, LogStatus, TailCounts, TimedEvent
from vllm_watch.daemon.state.event_history import EVENT_SECONDS, MAX_EVENTS, EventHistory
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.state.snapshot import StallCount
from vllm_watch_parsers.events import Failure, Lifecycle
from vllm_watch_parsers.scrape import EngineKey


AT = 1_790_000_000.0
OUT_OF_MEMORY, STARTING = Failure("out_of_memory"), Lifecycle("starting")
COMPILED = Failure("kernel_compiled")
DUMPED = Failure("stack_dumped", path="/dumps/VLLM_STACK_DUMP_for_engine_0_7.log")


class Logged:
    """A server that has a log only."""

    def __init__(self):
        self.state = ServerState(ServerSettings("s", has_log=True, metrics_interval=None))
        self.tail = TailCounts()
        self.note(TailCounts())

    def read(self, at, *events, **how):
        """Take in a batch of events of one moment."""
        timed = tuple(TimedEvent(at, event) for event in events)
        self.state.apply_log(LogBatch(timed, {}, len(events), 1, at, 0, **how))

    def note(self, tail):
        """Take in how reading goes."""
        self.state.apply_log_status(LogStatus(is_up=True, reason="ok", tail=tail))

    def events(self, at, ahead=0.0):
        """Return the events at a moment, by their seconds after the start."""
        found = self.state.snapshot(at, ahead).events
        return [(event.at - AT, event.kind, event.what, event.times) for event in found]


def test_failures_and_starts_have_the_times_of_their_lines():
    """A failure that repeats is one event with a count and the last time; one after another event is a new one."""
    server = Logged()
    server.read(AT, OUT_OF_MEMORY, OUT_OF_MEMORY)
    server.read(AT + 5, OUT_OF_MEMORY)
    server.read(AT + 6, STARTING)
    server.read(AT + 7, OUT_OF_MEMORY)

    events = [event for event in server.events(AT + 8) if event[1] != "state"]
    assert events == [(5, "failure", "out_of_memory", 3), (6, "start", "", 1), (7, "failure", "out_of_memory", 1)]


def test_what_explains_a_stall():
    """A kernel that is compiled for requests and a dump of the watchdog are events, the dump with its file."""
    server = Logged()
    server.read(AT, COMPILED, COMPILED)
    server.read(AT + 30, DUMPED)
    snapshot = server.state.snapshot(AT + 31)
    told = [(each.text, each.count, each.path) for each in event_documents(snapshot.events)]

    path = DUMPED.path
    assert ("a kernel was compiled while requests waited for it", 2, None) in told
    assert (f"its watchdog wrote what its threads do: {path}", 1, path) in told
    assert {"kernel_compiled": 2, "stack_dumped": 1} == {kind: n for kind, n in snapshot.log.events.items() if n}
    assert not [sample for sample in server_samples(snapshot) if path in str(sample.labels)]


def test_history_counts_and_undated_lines_do_not():
    """What was in the log before the daemon started is shown if its time is known, which it is not in all logs."""
    server = Logged()
    server.read(AT, OUT_OF_MEMORY, is_history=True)
    server.read(AT, STARTING, is_undated=True)

    assert [event[1] for event in server.events(AT) if event[1] != "state"] == ["failure"]


def test_an_hour_is_kept():
    """An event is gone after an hour; of very many the last ones are kept."""
    server = Logged()
    for second in range(2 * MAX_EVENTS):
        server.read(AT + second, OUT_OF_MEMORY, STARTING)

    assert len(server.events(AT + 100)) == 2 * MAX_EVENTS  # Of two kinds.
    assert (99, "failure", "out_of_memory", 1) in server.events(AT + 99 + EVENT_SECONDS)
    assert {kind for _, kind, _, _ in server.events(AT + 101 + EVENT_SECONDS)} == {"state"}


def test_a_log_that_is_rotated_or_truncated():
    """What happens to the log's files is an event at the next look; what was counted before is none."""
    server = Logged()
    server.note(TailCounts(rotations=3))
    assert server.events(AT) == []
    server.note(TailCounts(rotations=4, truncations=2, files_lost=1))

    assert server.events(AT + 1) == [(1, "file", "rotation", 1), (1, "file", "truncation", 2), (1, "file", "lost", 1)]


def test_stalls_and_their_time_are_counted():
    """Each time that an engine becomes stalled is one stall, and its time adds up; other engines are their own."""
    history = EventHistory()
    for at, first in [(0, "serving"), (10, "stalled"), (15, "stalled"), (20, "serving"), (30, "stalled"), (34, "down")]:
        history.note_states(float(at), {EngineKey("m", "0"): first, EngineKey("m", "1"): "idle"})

    assert [StallCount(2, 14.0), StallCount()] == [history.stalls("0"), history.stalls("1")]


def test_a_stall_that_is_unknown_for_a_while_is_one():
    """While scrapes fail in the middle of a stall its time is not counted, and it is no second stall."""
    history = EventHistory()
    for at, state in enumerate(["serving", "stalled", "unknown", "stalled", "serving", "stalled"]):
        history.note_states(float(at), {EngineKey("m", "0"): state})

    assert history.stalls("0") == StallCount(2, 2.0)
