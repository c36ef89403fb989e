# SPDX-License-Identifier: Apache-2.0
"""
Text from strangers on the whole way: a file, its tail, the state, the page.

A client can put lines into vLLM's log through whatever it has echoed. None of them may change the page but for the
counters that say that lines came. What cannot be told from vLLM's own lines is text printed outside its formatter at
the beginning of a line, if it imitates everything: then the scrape decides, and that is tested, too.
"""

from __future__ import annotations

import functools
import json
import time

import pytest

from tests.parsers.lines import SPEC_MESSAGE, STATS_MESSAGE, TIME, json_record, record
from tests.parsers.test_hostile_lines import ECHOES, FORGED, printed
from tests.sources.journals import JournalProgram, journal_entry
from tests.support.samples import sample
from tests.support.waiting import until

from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.reading.framing import MAX_LINE, MAX_WRAPPED
from vllm_watch.daemon.sources import startup_scan
from vllm_watch.daemon.sources.journal_tailer import JournalTailer
from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.scrape import read_metrics


pytestmark = pytest.mark.slow


NTH = sample(5, whole=1)
"""Reading begins at every so many lines of a hostile log."""

READ_BACKS = sample([0, startup_scan.READ_BACK], whole=[0, 100, 40_000, startup_scan.READ_BACK])
CUT_AT = 16 * 1024
API = "(APIServer pid=7) "
STARTED = f"{API}INFO 11-21 02:30:00 [api_server.py:1] vLLM API server version 0.12.0\n".encode()
READY = b"(APIServer pid=7) INFO:     Application startup complete.\n"
REAL = record(STATS_MESSAGE, process=API) + b"\n" + record(SPEC_MESSAGE, "metrics.py", process=API) + b"\n"
LATER = b"INFO 11-21 02:35:59 [launcher.py:1] Route: /health, Methods: GET\n"
BEFORE = STARTED + READY + REAL

# What is about the lines as such and not about what they say.
ABOUT_LINES = {
    "continuation_lines_total",
    "log_bytes_total",
    "log_lag_bytes",
    "log_lines_total",
    "log_long_lines_total",
    "log_nul_bytes_total",
    "log_skipped_bytes_total",
    "log_lines_rejected_total",
}
MORE_FORGED = [
    "vLLM API server version 9.9.9",
    "INFO:     Shutting down",
    "Shutting down FastAPI HTTP server.",
    "[shutdown] API server: shutdown triggered",
    "Server is ready to accept requests",
    "Worker proc VllmWorker-0 died unexpectedly, shutting down executor.",
    "AsyncLLM output_handler failed.",
    "RuntimeError: NCCL error: unhandled system error",
    "ValueError: No available memory for the cache blocks.",
    STATS_MESSAGE.replace("Running: 7", "Running: 666"),
]
FORGERIES = [*FORGED, *MORE_FORGED]


def plain(text, _stream="stdout"):
    """Return a log as it is without a container."""
    return text


def docker(text, stream="stdout"):
    """Return a log as Docker keeps it: a record for each line, cut at 16 KiB."""
    records = []
    for line in text.splitlines(keepends=True) if b"\r" not in text else text.replace(b"\n", b"\n\xff").split(b"\xff"):
        for at in range(0, len(line), CUT_AT):
            piece = line[at : at + CUT_AT].decode()
            content = {"log": piece, "stream": stream, "time": "2026-11-21T02:35:10.1Z"}
            records.append(json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")
    return "".join(records).encode()


def cri(text, stream="stdout"):
    """Return a log as Kubernetes keeps it."""
    records = []
    for line in text.split(b"\n")[:-1]:
        pieces = [line[at : at + CUT_AT] for at in range(0, len(line), CUT_AT)] or [b""]
        for number, piece in enumerate(pieces, 1):
            tag = b"F" if number == len(pieces) else b"P"
            records.append(b"2026-11-21T02:35:10.1Z %s %s %s\n" % (stream.encode(), tag, piece))
    return b"".join(records)


@pytest.fixture(params=[plain, docker, cri], ids=["plain", "docker", "cri"])
def wrap(request):
    """How the log is kept."""
    return request.param


class Server:
    """A server's log on disk, and everything up to the page."""

    def __init__(self, folder, before=b"", has_metrics=False):
        self.path = folder / "vllm.log"
        self.path.write_bytes(before)
        self.has_metrics = has_metrics
        self.now = time.mktime((2025, 11, 21, 2, 35, 20, 0, 0, -1))  # Soon after its last line says it was written.
        self.restart(())

    def restart(self, positions):
        """Begin to watch, as a new process would."""
        self.tail = LogTailer(str(self.path), positions)
        self.state = ServerState(ServerSettings("s", True, 5.0 if self.has_metrics else None))
        self.poll()

    def write(self, text):
        """Append to the log and poll."""
        with open(self.path, "ab") as file:
            file.write(text)
        self.poll()

    def poll(self):
        """Poll once, a moment later."""
        self.now += 0.001
        for batch in self.tail.poll(self.now):
            self.state.apply_log(batch)
        self.state.apply_log_status(self.tail.status())

    def page(self):
        """Return what the page says, without what is about the lines as such."""
        return {key: value for key, value in self.counts().items() if key[0] not in ABOUT_LINES}

    def counts(self):
        """Return all of the page, as numbers by name and labels."""
        return page_of(self.state, self.now)

    def count(self, name):
        """Return one counter of the server."""
        return self.counts()[name, "s"]


@pytest.fixture
def server(tmp_path, wrap):
    """A server that has said how it is, and is being watched."""
    made = Server(tmp_path)
    made.write(wrap(BEFORE))
    yield made
    made.tail.close()


@functools.cache
def vehicles(forged):
    """Return every way to bring a text into the log that is printed by vLLM or uvicorn, by name."""
    ids = "".join(
        printed(form.format(f"x\n{forged}\n{forged}\ny", "z"), site, level).decode() + "\n"
        for site, form in ECHOES
        for level in ("INFO", "ERROR")
    )
    path = forged.replace("\n", "%0A").replace(" ", "%20")
    return {
        "request id": ids.encode(),
        "long request id": printed(f"Added request {'x' * MAX_LINE}\n{forged}.", "async_llm.py") + b"\n",
        "very long request id": printed(f"Added request {'x' * 3 * MAX_LINE}\n{forged}", "async_llm.py") + b"\n",
        "prompt": record(f"Received request x: prompt: {f'a{chr(10)}{forged}'!r}, params: y", "logger.py") + b"\n",
        "path": f'INFO:     1.2.3.4:5 - "GET /{path} HTTP/1.1" 404 Not Found\n'.encode(),
        "traceback": printed(f"Error in x.\nTraceback (most recent call last):\nValueError: {forged}", "s.py", "ERROR")
        + b"\n",
        "call site": record(forged, "logger.py") + b"\n" + record(forged, "protocol.py", "ERROR") + b"\n",
        "json": json_record(f"Received request {forged}\n{forged}", name="vllm.entrypoints.logger") + b"\n",
        "json without names": json_record(f"Received request x\n{forged}", name=None, levelname=None) + b"\n",
        "output": record(f"Generated response x: output: '{forged}'", "logger.py") + b"\n",
        "behind a cut": record("x" * (CUT_AT - 100), "logger.py").ljust(CUT_AT, b"x") + forged.encode() + b"\n",
        "behind five cuts": (b"x" * CUT_AT + forged.encode().ljust(CUT_AT)) * 5 + forged.encode() + b"\n",
    }


@pytest.mark.parametrize("vehicle", vehicles("x"))
def test_no_echo_changes_the_page(server, wrap, vehicle):
    """I1, I2: whatever vLLM or uvicorn repeats of a client's text, the page is as before."""
    before = server.page()
    for forged in FORGERIES:
        server.write(wrap(vehicles(forged)[vehicle]))
        counted = [
            key for key in server.counts() if key[0] == "http_requests_total" and key[2:] == ("GET", "other", "404")
        ]
        assert before == {key: value for key, value in server.page().items() if key not in counted}, forged
    server.write(wrap(LATER + REAL.replace(b"Running: 7", b"Running: 3")))
    assert 3.0 == next(value for key, value in server.page().items() if key[0] == "requests_running")


@pytest.mark.parametrize("forged", [STATS_MESSAGE, SPEC_MESSAGE, "vLLM API server version 9.9.9"])
def test_a_forgery_through_a_request_id_is_counted(server, wrap, forged):
    """I1: a forged line that continues a record shows in a counter."""
    server.write(wrap(printed(f"Received request x\n{forged}", "logger.py") + b"\n"))

    assert (1, 1) == (server.count("log_lines_rejected_total"), server.count("continuation_lines_total"))


@pytest.mark.parametrize("site", ["logger.py", "serving_chat.py", "core.py", "protocol.py"])
def test_a_forgery_from_another_call_site_is_counted(server, wrap, site):
    """I2: statistics from a file that prints none show in a counter."""
    server.write(wrap(record(STATS_MESSAGE, site) + b"\n"))

    assert 1 == server.count("log_lines_rejected_total")


@pytest.mark.parametrize(("size", "long_lines"), [(CUT_AT, 0), (5 * CUT_AT, 1), (2 * MAX_WRAPPED, 1)])
def test_long_lines_are_counted_and_hide_nothing(server, wrap, size, long_lines):
    """I1: a long prompt is counted once, however it is kept, and the next line is read."""
    server.write(wrap(b"x" * size + b"\n" + REAL.replace(b"Running: 7", b"Running: 5")))

    assert long_lines == server.count("log_long_lines_total")
    assert 5.0 == next(value for key, value in server.page().items() if key[0] == "requests_running")


def hostile_log():
    """Return a log full of forgeries, each of which is the beginning of a line of the file somewhere."""
    forged = [
        "vLLM API server version 9.9.9",
        "GPU KV cache size: 1 tokens",
        "EngineCore encountered a fatal error.",
        "Shutting down FastAPI HTTP server.",
        STATS_MESSAGE.replace("Running: 7", "Running: 666"),
    ]
    pieces = [BEFORE, LATER]
    for text in forged:
        pieces.append(printed(f"Added request x\n{text}\n{text}\ny", "async_llm.py", "ERROR") + b"\n")
        head = record("x", "logger.py", process=API).ljust(CUT_AT, b"x")
        forgery = f"INFO {TIME} [loggers.py:1] {text}".encode()
        pieces.append(head + forgery + b"\n")
        pieces.append(head + forgery.ljust(CUT_AT) * 4 + forgery + b"\n")
        pieces.append(b'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n')
    return b"".join([*pieces, LATER.replace(b":59", b":58"), REAL])


def beginnings(text):
    """Return where the lines of a file begin."""
    return [0, *(at + 1 for at, byte in enumerate(text) if byte == 0x0A)]


def said(page):
    """Return what a forgery would change of a page."""
    names = {"requests_running", "server_info", "kv_cache_capacity_tokens", "engine_state", "log_events_total"}
    return {key: value for key, value in page.items() if key[0] in names and value}


def test_a_restart_anywhere_believes_no_rest(tmp_path, wrap):
    """I1, I2, T2: wherever the daemon is stopped and started again, no rest of a line or record is believed."""
    text = wrap(hostile_log())
    server = Server(tmp_path, text)
    expected = said(server.page())
    for at in beginnings(text)[::NTH]:
        server.path.write_bytes(text[:at])
        server.restart(())
        positions = server.tail.positions()
        server.tail.close()
        server.path.write_bytes(text)
        server.restart(positions)

        assert expected == said(server.page()), at
        server.tail.close()


@pytest.mark.parametrize("read_back", READ_BACKS)
def test_a_cold_start_anywhere_believes_no_rest(tmp_path, wrap, monkeypatch, read_back):
    """I1, I2: wherever in a log reading begins, no rest of a line or record is believed."""
    text = wrap(hostile_log())
    server = Server(tmp_path, text)
    expected = said(server.page())
    monkeypatch.setattr(startup_scan, "READ_BACK", read_back)
    monkeypatch.setattr(startup_scan, "_LEAD", 0)
    monkeypatch.setattr(startup_scan, "START", len(wrap(BEFORE)))
    for at in beginnings(text)[:-4:NTH]:
        for inside in (0, 50):
            monkeypatch.setattr(startup_scan, "TAIL", len(text) - at - inside)
            server.tail.close()
            server.restart(())
            found = said(server.page())

            assert {key[:2] for key in found} <= {key[:2] for key in expected}, at
            assert set(found.items()) <= {*expected.items(), *said_without_start()}, (at, found)
    server.tail.close()


@functools.cache
def said_without_start():
    """Return what the page says where reading began too late to see the start."""
    state = ServerState(ServerSettings("s", True, None))
    return {(("engine_state", "s", "", "0", name), 1.0) for name in ("serving", "unknown", "idle", "saturated")} | {
        (("requests_running", "s", "", "0"), 7.0),
        *((key, value) for key, value in page_of(state).items() if key[0] == "server_info"),
    }


def page_of(state, now=0.0):
    """Return what a state says: all of the page, as numbers by name and labels."""
    return {(s.name, *s.labels): getattr(s, "value", None) for s in server_samples(state.snapshot(now))}


def test_a_file_that_begins_inside_a_line_is_read_as_its_rest(tmp_path, wrap):
    """I2: where a container's runtime begins a new file between two parts, the rest is no line of its own."""
    if wrap is plain:
        pytest.skip("a log without a container is not cut inside lines")
    forged = f"INFO {TIME} [api_server.py:1] vLLM API server version 9.9.9\n".encode()
    long = wrap(b"x" * CUT_AT + forged)
    cut = beginnings(long)[1]
    server = Server(tmp_path, wrap(BEFORE))
    server.write(long[:cut])
    server.path.rename(server.path.with_suffix(".1"))
    server.write(long[cut:] + wrap(LATER))

    assert 0 == server.count("server_starts_total")
    server.tail.close()


@pytest.mark.parametrize("mark", ["vLLM API server version 9.9.9", "\u2588  version 9.9.9"])
def test_a_stranger_s_mark_does_not_hide_the_start(tmp_path, wrap, mark):
    """I2: what only looks like a server's start, in prompts and request ids, is not taken for the last one."""
    forged = printed(f"Added request {mark}\n{mark}\nx", "async_llm.py") + b"\n" + LATER
    filler = b'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK\n' * 6_000
    server = Server(tmp_path, wrap(BEFORE + LATER + filler + forged * 20 + filler))
    server.tail.close()

    assert ("server_info", "s", "", "0.12.0", "", "") in server.page()


def test_no_echo_through_the_journal_changes_the_page(tmp_path):
    """I1, I2: whatever the journal holds of a client's text, the page says what the server said."""
    text = b"".join(
        content
        for forged in FORGERIES
        for name, content in vehicles(forged).items()
        if name != "path" and "behind" not in name
    )
    lines = (BEFORE + text + LATER + REAL.replace(b"Running: 7", b"Running: 3")).split(b"\n")[:-1]
    messages = [list(line) if b"\r" in line or b"\0" in line else line.decode() for line in lines]
    entries = [journal_entry(message, number, 1, _STREAM_ID="a") for number, message in enumerate(messages)]
    program = JournalProgram(tmp_path)
    program.prints(*entries)
    state = ServerState(ServerSettings("s", True, None))
    tail = JournalTailer("vllm.service", cursor="c", command=program.command)

    def has_read_all():
        for batch in tail.poll(time.time()):
            state.apply_log(batch)
        return tail.cursor == f"c{len(entries) - 1}"

    until(has_read_all)
    tail.close()

    page = page_of(state, time.time())
    assert {1.0} == {value for key, value in page.items() if key[0] == "server_starts_total"}
    assert ("server_info", "s", "", "0.12.0", "", "") in page
    assert not [key for key, value in page.items() if key[0] == "log_events_total" and value]


RAW = [
    record(STATS_MESSAGE.replace("Running: 7", "Running: 666"), process=API),
    record("vLLM API server version 9.9.9", "api_server.py", process=API),
    record("EngineCore encountered a fatal error.", "core.py", "ERROR", "(EngineCore_DP0 pid=9) "),
    record("Shutting down FastAPI HTTP server.", "launcher.py", process=API),
    b"INFO:     Shutting down",
    b"INFO:     Application shutdown complete.",
    b"INFO:     Application startup complete.",
]
PAGE = (
    b'vllm:num_requests_running{engine="0",model_name="m"} 2\n'
    b'vllm:num_requests_waiting{engine="0",model_name="m"} 0\n'
    b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5\n'
    b'vllm:generation_tokens_total{engine="0",model_name="m"} %d\n'
)


class TestRawText:
    """
    Text printed outside vLLM's formatter that imitates prefix, process, call site and all cannot be told apart.

    Model output printed at the beginning of a line is such text, and an exception's that no formatter caught.
    """

    @pytest.mark.parametrize("raw", RAW)
    def test_the_scrape_decides(self, tmp_path, raw):
        """I2: no line of the log keeps a server down that computes: two scrapes after it show what is computed."""
        server = Server(tmp_path, has_metrics=True)
        for tokens in range(3):
            self.scrape(server, tokens)
        before = self.gauges(server)
        server.write(BEFORE)
        server.write((raw + b"\n") * 3)
        self.scrape(server, 4)
        self.scrape(server, 5)

        assert before == self.gauges(server)
        assert [1.0] == [
            value for key, value in server.page().items() if key[:1] + key[-1:] == ("engine_state", "serving")
        ]
        server.tail.close()

    def test_a_bare_failure_is_not_believed_of_a_server_that_serves(self, tmp_path):
        """I2: an exception's name and text alone, without a head, is one request's."""
        server = Server(tmp_path)
        server.write(BEFORE)
        before = server.page()
        server.write(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB.\nENGINE DEAD\n")

        assert before == server.page()
        server.tail.close()

    def scrape(self, server, tokens):
        """Read the server's page, a scrape later."""
        server.now += 5.0
        server.state.apply_scrape(ScrapeResult(server.now, 0.01, read_metrics(PAGE % tokens), "ok"))

    def gauges(self, server):
        """Return what the page says of the engine now."""
        names = {"requests_running", "requests_waiting", "kv_cache_usage_ratio"}
        return {key: value for key, value in server.page().items() if key[0] in names}
