# SPDX-License-Identifier: Apache-2.0
"""The causes of failures: in a failing engine's record, in a worker's, and bare, but not in a request's."""

from __future__ import annotations

import pytest

from tests.parsers.lines import CAUSES, TIME, events, events_of, json_record

from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch_parsers.events import Failure
from vllm_watch_parsers.line import parse_line


EVERY_CAUSE = pytest.mark.parametrize(("cause", "why"), [(row.text, list(row.events)) for row in CAUSES])
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.62 GiB."


def traceback_of(cause, head="EngineCore encountered a fatal error.", site="core.py", level="ERROR", prefix=""):
    """Return a failing engine's record: its head, a traceback, and the cause as the last line."""
    start = f"{prefix}(EngineCore pid=9) {level} {TIME} [{site}:700] "
    body = [head, "Traceback (most recent call last):", '  File "/a/core.py", line 1, in run', "    run()", cause]
    return "\r\n".join(start + line for line in body).encode()


@EVERY_CAUSE
def test_the_last_line_of_a_traceback_says_why(cause, why):
    """A failing engine's record gives the failure of its head and that of its cause; in JSON it is one line."""
    line = json_record(
        "EngineCore encountered a fatal error.",
        name="vllm.v1.engine.core",
        levelname="ERROR",
        exc_info=f"Traceback (most recent call last):\n  File\n{cause}",
    )

    assert events_of(traceback_of(cause)) == list(events(line)) == [Failure("engine_dead"), *why]


@EVERY_CAUSE
def test_a_workers_traceback_says_why_without_saying_that_the_engine_is_dead(cause, why):
    """Workers print a traceback of their own."""
    for head in ("WorkerProc hit an exception.", "WorkerProc failed to start.", "Error executing method 'x'."):
        assert events_of(traceback_of(cause, head, "multiproc_executor.py")) == why


@EVERY_CAUSE
def test_a_bare_traceback_is_marked_as_bare(cause, why):
    """A dying process prints its traceback outside any record: the reader of lines judges whether to believe it."""
    for line in (cause, f"(EngineCore pid=9) {cause}"):
        parsed = parse_line(line.encode())

        assert (list(parsed.events), parsed.is_bare) == (why, True)


def test_the_cause_of_a_prefixed_record_is_read_too():
    """An operator's prefix stands on every line of a record, and every line reports it."""
    open_record, found = None, []
    for line in traceback_of(OUT_OF_MEMORY, prefix="vllm-0 ").split(b"\n"):
        parsed = parse_line(line, open_record)
        open_record = parsed.record
        found += [(event.kind, parsed.prefix) for event in parsed.events]

    assert found == [("engine_dead", "vllm-0 "), ("out_of_memory", "vllm-0 ")]


def test_a_crash_of_several_ranks_counts_once():
    """The watchdog's lines, the workers' tracebacks and the engine's are one failure of each kind."""
    cause = "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"
    watchdog = (
        "[rank{0}]:[E1121 04:47:39.1234 ProcessGroupNCCL.cpp:2068] [PG ID 2 PG GUID 3 Rank {0}] Process group watchdog "
        "thread terminated with exception: CUDA error: an illegal memory access was encountered"
    )
    worker = traceback_of(cause, "WorkerProc hit an exception.", "multiproc_executor.py")
    lines = [watchdog.format(0).encode(), watchdog.format(1).encode(), *(2 * worker.split(b"\n"))]
    lines += [*traceback_of(cause).split(b"\n"), cause.encode(), f"(EngineCore pid=9) {cause}".encode()]
    found = LogReader().read(lines, ArrivalTimes(1000.0)).events

    assert [Failure("cuda_illegal_access"), Failure("engine_dead")] == [event for _, event in found]


@pytest.mark.parametrize("head", ["Error in chat completion stream generator.", "Received request x"])
def test_a_traceback_of_one_request_is_no_failure_of_the_engine(head):
    """A request's own traceback may quote anything; only a failing engine's says why it fails."""
    assert events_of(traceback_of(OUT_OF_MEMORY, head, "serving_chat.py")) == []
