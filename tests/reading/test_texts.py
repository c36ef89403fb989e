# SPDX-License-Identifier: Apache-2.0
"""Many lines at once are read as they are one by one."""

from __future__ import annotations

import functools
import tempfile

from collections import Counter
from pathlib import Path

import pytest

from hypothesis import example, given
from hypothesis import strategies as st
from tests.parsers.lines import SPEC_MESSAGE, STATS_MESSAGE, TIME, record
from tests.support.recordings import RECORDINGS, ROOT

from vllm_watch.analysis.replay import finished_log, parser_process, replay
from vllm_watch.analysis.replay.finished_log import FinishedLog
from vllm_watch.daemon.reading import access_lines, log_reader
from vllm_watch.daemon.reading.containers import LineReader
from vllm_watch.daemon.reading.framing import MAX_LINE, LineFramer
from vllm_watch.daemon.reading.log_reader import LogBatch, LogReader
from vllm_watch.daemon.reading.parsed_text import parse_text
from vllm_watch.daemon.reading.printed import first_printed_time, last_printed_time
from vllm_watch.daemon.reading.times import ArrivalTimes, PrintedTimes
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings


END = 1_795_302_000.0
API = "(APIServer pid=7) "
HEAD = f"{API}ERROR {TIME} [serving_chat.py:300] "
LOGS = sorted(
    {
        *(ROOT / "recordings").glob("*/vllm.log"),
        *(ROOT / "corpus").glob("*/vllm.log"),
        *(folder / "vllm.log" for folder in RECORDINGS.values()),
    }
)

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
NAMED_LINES = [line for line in LINES if line.startswith(b"(APIServer") and (b"/named" in line or b"/pause" in line)]
_TEXTS = st.lists(st.lists(st.sampled_from(LINES), min_size=1, max_size=30), min_size=1, max_size=4)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Even a few lines are taken at once, and many are several parts."""
    monkeypatch.setattr(log_reader, "SHORT_TEXT", 0)
    monkeypatch.setattr(log_reader, "PART", 512)
    monkeypatch.setattr("vllm_watch.daemon.reading.parsed_text.PART", 512)
    monkeypatch.setattr("vllm_watch.daemon.reading.parsed_text.SHORT_TEXT", 0)
    monkeypatch.setattr("vllm_watch.analysis.replay.finished_log._MANY_BYTES", 0)


def text_of(lines: list[bytes]) -> bytes:
    """Return lines as they are in a file."""
    return b"".join(line + b"\n" for line in lines)


def times_of(text: bytes) -> PrintedTimes:
    """Return the times of a finished log's lines."""
    return PrintedTimes(last_printed_time(text), END, first_printed_time(text))


def variants(log: bytes) -> list[bytes]:
    """Return a log as it is, as a terminal writes it, and with the process's name on access lines."""
    return [log, log.replace(b"\n", b"\r\n"), log.replace(b"\nINFO:     ", b"\n(APIServer pid=7) INFO:     ")]


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


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_a_recorded_log_is_the_same_at_once(path: Path):
    """Every recorded log, also from a terminal and with names, reports the same at once as line by line."""
    for log in variants(path.read_bytes()):
        text = log[: log.rindex(b"\n") + 1]
        by_line = LogReader().read(text[:-1].split(b"\n"), times_of(text))
        at_once = LogReader().read_text(text, times_of(text))

        assert by_line == at_once
        assert list(by_line.requests) == list(at_once.requests)


@given(_TEXTS)
def test_any_lines_are_the_same_at_once(texts):
    """Records, forged lines, terminals and names: one text after the other reports what its lines report."""
    by_line, at_once = LogReader(), LogReader()
    for lines in texts:
        one, other = by_line.read(lines, ArrivalTimes(5.0)), at_once.read_text(text_of(lines), ArrivalTimes(5.0))

        assert one == other
        assert by_line.is_in_record == at_once.is_in_record


@example([[b"vllm-0 " + record(STATS_MESSAGE), b"a\rb"]])
@example([NAMED_LINES])
@given(_TEXTS)
def test_steps_are_the_same_lines(texts):
    """In steps the same is reported, and no batch has an event beside other lines."""
    by_line, in_steps = LogReader(), LogReader()
    for lines in texts:
        text = text_of(lines)
        steps = list(in_steps.read_steps(text, times_of(text), [b"/pause", b"/resume"]))

        assert merged(steps) == by_line.read(lines, times_of(text))._replace(size=merged(steps).size)
        assert all(step.lines == 1 for step in steps if step.events)
        calls = [step for step in steps if any(request.path in {"/pause", "/resume"} for request in step.requests)]
        assert all(step.lines == 1 for step in calls)


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=60), st.integers(0, 400))
def test_a_part_that_was_parsed_elsewhere_is_read_the_same(lines, start):
    """What can be parsed without the lines before it is what a reader finds that knows them."""
    text = text_of([LINES[0], *lines])
    start = text.index(b"\n") + 1 + min(start, len(text) - len(LINES[0]) - 2)
    begin = text.rindex(b"\n", 0, start) + 1
    parsed = parse_text(text, start)
    known, other = LogReader(), LogReader()
    for reader in (known, other):
        reader.read([LINES[0]], ArrivalTimes(5.0))
    if parsed is None:
        return

    assert known.read_text(text[begin:], ArrivalTimes(5.0)) == other.read_parsed(parsed, ArrivalTimes(5.0))
    assert parsed.rest == b""


@pytest.mark.parametrize(
    ("data", "start"),
    [
        (b"INFO:     x\r\n", 0),
        (b"a\0b\n", 0),
        (b"no end", 0),
        (b"torn" * 10 + b"\nx\n", 20),
        (b"x" * (MAX_LINE + 1) + b"\n", 0),
        (b"a\n" + b"x" * (MAX_LINE + 1), 0),
    ],
)
def test_what_only_its_reader_can_parse_is_left_to_it(data, start):
    """Records, dropped bytes, long lines, and lines whose start is not there are not parsed elsewhere."""
    assert parse_text(data, start) is None


def test_a_reader_inside_a_record_takes_no_parsed_text():
    """Lines after an open record may continue it: they are read one by one."""
    reader = LogReader()
    reader.read([LINES[0], HEAD.encode() + b"x\r"], ArrivalTimes(1.0))

    assert reader.read_parsed(parse_text(LINES[0] + b"\n", 0), ArrivalTimes(1.0)) is None


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_framing_gives_texts_as_lines(pieces):
    """A text is the lines that `feed` returns, whatever pieces came before."""
    text_framer, framer = LineFramer(30), LineFramer(30)
    for piece in pieces:
        lines = framer.feed(piece)
        text = text_framer.feed_text(piece)

        assert lines == (text_framer.feed(piece) if text is None else text[:-1].split(b"\n"))
        assert framer.pending == text_framer.pending


def test_wrapped_lines_are_no_text():
    """A container runtime's lines must be unwrapped one by one."""
    reader = LineReader()

    assert reader.feed_text(b'{"log":"' + b"x" * 80 + b'\\n","stream":"stdout"}\n') is None


def test_two_lines_that_look_like_one_are_looked_at():
    """A peer without an end is no access line, although the next line has one."""
    text = b'\nINFO:     peer\nx - "GET /torn HTTP/1.1" 200 OK\n'

    assert access_lines.separate(text, 1, len(text), access_lines.access_form(text)) is None


class _OneProcess:
    """Parses each block where it is taken, in place of a second process."""

    def __init__(self, file, block, _count, parse, _asked):
        self.take = functools.partial(parser_process._parse, file, block, parse)

    def close(self):
        pass


@given(_TEXTS, st.sampled_from([100, 1000]))
def test_the_samples_of_a_log_are_those_of_its_lines(texts, block):
    """An old log becomes the same snapshots in steps as line by line, also in steps that were parsed elsewhere."""
    text = text_of([line for lines in texts for line in lines if not line.endswith(b'/terminal HTTP/1.1" 200 OK\r')])
    found = []
    for way in ("lines", "steps", "parsed"):
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "vllm.log"
            path.write_bytes(text)
            patch.setattr(FinishedLog, "__init__", functools.partialmethod(_of_bytes, text))
            if way == "lines":
                patch.setattr(FinishedLog, "read_steps", lambda log: log.read(by_line=True))
            elif way == "parsed":
                patch.setattr(finished_log, "READ_SIZE", block)
                patch.setattr(finished_log, "is_worthwhile", lambda _size: True)
                patch.setattr(finished_log, "ParserProcess", _OneProcess)
            state = ServerState(ServerSettings("vllm", has_log=True, metrics_interval=None))
            found.append(list(replay.run_log(str(path), state, 5.0)))

    assert found[0] == found[1] == found[2]


def _of_bytes(log: FinishedLog, text: bytes, path: str) -> None:
    log._path, log._size, log._read = path, len(text), 0
    log._bytes = replay.LogBytes()
    log._times = times_of(text)
