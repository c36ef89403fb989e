# SPDX-License-Identifier: Apache-2.0
"""What takes more than one line: engines, crashes, lives of a server, operators' prefixes."""

from __future__ import annotations

import pytest

from tests.parsers.lines import SPEC, SPEC_MESSAGE, STATS, STATS_MESSAGE, TIME, json_record, read_line, record

from vllm_watch.daemon.reading import log_reader
from vllm_watch.daemon.reading.log_reader import CRASH_SECONDS, LogBatch, LogReader, TimedEvent
from vllm_watch.daemon.reading.times import ArrivalTimes, PrintedTimes, local_seconds
from vllm_watch_parsers.events import AccessRequest, Failure, Lifecycle, StartupFact


API = "(APIServer pid=7) "
SHM = record("No available shared memory broadcast block found in 60 seconds.", "shm_broadcast.py")
STARTING = record("vLLM API server version 0.12.0", "api_server.py", process=API)
READY = b"(APIServer pid=7) INFO:     Application startup complete."
STOPPING = record("Shutting down FastAPI HTTP server.", "launcher.py", process=API)
STOPPED = b"(APIServer pid=7) INFO:     Application shutdown complete."
DEAD = record("EngineCore encountered a fatal error.", "core.py", "ERROR", "(EngineCore_DP0 pid=9) ")
BARE_CAUSE = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
HEALTH = b'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK'


class Log:
    """A reader, and what it reads at the times that the test says."""

    def __init__(self):
        self.reader = LogReader()

    def at(self, now, *lines):
        """Return what lines say that are written at `now`."""
        return [timed.event for timed in self.reader.read(lines, ArrivalTimes(now)).events]


@pytest.fixture
def log():
    """A log of which nothing is read yet."""
    return Log()


def stats(engine, process=API):
    """Return a statistics line of an engine."""
    return record(STATS_MESSAGE.replace("Engine 000", f"Engine {engine:03d}"), process=process)


def spec(process=API):
    """Return a line on speculative decoding, which names no engine."""
    return record(SPEC_MESSAGE, "metrics.py", process=process)


def test_speculative_decoding_belongs_to_the_engine_of_the_line_before(log):
    """Under data parallelism each engine's statistics line is followed by its line on drafts."""
    said = log.at(0, stats(0), spec(), stats(1), spec())

    assert [event.engine for event in said] == ["0", "0", "1", "1"]


def test_the_engine_is_remembered_by_process(log):
    """Two API servers' lines may take turns."""
    other = "(ApiServer_1 pid=8) "
    said = log.at(0, stats(0), stats(3, other), spec(), spec(other))

    assert said[2:] == [SPEC._replace(engine="0"), SPEC._replace(engine="3")]


def test_the_engine_is_remembered_from_read_to_read(log):
    """Lines that belong together may arrive apart."""
    log.at(0, stats(2))

    assert log.at(1, spec()) == [SPEC._replace(engine="2")]


def test_before_any_statistics_the_engine_is_unknown(log):
    """A line on drafts that comes first has no engine, and so has one after a start."""
    assert log.at(0, spec()) == [SPEC]
    log.at(1, stats(2))
    assert log.at(2, STARTING, spec())[-1] == SPEC


def test_so_many_processes_are_remembered_and_no_more(log, monkeypatch):
    """Process names without end are not kept; known ones are kept."""
    monkeypatch.setattr(log_reader, "MAX_PROCESSES", 2)
    log.at(0, stats(1, "(a pid=1) "), stats(1, "(b pid=1) "), stats(1, "(c pid=1) "), stats(2, "(a pid=1) "))

    assert [event.engine for event in log.at(1, *(spec(f"({name} pid=1) ") for name in "abc"))] == ["2", "1", None]


def test_a_crash_counts_once(log):
    """A dying engine says it again and again: within a minute of the last time it is the same crash."""
    assert log.at(0, DEAD, DEAD) == [Failure("engine_dead", "0")]
    assert log.at(CRASH_SECONDS, DEAD) == []
    assert log.at(2 * CRASH_SECONDS, DEAD) == []
    assert log.at(3 * CRASH_SECONDS + 1, DEAD) == [Failure("engine_dead", "0")]


def test_a_crash_after_a_restart_counts_anew(log):
    """A start ends the crash before it."""
    log.at(0, DEAD)

    assert log.at(1, STARTING, DEAD)[-1] == Failure("engine_dead", "0")


def test_failures_of_several_kinds_count_each(log):
    """One crash has a kind for what broke and one for why."""
    assert [event.kind for event in log.at(0, DEAD, BARE_CAUSE, DEAD, BARE_CAUSE)] == ["engine_dead", "out_of_memory"]


@pytest.mark.parametrize(
    "line", [SHM, record("Request x failed with an internal error during generation", "async_llm.py", "ERROR")]
)
def test_stalls_and_failed_requests_count_each_time(log, line):
    """They are events of their own, however close together."""
    assert len(log.at(0, line, line)) == 2


def test_a_bare_cause_is_believed_only_from_a_server_that_starts_or_fails(log):
    """A traceback outside any record may be one request's, with anyone's text in it."""
    assert log.at(0, BARE_CAUSE) == []
    assert log.at(1, STARTING, BARE_CAUSE)[-1] == Failure("out_of_memory")
    assert log.at(100, READY, BARE_CAUSE) == [Lifecycle("ready")]
    assert log.at(200, DEAD, BARE_CAUSE)[-1] == Failure("out_of_memory")
    assert log.at(200 + 2 * CRASH_SECONDS, BARE_CAUSE) == []


def test_a_cause_inside_a_failing_record_is_believed_at_once(log):
    """The record's own head says that the engine is dead."""
    head = f"(EngineCore_DP0 pid=9) ERROR {TIME} [core.py:300] ".encode()

    assert [event.kind for event in log.at(0, DEAD + b"\r", head + BARE_CAUSE)] == ["engine_dead", "out_of_memory"]


def test_a_cause_is_believed_where_a_tool_removed_carriage_returns(log):
    """Then each line of a traceback is a record of its own, judged as bare text is."""
    cause = record(BARE_CAUSE.decode(), "core.py", "ERROR", "(EngineCore_DP0 pid=9) ")

    assert log.at(0, cause) == []
    assert [event.kind for event in log.at(1, DEAD, cause)] == ["engine_dead", "out_of_memory"]


def test_a_life_goes_from_start_to_stop(log):
    """Each phase is told once, however many processes and lines say it."""
    lines = [
        STARTING,
        READY,
        READY,
        STOPPING,
        b"INFO:     Shutting down",
        STOPPED,
        b"INFO:     Finished server process [7]",
    ]

    assert [event.phase for event in log.at(0, *lines) if isinstance(event, Lifecycle)] == [
        "starting",
        "ready",
        "shutting_down",
        "stopped",
    ]


def test_several_api_servers_are_one_start(log):
    """Of several API servers' first lines the first counts; each may still say what it is."""
    said = log.at(0, *(STARTING.replace(b"APIServer", b"ApiServer_%d" % number) for number in range(3)))

    assert [event for event in said if isinstance(event, Lifecycle)] == [Lifecycle("starting", "0")]
    assert said.count(StartupFact(engine="0", version="0.12.0")) == 1


def test_the_last_api_server_to_shut_down_does_not_bring_the_server_back(log):
    """What is stopped does not shut down again."""
    said = log.at(0, STARTING, READY, STOPPED, STOPPING, STOPPED)

    assert [event.phase for event in said if isinstance(event, Lifecycle)] == ["starting", "ready", "stopped"]


def test_a_server_that_starts_again_without_a_stop_has_a_new_life(log):
    """A killed server says nothing; its next start is one all the same."""
    said = log.at(0, STARTING, READY, STARTING)

    assert [event.phase for event in said if isinstance(event, Lifecycle)] == ["starting", "ready", "starting"]


@pytest.mark.parametrize("form", ["vllm-0 {line}", "(APIServer pid=7) vllm-0 {bare}"])
def test_a_prefix_is_believed_where_the_start_had_it(log, form):
    """VLLM_LOGGING_PREFIX stands on every line of a server that has it."""

    def prefixed(line):
        text = line.decode()
        return form.format(line=text, bare=text.removeprefix(API)).encode()

    assert log.at(0, prefixed(stats(0))) == []
    assert log.at(1, prefixed(STARTING)) == [Lifecycle("starting"), StartupFact(version="0.12.0")]
    assert log.at(2, prefixed(stats(0))) == [STATS]
    assert log.at(3, prefixed(stats(0)).replace(b"vllm-0", b"vllm-1")) == []


def test_a_stranger_s_text_is_no_prefix(log):
    """Text before a perfect statistics line is not believed from a server without a prefix."""
    log.at(0, STARTING)

    assert log.at(1, b"ValueError: " + stats(0), b"x " + stats(0)) == []
    assert log.at(2, stats(0)) == [STATS]


def test_the_rest_of_a_prefixed_record_needs_the_prefix_too(log):
    """A stranger's prefix is not believed on the later lines of a record either."""
    head = f"x (EngineCore pid=9) ERROR {TIME} [core.py:300] ".encode()

    assert log.at(0, STARTING, head + b"EngineCore failed to start.\r", head + BARE_CAUSE) == [
        Lifecycle("starting"),
        StartupFact(version="0.12.0"),
    ]


def test_requests_are_counted_not_listed(log):
    """A batch counts its access lines by request; nothing else of it depends on how many there were."""
    lines = [HEALTH] * 3 + [stats(0)] + [HEALTH.replace(b"/health", b"/v1/models?a=1"), HEALTH]
    batch = log.reader.read(lines, ArrivalTimes(5.0))

    assert batch.requests == {
        AccessRequest("GET", "/health", 200, "/health"): 4,
        AccessRequest("GET", "/v1/models", 200, "/v1/models?a=1"): 1,
    }
    assert batch.events == (TimedEvent(5.0, STATS),)
    assert (batch.lines, batch.size, batch.end) == (6, sum(len(line) + 1 for line in lines), 5.0)


@pytest.mark.parametrize(
    ("start", "request_text"),
    [
        (b"INFO:     ", b'GET /health HTTP/1.1" 200 OK'),
        (b"(APIServer pid=7) INFO:     ", b'GET /health HTTP/1.1" 200 OK'),
        (b"\x1b[1;36m(APIServer pid=7)\x1b[0;0m INFO:     ", b'GET /health HTTP/1.1" 200 OK'),
        (
            b"\x1b[0;36m(ApiServer_1 pid=7)\x1b[0;0m \x1b[32mINFO\x1b[0m:     ",
            b'\x1b[1mGET /health HTTP/1.1\x1b[0m" \x1b[32m200 OK\x1b[0m',
        ),
    ],
    ids=["bare", "named", "coloured name", "terminal"],
)
def test_access_lines_of_every_form_are_counted_without_a_look_at_their_head(log, monkeypatch, start, request_text):
    """They are most of a log, in each release's form: none is parsed as a line that could be anything."""
    monkeypatch.setattr(log_reader, "parse_line", None)
    batch = log.reader.read([start + b'127.0.0.1:%d - "' % port + request_text for port in (1, 2)], ArrivalTimes(5.0))

    assert batch.requests == {AccessRequest("GET", "/health", 200, "/health"): 2}


def test_one_line_at_a_time_gives_requests_as_events(log):
    """A reader that goes line by line sees each request where it stands."""
    (timed,) = read_line(log.reader, HEALTH, ArrivalTimes(5.0))

    assert timed == TimedEvent(5.0, AccessRequest("GET", "/health", 200, "/health"))


def test_a_record_goes_on_from_batch_to_batch(log):
    """A record may be cut between two looks at the file: its rest is still no record of its own."""
    first = record("Received request x", "async_llm.py", process=API) + b"\r"
    rest = record("vLLM API server version 9.9.9", "async_llm.py", process=API)

    assert log.at(0, first) == []
    assert log.reader.read([rest], ArrivalTimes(1)) == LogBatch((), {}, 1, len(rest) + 1, 1, 1, 1)


def test_at_the_start_of_a_file_a_line_begins_a_record(log):
    """Where another file is gone on with from its start, the first line continues nothing."""
    log.at(0, record("Received request x", "async_llm.py") + b"\r")
    log.reader.start_file()

    assert log.at(1, STARTING)[0] == Lifecycle("starting")


LATER = STARTING.replace(TIME.encode(), b"11-21 02:35:11")


@pytest.mark.parametrize("other", ["x", "Request x failed", "Engine core"])
def test_after_a_skip_a_line_may_continue_a_record(log, other):
    """I1: where reading goes on elsewhere, no line is believed that has the first one's time, but statistics."""
    log.reader.lose_place()

    assert log.at(1, record(other, "async_llm.py"), STARTING, DEAD, stats(0), spec()) == [
        STATS,
        SPEC._replace(engine="0"),
    ]
    assert log.at(2, LATER)[0] == Lifecycle("starting")


@pytest.mark.parametrize("between", [HEALTH, READY, json_record("x")])
def test_after_a_skip_some_lines_stand_between_records(log, between):
    """I1: uvicorn prints between records, and a record in JSON is a line."""
    log.reader.lose_place()
    log.at(1, record("x", "async_llm.py"), between)

    assert log.at(2, STARTING if between is not READY else LATER)[0] == Lifecycle("starting")


def test_what_is_passed_over_is_not_believed(log):
    """I1: lines that are read only to learn what is open say nothing, and what they leave open is known."""
    log.reader.lose_place()
    log.reader.skip_lines([HEALTH, STARTING, DEAD, record("Received request x", "async_llm.py") + b"\r"])

    assert log.at(1, record("vLLM API server version 9.9.9", "async_llm.py")) == []
    assert log.at(2, STARTING)[0] == Lifecycle("starting")


@pytest.mark.parametrize("beginning", [record("Added request x", "async_llm.py"), b""])
def test_a_line_that_was_dropped_may_open_a_record(log, beginning):
    """I1: what follows a shortened line is believed only once it cannot continue its record."""
    log.at(0, LATER)

    assert log.at(1, beginning + b"\0\r", record("vLLM API server version 9.9.9", "async_llm.py") + b"\r") == []
    assert log.at(2, record("vLLM API server version 9.9.9", "async_llm.py")) == []
    assert log.at(3, LATER)[0] == Lifecycle("starting")


REFUSED = [
    record("x", "logger.py") + b"\r\n" + record(STATS_MESSAGE, "logger.py"),
    record("x", "async_llm.py") + b"\r\n" + record("vLLM API server version 9.9.9", "async_llm.py"),
    record("x", "async_llm.py", "ERROR") + b"\r\n" + record(READY.decode().removeprefix(API), "async_llm.py", "ERROR"),
    record("x", "async_llm.py", "ERROR") + b"\r\n" + record(DEAD.decode(), "async_llm.py", "ERROR"),
    record("x", "async_llm.py", "ERROR") + b"\r\n" + record("EngineCore failed to start.", "async_llm.py", "ERROR"),
    record(STATS_MESSAGE, "logger.py"),
    record(SPEC_MESSAGE, "core.py"),
    b"x " + record(STATS_MESSAGE),
    json_record(f"x\n{STATS_MESSAGE}", name="vllm.v1.engine.async_llm"),
]


@pytest.mark.parametrize("lines", REFUSED)
def test_a_line_that_may_be_forged_is_counted(log, lines):
    """I1, I2: what looks like news and stands in the wrong place is not believed, and one can see that it came."""
    batch = log.reader.read(lines.split(b"\n"), ArrivalTimes(1))

    assert ((), 1) == (batch.events, batch.rejected_lines)


def test_honest_lines_are_not_counted_as_forged(log):
    """I1: a traceback, the logo, and what a request says are refused nothing."""
    head = f"(APIServer pid=7) ERROR {TIME} [serving_chat.py:300] "
    lines = [
        head + text + "\r" for text in ("Error in x", "Traceback (most recent call last):", "  File x", "ValueError")
    ]
    batch = log.reader.read([*(line.encode() for line in lines), STARTING, READY, stats(0), HEALTH], ArrivalTimes(1))

    assert 0 == batch.rejected_lines


def test_no_lines_are_an_empty_batch(log):
    """Reading nothing is harmless."""
    assert log.reader.read([], ArrivalTimes(5.0)) == LogBatch((), {}, 0, 0, 5.0, 0)


@pytest.mark.parametrize("process", [b"", b"(APIServer pid=7) "])
def test_a_terminals_line_ends_open_no_records(process):
    r"""A log that came through a terminal ends every line in ``\r\n``; its records are read all the same."""
    lines = [
        process + b'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK\r',
        b"INFO 11-21 02:35:10 [kv_cache_utils.py:1] GPU KV cache size: 648,592 tokens\r",
        b"INFO 11-21 02:35:10 [core.py:1] Maximum concurrency for 16,384 tokens per request: 39.59x\r",
    ]

    events = [timed.event for timed in LogReader().read(lines, ArrivalTimes(1.0)).events]

    assert [event.kv_cache_tokens or event.max_concurrency for event in events] == [648_592, 39.59]


def test_a_stranger_s_prefix_does_not_set_the_clock():
    """I1: a line that is not believed says no time either: what prints none was written with the line before."""
    lines = [
        record(STATS_MESSAGE),
        b"x " + record(STATS_MESSAGE).replace(b"02:35:10", b"03:00:00"),
        b"(APIServer pid=7) INFO:     Application shutdown complete.",
        record(STATS_MESSAGE).replace(b"02:35:10", b"03:00:00"),
    ]
    end = local_seconds("2026-11-21 03:00:00", 0.0)
    times = PrintedTimes("11-21 03:00:00", end)

    assert [at for at, _ in LogReader().read(lines, times).events] == [end - 1490, end - 1490, end]
