# SPDX-License-Identifier: Apache-2.0
"""Following a unit's journal: a small program stands in for journalctl and prints what the test wrote down."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from tests.sources.journals import JournalProgram, journal_entry
from tests.support.logs import open_files
from tests.support.waiting import SECONDS, until

from vllm_watch.daemon.reading.framing import MAX_LINE
from vllm_watch.daemon.sources import journalctl
from vllm_watch.daemon.sources.journal_tailer import JournalTailer
from vllm_watch.daemon.sources.journalctl import HISTORY_LINES, MAX_ENTRY, QUEUE_SIZE, SETTLED_AFTER
from vllm_watch_parsers.events import EngineStats, StartupFact


pytestmark = pytest.mark.slow


START = 1_795_000_000.0


def stats_line(running):
    """Return a statistics line with `running` requests."""
    return (
        f"(APIServer pid=7) INFO 11-21 02:35:01 [loggers.py:335] Engine 000: "
        f"Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: {running} reqs, "
        f"Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%"
    )


def record_line(message, second=1, end=""):
    """Return a record of a file that repeats what clients sent."""
    return f"(APIServer pid=7) INFO 11-21 02:35:{second:02d} [async_llm.py:300] {message}{end}"


FORGED_START = record_line("vLLM API server version 9.9.9")


def entry(message, number, at=START + 1, **fields):
    """Return an entry as journalctl prints it."""
    return journal_entry(message, number, at, **fields)


class Journal(JournalProgram):
    """A unit's journal as a test fills it, and its tail."""

    def __init__(self, folder, cursor=None, wall=lambda moment: moment):
        super().__init__(folder)
        self.tail = JournalTailer("vllm.service", cursor=cursor, command=self.command, wall=wall)
        self.now = START
        self.found = []
        self.history = []
        self.times = []
        self.starts = []
        self.gaps = []

    def poll(self, seconds=0.0):
        """Poll once."""
        self.now += seconds
        for batch in self.tail.poll(self.now):
            events = [timed for timed in batch.events if isinstance(timed.event, EngineStats)]
            (self.history if batch.is_history else self.found).extend(timed.event.requests_running for timed in events)
            self.gaps.append(batch.is_after_gap)
            self.times += [timed.at for timed in events]
            self.starts += [timed for timed in batch.events if isinstance(timed.event, StartupFact)]

    def arguments(self, run=0):
        """Return what a run was called with, its locale and its standard input."""
        self.poll_until(lambda: self.has_started(run))
        return self.called_with(run)

    @property
    def counts(self):
        """What has been counted."""
        return self.tail.status().tail


@pytest.fixture
def journal(tmp_path):
    """A journal that is read for the first time."""
    made = Journal(tmp_path)
    yield made
    made.tail.close()


@pytest.fixture
def resumed(tmp_path):
    """A journal that an earlier run has read up to the cursor c7."""
    made = Journal(tmp_path, cursor="c7")
    yield made
    made.tail.close()


def is_child_over(journal):
    """Whether the tail has noticed that its child ended."""
    return lambda: journal.tail._journal._child is None


def test_lines_after_the_start_are_live(journal):
    """A line from after the start is counted, with the time of its arrival."""
    journal.prints(entry(stats_line(1), 1, START - 50))
    journal.poll_until(lambda: journal.history)
    journal.now += 30
    journal.prints(entry(stats_line(2), 2, START + 29))
    journal.poll_until(lambda: journal.found)

    assert ([1], [2]) == (journal.history, journal.found)
    assert [START - 50, START + 30] == journal.times
    assert (1, len(stats_line(2)) + 1) == (journal.counts.lines, journal.counts.size)
    assert (True, "ok") == journal.tail.status()[:2]


@pytest.mark.parametrize("step", [86_400.0, -86_400.0], ids=["forward", "back"])
def test_a_clock_that_was_set_does_not_make_history_live(tmp_path, step):
    """T30: what the journal's entries say is held against the clock that wrote them, wherever it was set meanwhile."""
    journal = Journal(tmp_path, wall=lambda moment: moment + step)
    try:
        journal.prints(entry(stats_line(1), 1, at=START + step - 20), entry(stats_line(2), 2, at=START + step - 10))
        journal.poll_until(lambda: len(journal.history + journal.found) == 2)
        journal.prints(entry(stats_line(3), 3, at=START + step + 1))
        journal.poll_until(lambda: len(journal.history + journal.found) == 3)
    finally:
        journal.tail.close()

    assert ([1, 2], [3]) == (journal.history, journal.found)
    assert [START - 20, START - 10, START] == journal.times


def test_after_silence_all_lines_are_live(journal):
    """A wall clock that was set back since the start does not turn live lines into history."""
    journal.prints(entry(stats_line(1), 1, START - 50))
    journal.poll_until(lambda: journal.history)
    journal.poll(SETTLED_AFTER)
    journal.prints(entry(stats_line(2), 2, START - 3600))
    journal.poll_until(lambda: journal.found)

    assert [START - 50, START + SETTLED_AFTER] == journal.times


def test_the_first_call_asks_for_the_last_lines(journal):
    """Without a cursor journalctl is asked for so many lines; it gets no input and speaks English."""
    arguments, locale, standard_input = journal.arguments()

    assert {"--output=json", "--all", "--follow", "--no-pager", "--unit=vllm.service"} < set(arguments)
    assert f"--lines={HISTORY_LINES}" == arguments[-1]
    assert ("C", os.devnull) == (locale, standard_input)


def test_a_cursor_is_gone_on_from(resumed):
    """With a cursor everything after it is read and counted, with the time at which it was written."""
    resumed.prints(entry(stats_line(1), 8, START - 900), entry(stats_line(2), 9, START + 1))
    resumed.poll_until(lambda: resumed.tail.cursor == "c9")

    assert ["--no-tail", "--after-cursor=c7"] == resumed.arguments()[0][-2:]
    assert ([], [1, 2]) == (resumed.history, resumed.found)
    assert [START - 900, START] == resumed.times
    assert 2 == resumed.counts.lines


STARTUP = [
    entry(f"(APIServer pid=7) INFO 11-21 02:30:00 [api_server.py:1] {text}", number, START - 900)
    for number, text in enumerate(["vLLM API server version 0.12.0", "non-default args: {'model': 'm'}"])
]


def test_what_was_before_the_cursor_is_known_after_a_restart(resumed):
    """The server's start, and all else up to the cursor, is history; what follows is read and counted once."""
    resumed.remembers(*STARTUP, entry(stats_line(1), 7, START - 100))
    resumed.prints(entry(stats_line(2), 8, START - 50))
    resumed.poll_until(lambda: resumed.tail.cursor == "c8")

    assert ["0.12.0"] == [timed.event.version for timed in resumed.starts if timed.event.version]
    assert ["m"] == [timed.event.model for timed in resumed.starts if timed.event.model]
    assert ([1], [2]) == (resumed.history, resumed.found)
    assert [START - 100, START - 50] == resumed.times
    assert (1, len(stats_line(2)) + 1) == (resumed.counts.lines, resumed.counts.size)
    assert not any(resumed.gaps)
    [asked] = resumed.asked()
    assert ["--reverse", f"--lines={HISTORY_LINES}", "--cursor=c7"] == asked.split()[-3:]
    assert "--follow" not in asked


def test_history_moves_no_cursor_and_is_no_future(resumed):
    """Until new lines come, a later run resumes where this one did; what bears a later time than now is of now."""
    resumed.remembers(entry(stats_line(1), 6, START + 3600), b"torn\n", entry("\0" + "x" * (MAX_LINE + 1), 7))
    resumed.poll_until(lambda: resumed.history)
    resumed.poll()

    assert ("c7", [START], []) == (resumed.tail.cursor, resumed.times, resumed.found)
    assert (0, 0, 0, 0) == (
        resumed.counts.lines,
        resumed.counts.long_lines,
        resumed.counts.nul_bytes,
        resumed.counts.skipped_bytes,
    )


def test_history_is_not_read_again_in_one_life(resumed):
    """A child that ends is followed by another one after its last line, without history."""
    resumed.remembers(entry(stats_line(1), 7, START - 100))
    resumed.ends()
    resumed.poll_until(lambda: resumed.tail._journal._child)
    resumed.poll_until(is_child_over(resumed))
    resumed.poll(1)
    resumed.prints(entry(stats_line(2), 8), run=1)
    resumed.poll_until(lambda: resumed.found)

    assert ([1], [2], 1) == (resumed.history, resumed.found, len(resumed.asked()))


def test_history_that_is_not_printed_holds_up_no_line(resumed, monkeypatch):
    """A run for history that hangs is given up; what it has printed is used."""
    monkeypatch.setattr(journalctl, "MAX_SECONDS", 1.0)
    resumed.folder.joinpath("hang").touch()
    resumed.remembers(entry(stats_line(1), 7, START - 100))
    resumed.prints(entry(stats_line(2), 8))
    resumed.poll_until(lambda: resumed.found)

    assert ([1], [2]) == (resumed.history, resumed.found)


def test_history_that_is_cut_starts_with_no_forgery(resumed):
    """I1: the first of so many lines may continue a record; what has its time is not believed."""
    text = "(APIServer pid=7) INFO 11-21 02:31:00 [launcher.py:1] Route: /health, Methods: GET"
    resumed.remembers(
        entry(record_line("vLLM API server version 9.9.9"), 1, START - 100),
        *[entry(text, 2, START - 100)] * (HISTORY_LINES - 2),
        entry(stats_line(1), 7, START - 100),
    )
    resumed.poll_until(lambda: resumed.history)

    assert ([1], []) == (resumed.history, resumed.starts)


def test_a_child_that_ended_is_called_again_after_its_last_line(journal):
    """The next child goes on where the last one ended, a second later."""
    journal.prints(entry(stats_line(1), 1))
    journal.ends()
    journal.poll_until(is_child_over(journal))
    failed = journal.tail.status()
    journal.poll(0.9)
    waiting = journal.tail._journal._child
    journal.prints(entry(stats_line(2), 2), run=1)
    journal.poll(0.2)
    journal.poll_until(lambda: len(journal.found) == 2)

    assert (False, "journal_failed", None) == (failed.is_up, failed.reason, waiting)
    assert "--after-cursor=c1" == journal.arguments(run=1)[0][-1]
    assert [1, 2] == journal.found
    assert (True, "ok") == journal.tail.status()[:2]


def test_a_child_without_rights_is_told_by_its_complaint(journal):
    """The last line of standard error says that the journal may not be read."""
    journal.ends("Hint: …\nNo journal files were opened due to insufficient permissions.")
    journal.poll_until(is_child_over(journal))

    assert (False, "permission_denied") == journal.tail.status()[:2]


def test_a_cursor_that_journalctl_refuses_is_given_up(resumed):
    """A cursor of another journal leads to a first start."""
    resumed.ends("Failed to seek to cursor: Invalid argument")
    resumed.poll_until(is_child_over(resumed))
    resumed.poll(1)
    resumed.prints(entry(stats_line(3), 1, START - 5), run=1)
    resumed.poll_until(lambda: resumed.history)

    assert resumed.tail.has_lost_place
    assert f"--lines={HISTORY_LINES}" == resumed.arguments(run=1)[0][-1]
    assert ([3], [], [True]) == (resumed.history, resumed.found, resumed.gaps)


def test_a_unit_without_a_line_is_no_source_that_works(journal):
    """Nothing is fine before journalctl has shown a line; the first one makes it so, silence does not."""
    journal.poll()
    first = journal.tail.status()[:2], journal.tail.is_waiting
    journal.poll(SETTLED_AFTER)
    settled = journal.tail.status()[:2], journal.tail.is_waiting
    journal.prints(entry(stats_line(1), 1))
    journal.poll_until(lambda: journal.history or journal.found)

    assert ((False, "no_entries"), True) == first
    assert ((False, "no_entries"), False) == settled
    assert (True, "ok") == journal.tail.status()[:2]


def test_silence_after_a_cursor_is_fine(resumed):
    """A unit that was read before and says nothing now is read well, and is waited for no longer than it takes."""
    resumed.poll()
    is_waiting = resumed.tail.is_waiting
    resumed.poll_until(lambda: resumed.tail._journal._child)
    resumed.poll(SETTLED_AFTER)

    assert (True, False) == (is_waiting, resumed.tail.is_waiting)
    assert (True, "ok") == resumed.tail.status()[:2]


def test_a_missing_journalctl_is_said_and_tried_again(tmp_path):
    """Without the command there is a reason and no exception; once it is there, it is called."""
    command = tmp_path / "journalctl"
    tail = JournalTailer("vllm.service", command=(str(command),))
    tail.poll(START)
    missing = tail.status()
    command.write_text("#!/bin/sh\nexec sleep 60\n")
    tail.poll(START + 2)
    forbidden = tail.status()
    command.chmod(0o700)
    tail.poll(START + 10)
    tail.poll(START + 10 + SETTLED_AFTER)
    found = tail.status()
    tail.close()

    assert (False, "journalctl_missing") == missing[:2]
    assert (False, "permission_denied") == forbidden[:2]
    assert (False, "no_entries") == found[:2]


ENTRIES = {
    "numbers": (
        [(list(f"\x1b[36m(APIServer pid=7)\x1b[0;0m {stats_line(4).partition(') ')[2]}".encode()), {})]
        + [(message, {}) for message in ([1, 300], [0xFF, 0xFE], None)],
        ([4], {}),
    ),
    "too long": ([(stats_line(666) + "x" * MAX_LINE, {}), (stats_line(2), {})], ([2], {"long_lines": 1})),
    "a long record": (
        [(record_line("Added request x").ljust(MAX_LINE + 1, "x") + "\r", {}), (FORGED_START, {}), (stats_line(2), {})],
        ([2], {"long_lines": 1}),
    ),
    "lines in a message": ([("hello\r\n" + stats_line(666), {}), (stats_line(1), {})], ([1], {})),
    "NULs": ([("\0\0" + stats_line(1), {})], ([1], {"nul_bytes": 2})),
    **{
        kind: (
            [
                ("prompt: " + "x" * 100, {"_LINE_BREAK": kind, "_STREAM_ID": "a"}),
                (stats_line(1), {"_STREAM_ID": "b"}),
                (stats_line(666), {"_LINE_BREAK": kind, "_STREAM_ID": "a"}),
                (stats_line(667), {"_STREAM_ID": "a"}),
                (stats_line(2), {"_STREAM_ID": "a"}),
            ],
            ([1, 2], {"long_lines": 1, "lines": 3}),
        )
        for kind in ("line-max", "nul", "pid-change")
    },
    "many streams that ended in a cut": (
        [("Segm", {"_LINE_BREAK": "eof", "_STREAM_ID": f"s{number}"}) for number in range(100)]
        + [("x", {"_LINE_BREAK": "line-max", "_STREAM_ID": "a"})]
        + [(stats_line(running), {"_STREAM_ID": "a"}) for running in (666, 1)],
        ([1], {}),
    ),
}
"""Messages with their fields; the numbers that are read of them, and what is counted."""


@pytest.mark.parametrize(("messages", "expected"), ENTRIES.values(), ids=ENTRIES)
def test_of_each_entry_only_a_whole_line_is_believed(journal, messages, expected):
    """I1: bytes given as numbers are read; what is too long, cut, or inside a message leaves no trace but a count."""
    journal.prints(*[entry(message, number, **fields) for number, (message, fields) in enumerate(messages)])
    journal.poll_until(lambda: journal.tail.cursor == f"c{len(messages) - 1}")

    found, counts = expected
    assert (found, []) == (journal.found, journal.starts)
    assert counts == {name: getattr(journal.counts, name) for name in counts}


def test_bad_json_is_skipped_and_counted(journal):
    """What is no entry is counted in bytes, and does not stop what follows."""
    bad = [b"-- No entries --", b"{", b'{"MESSAGE":"no cursor"}', b"[" * 100_000, b'{"__CURSOR":"c","\xff":1}']
    bad += [b'{"__CURSOR":"%s","__REALTIME_TIMESTAMP":"1"}' % cursor for cursor in (b"", b"c\\u0000")]
    no_time = entry("x", 1).replace(b'"__REALTIME_TIMESTAMP": "', b'"__REALTIME_TIMESTAMP": "?').rstrip()
    journal.prints(*[line + b"\n" for line in [*bad, no_time]], entry(stats_line(2), 2))
    journal.poll_until(lambda: journal.tail.cursor == "c2")

    assert [2] == journal.found
    assert sum(map(len, [*bad, no_time])) == journal.counts.skipped_bytes


@pytest.mark.parametrize(
    "text",
    [
        {"_LINE_BREAK": "line-max"},
        record_line("Added request x", end="\r"),
        record_line("Added request x").ljust(MAX_LINE + 1, "x") + "\r",
    ],
    ids=["cut", "record", "long record"],
)
def test_a_daemon_stopped_inside_a_line_or_record_believes_no_rest(resumed, text):
    """I1, I2: what is open at the cursor is known from the lines before it."""
    fields = text if isinstance(text, dict) else {}
    resumed.remembers(entry("x" * 100 if fields else text, 7, START - 100, _STREAM_ID="a", **fields))
    resumed.prints(
        entry(stats_line(666) if fields else FORGED_START, 8, _STREAM_ID="a"), entry(stats_line(2), 9, _STREAM_ID="a")
    )
    resumed.poll_until(lambda: resumed.tail.cursor == "c9")

    assert ([2], []) == (resumed.found, resumed.starts)


# With names: pytest puts the name of a test into the environment, where a megabyte keeps every child from starting.
@pytest.mark.parametrize(
    ("lost", "long_lines"), [(b'{"MESSAGE":"' + b"y" * MAX_ENTRY + b'"}\n', 1), (b"torn\n", 0)], ids=["long", "torn"]
)
def test_behind_an_entry_that_cannot_be_read_no_rest_is_believed(journal, lost, long_lines):
    """I2: it may have opened a record, whose rest is not believed. A long one counts."""
    journal.prints(entry(stats_line(1), 1), lost, entry(FORGED_START, 2), entry(stats_line(2), 3))
    journal.poll_until(lambda: journal.tail.cursor == "c3")

    assert ([1, 2], []) == (journal.found, journal.starts)
    assert long_lines == journal.counts.long_lines


def test_a_backlog_waits_in_bounded_memory(journal):
    """While no one polls, only so much is read; then all of it comes, in order."""
    padding = "z" * 60_000
    lines = [entry(stats_line(number) if number % 2 else padding, number) for number in range(400)]
    journal.prints(*lines)
    journal.poll()
    child = journal.tail._journal._child
    until(lambda: child.pending >= QUEUE_SIZE)
    full = child.pending
    journal.poll()
    has_more = journal.tail.has_more
    journal.poll_until(lambda: journal.tail.cursor == "c399")

    assert QUEUE_SIZE <= full < QUEUE_SIZE + MAX_ENTRY + 64 * 1024
    assert has_more
    assert list(range(1, 400, 2)) == journal.found


def test_nothing_is_left_after_closing(tmp_path):
    """Restarts and the end leave no process, no thread and no descriptor."""
    descriptors, threads = open_files(), threading.active_count()
    journal = Journal(tmp_path)
    pids = []
    for run in range(3):
        journal.poll(60)
        pids.append(journal.tail._journal._child._process.pid)
        journal.ends(run=run)
        journal.poll_until(is_child_over(journal))
    journal.poll(60)
    pids.append(journal.tail._journal._child._process.pid)
    journal.tail.close()
    journal.tail.close()

    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
    assert open_files() <= descriptors
    assert threading.active_count() <= threads


@pytest.mark.parametrize("is_full", [False, True], ids=["idle", "full"])
def test_a_child_that_does_not_want_to_end_is_killed(tmp_path, is_full, monkeypatch):
    """Closing ends a child that ignores the signal, even while it waits to be read."""
    monkeypatch.setattr(journalctl, "_PATIENCE", 0.1)
    ready = tmp_path / "ready"
    script = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(ready)!r}, 'w').close()\nwhile True: {'print(chr(120) * 99999)' if is_full else 'time.sleep(3600)'}"
    )
    tail = JournalTailer("vllm.service", command=(sys.executable, "-c", script))
    tail.poll(START)
    child = tail._journal._child
    until(lambda: child.pending >= QUEUE_SIZE if is_full else ready.exists())
    tail.close()

    assert not os.path.exists(f"/proc/{child._process.pid}")


@pytest.mark.needs_tool("journalctl")
def test_the_real_journalctl_takes_the_options():
    """The machine's journalctl understands how it is called."""
    after, up_to = ["--no-tail", "--after-cursor=s=0;i=0"], ["--reverse", "--lines=2", "--cursor=s=0;i=0"]
    for options in (["--lines=2"], after, up_to):
        arguments = JournalTailer("vllm-watch-test.service")._arguments(*options)
        asked = subprocess.run(arguments, capture_output=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)

        assert b"option" not in asked.stderr
