# SPDX-License-Identifier: Apache-2.0
"""An old log is read the same in whatever batches, from the file that was opened, and each event in its turn."""

from __future__ import annotations

import os
import tempfile

from collections import Counter
from pathlib import Path

import pytest

from hypothesis import example, given
from hypothesis import strategies as st
from tests.parsers.lines import SPEC_MESSAGE, STATS_MESSAGE, TIME, record
from tests.parsers.releases import RELEASES, log_lines
from tests.support.recordings import RECORDINGS, log_of

from vllm_watch.analysis.replay import finished_log
from vllm_watch.analysis.replay.finished_log import FinishedLog, LogBytes
from vllm_watch.analysis.replay.replay import run_logs
from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.times import PrintedTimes, first_printed_time, last_printed
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


END = 1_795_302_000.0
API = "(APIServer pid=7) "
HEAD = f"{API}ERROR {TIME} [serving_chat.py:300] "
LINES = [
    b'INFO:     127.0.0.1:5 - "GET /health HTTP/1.1" 200 OK',
    b'INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 200 OK',
    b'INFO:     127.0.0.1:5 - "POST /pause HTTP/1.1" 200 OK',
    b'INFO:     127.0.0.1:5 - "POST /resume HTTP/1.1" 200 OK',
    b'INFO:     [::1]:5 - "GET /v1/models?a - b HTTP/1.1" 404 Not Found',
    b'INFO:      - "GET /unix HTTP/1.1" 200 OK',
    b'INFO:     - "GET /four HTTP/1.1" 200 OK',
    b'INFO:     x y - "GET /blank HTTP/1.1" 200 OK',
    b'INFO:     x - "',
    b"INFO:     peer",
    b'peer - "GET /torn HTTP/1.1" 200 OK',
    b'(APIServer pid=7) INFO:     127.0.0.1:5 - "GET /named HTTP/1.1" 200 OK',
    b'(APIServer pid=7) INFO:     127.0.0.1:5 - "POST /pause?level=1 HTTP/1.1" 200 OK',
    b'(APIServer pid=7) INFO:     127.0.0.1:5 - "GET /no request',
    b'(APIServer pid=7) INFO:     127.0.0.1:5 - "GET /\x1b[32mgreen\x1b[0m HTTP/1.1" 200 OK',
    b'\x1b[32mINFO\x1b[0m:     127.0.0.1:5 - "GET /green HTTP/1.1" 200 OK',
    b"(APIServer pid=7) INFO:     Application startup complete.",
    b"INFO:     Shutting down",
    b"INFO:     Finished server process [7]",
    record(STATS_MESSAGE),
    record(STATS_MESSAGE.replace("Engine 000", "Engine 003"), process=API).replace(b"02:35:10", b"02:36:40"),
    record(STATS_MESSAGE.replace("12.3", "nan"), process=API),
    record(SPEC_MESSAGE, "metrics.py", process=API),
    record(SPEC_MESSAGE, "core.py", process=API),
    record("vLLM API server version 0.12.0", "api_server.py", process=API),
    record("EngineCore encountered a fatal error.", "core.py", "ERROR", "(EngineCore_DP0 pid=9) "),
    record("Received request x: prompt: 'a', params: y", "request_logger.py", process=API),
    record("Added request x.", "async_llm.py", process=API),
    record("Received request x", "logger.py") + b"\x1b[0m",
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.",
    b"vllm-0 " + record(STATS_MESSAGE),
    HEAD.encode() + b"Error in x\r",
    HEAD.encode() + b'INFO:     1.2.3.4:5 - "GET /forged HTTP/1.1" 200 OK\r',
    HEAD.encode() + b"ValueError: x",
    b'INFO:     127.0.0.1:5 - "GET /terminal HTTP/1.1" 200 OK\r',
    b"a\rb",
    b"",
]
LOGS = st.lists(st.sampled_from(LINES), min_size=1, max_size=100)


def text_of(lines: list[bytes]) -> bytes:
    """Return lines as they are in a file."""
    return b"".join(line + b"\n" for line in lines)


def times_of(text: bytes) -> PrintedTimes:
    """Return the times of a finished log's lines."""
    return PrintedTimes(last_printed(text).time, END, first_printed_time(text))


def merged(batches: list[LogBatch]) -> LogBatch:
    """Return what several batches report together."""
    requests: Counter = Counter()
    for batch in batches:
        requests.update(batch.requests)
    return batches[-1]._replace(
        events=tuple(timed for batch in batches for timed in batch.events),
        requests=requests,
        lines=sum(batch.lines for batch in batches),
        size=sum(batch.size for batch in batches),
        continuation_lines=sum(batch.continuation_lines for batch in batches),
        rejected_lines=sum(batch.rejected_lines for batch in batches),
    )


def same_in_any_batches(text: bytes) -> None:
    """Read a log as a whole, line by line, and each event apart."""
    lines, by_line = text[:-1].split(b"\n"), LogReader()
    by_line.as_written(lines)  # Whether there is a terminal is seen at the first of uvicorn's lines.
    times = times_of(text)
    whole = LogReader().read(lines, times_of(text))
    apart = list(LogBytes().read_apart(text, times_of(text)))

    assert merged([by_line.read([line], times) for line in lines]) == whole
    assert merged(apart) == whole
    assert all(step.lines == 1 for step in apart if step.events)
    calls = [step for step in apart if any(request.path in {"/pause", "/resume"} for request in step.requests)]
    assert all(step.lines == 1 for step in calls)


@pytest.mark.parametrize("name", [*RECORDINGS, *RELEASES])
@pytest.mark.parametrize("change", ["none", "terminal", "named"])
def test_a_recorded_log_is_the_same_in_any_batches(name, change):
    """Also as a terminal writes it, and with the process's name on access lines."""
    text = log_of(name) if name in RECORDINGS else text_of(log_lines(name))
    text = text[: text.rindex(b"\n") + 1]
    if change == "terminal":
        text = text.replace(b"\n", b"\r\n")
    elif change == "named":
        text = text.replace(b"\nINFO:     ", b"\n(APIServer pid=7) INFO:     ")

    same_in_any_batches(text)


@example([b"vllm-0 " + record(STATS_MESSAGE), b"a\rb"])
@given(LOGS)
def test_any_lines_are_the_same_in_any_batches(lines):
    """Records, forged lines, terminals and names: it does not matter which lines are read together."""
    same_in_any_batches(text_of(lines))


@given(LOGS, st.sampled_from([100, 1000]))
def test_the_samples_of_a_log_are_those_of_its_lines(lines, size):
    """An old log becomes the same snapshots in blocks of any size as line by line."""
    text = text_of([line for line in lines if not line.endswith(b'/terminal HTTP/1.1" 200 OK\r')])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "vllm.log"
        path.write_bytes(text)
        os.utime(path, (END, END))
        patch.setattr(finished_log, "READ_SIZE", size)
        in_blocks = samples(path)
        patch.setattr(FinishedLog, "read_apart", lambda log: log.read(by_line=True))

        assert in_blocks == samples(path)


def samples(path: Path) -> list:
    """Return the snapshots of an old log."""
    return list(run_logs([str(path)], ServerState(ServerSettings("vllm", has_log=True, metrics_interval=None)), 5.0))


def test_a_log_that_is_rotated_meanwhile_is_read_to_its_end(tmp_path, monkeypatch):
    """The file that was opened is read, whatever its path names since."""
    monkeypatch.setattr(finished_log, "READ_SIZE", 4096)
    path = tmp_path / "vllm.log"
    path.write_bytes(log_of("stall"))
    log = FinishedLog(str(path))
    batches = log.read()
    first = next(batches)
    path.rename(tmp_path / "vllm.log.1")
    path.write_bytes(b"x\n" * 100_000)

    assert merged([first, *batches]).lines == log_of("stall").count(b"\n")
