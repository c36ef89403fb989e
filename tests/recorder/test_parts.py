# SPDX-License-Identifier: Apache-2.0
"""The parts of a recorder, each for itself: what it keeps, what it writes when, and how it ends a command."""

from __future__ import annotations

import itertools
import json
import lzma
import os
import signal
import sys
import threading

from collections import Counter
from copy import copy
from pathlib import Path

import pytest

from tests.recorder.places import PROMPTS, STATISTICS
from tests.support.recording_files import STARTED, as_file, header
from tests.support.recordings import recording
from tests.support.waiting import HandClock, until

from vllm_watch.analysis.recorder import recorded_command, server_recorder
from vllm_watch.analysis.recorder.recorded_command import KEPT_END, KEPT_START, KeptOutput, ResultFiles, RunningCommand
from vllm_watch.analysis.recorder.recording_session import (
    WRITE_OUT_SECONDS,
    RecordingSession,
    ServerCounts,
    create_file,
    sources_of,
)
from vllm_watch.analysis.recorder.redaction import RedactingReader
from vllm_watch.analysis.recorder.server_recorder import GpuRecorder, LogRecorder, start_lines
from vllm_watch.analysis.replay.recording import LogWritten, Recording
from vllm_watch.analysis.replay.recording_lines import RecordingWriter, Sources, history_line, log_line, scrape_line
from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.cli.commands.backfill import write_backfill
from vllm_watch.daemon.config.server_config import MetricsConfig, ServerConfig
from vllm_watch.daemon.reading.log_reader import KeptLines, LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch.daemon.sources import file_follower
from vllm_watch.daemon.sources.log_file import LogFile
from vllm_watch.daemon.state.gpu_report import GpuProcess, GpuReading, ServerGpu
from vllm_watch.daemon.state.gpu_use import GpuUse
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.events import EngineStats


TIMES = ArrivalTimes(STARTED)
RESULT = {"backend": "vllm", "completed": 1, "duration": 1.0, "request_throughput": 1.0, "mean_ttft_ms": 1.0,
          "total_input_tokens": 1, "total_output_tokens": 1, "output_throughput": 1.0, "num_prompts": 1}  # fmt: skip


@pytest.fixture
def session(tmp_path):
    """A session of a server, and the clock that its test moves."""
    metrics = MetricsConfig(url="http://127.0.0.1:1/metrics")
    server = ServerConfig(name="a", log="/a.log", metrics=metrics, cost_per_hour=2.4)
    clock, stop = HandClock(STARTED), threading.Event()
    sources = {"a": sources_of(server, gpu_interval=2.0)}
    made = RecordingSession(create_file(tmp_path / "out", force=False), sources, clock, stop)
    made.clock, made.stopped = clock, stop
    yield made
    made.end("interrupted")


def gpu(joules):
    """Return a GPU that has used so much energy."""
    values = {("gpu_energy_joules_total",): joules, ("gpu_throttled_seconds_total", "thermal"): 1.5}
    known = GpuReading("GPU-1", 0, "H", "0000:01:00", "570", "nvidia", "0", "ok", values, (GpuProcess(7, 1.0),))
    return ServerGpu("GPU-1", "config", False, 3.0, known, 4.0)


class TestGpus:
    """The GPUs of a server are recorded with what is known of them."""

    def test_each_reading_is_there_once(self, session):
        """Readings have their own times; which processes of others are on a GPU is nobody's business."""
        recorder = GpuRecorder("a", session)
        for seconds, joules in ((1.0, 5.0), (1.0, 5.0), (3.0, 9.0)):
            session.clock.time = STARTED + 3.5
            recorder.apply_gpus(GpuUse(STARTED + seconds, "ok", (gpu(joules),)), 2.0)
        session.end("interrupted")

        read = Recording(session.path)
        first, second = read.events()
        assert (3.5, STARTED + 1.0, 2.0) == (first.at, first.use.at, first.interval)
        assert (gpu(9.0)._replace(reading=gpu(9.0).reading._replace(processes=None)),) == second.use.gpus
        assert Sources(True, 5.0, 2.0, 2.4) == read.sources["a"]
        assert session.counts.servers["a"].gpu_readings == 2

    def test_why_there_is_none_is_there_once(self, session):
        """A failure lasts; on a machine without a driver there is nothing to say, unless GPUs are configured."""
        recorder = GpuRecorder("a", session)
        known = gpu(5.0)._replace(reading=None)
        for at in range(3):
            recorder.apply_gpus(GpuUse(STARTED + at, "call_hangs"), 2.0)
        for at in range(3):
            recorder.apply_gpus(GpuUse(STARTED + at, "no_library"), 2.0)
        recorder.apply_gpus(GpuUse(STARTED, None, (known,)), 2.0)
        session.end("interrupted")

        events = Recording(session.path).events()
        assert [("call_hangs", ()), (None, (known,))] == [(event.use.reason, event.use.gpus) for event in events]
        assert session.counts.servers["a"].gpu_readings == 0

    def test_a_replay_has_them_in_its_state(self, session):
        """The state has what was read for as long as it is current, as that of the daemon."""
        recorder = GpuRecorder("a", session)
        recorder.apply_gpus(GpuUse(STARTED, "ok", (gpu(5.0),)), 2.0)
        session.clock.time += 9
        session.add_log("a", KeptLines((b"later",), {}), is_after_gap=False)
        session.end("interrupted")

        state = ServerState(ServerSettings("a", has_log=True, metrics_interval=5.0))
        shown = list(run_recording(Recording(session.path), state, 1.0))
        assert [True] * 7 + [False] * 3 == [snapshot.gpus[0].reading is not None for snapshot in shown]
        assert {2.4} == {snapshot.cost_per_hour for snapshot in shown}


class TestSession:
    """A session is the one place where a recording is written."""

    def test_it_is_written_out_at_intervals(self, session):
        """What is held is in the file after half a minute, so that a kill loses no more."""
        session.add_log("a", KeptLines((b"one",), {}), is_after_gap=False)
        session.write_out()
        assert [] == list(Recording(session.path).events())

        session.clock.time += WRITE_OUT_SECONDS
        session.write_out()

        assert [LogWritten(0.0, b"one\n")] == list(Recording(session.path).events())

    def test_after_its_end_nothing_is_added(self, session):
        """A thread that hung and comes back too late changes nothing."""
        session.end("interrupted")
        size = session.path.stat().st_size

        session.add_log("a", KeptLines((b"one",), {"lines": 1}), is_after_gap=False)
        session.add_scrape("a", 0.1, b"x 1\n", "ok")
        session.add_gpus("a", GpuUse(STARTED, "ok", (gpu(5.0),)))
        session.add_benchmark("result.json", "{}")
        session.end("again")

        assert size == session.path.stat().st_size
        assert (session.counts.servers["a"], session.counts.benchmarks) == (ServerCounts(), [])
        assert not session.stopped.is_set()

    def test_a_failed_write_leaves_what_is_complete(self, session, monkeypatch):
        """If the disk is full, the file ends after the last part that is whole, and recording stops."""
        session.add_log("a", KeptLines((b"one",), {}), is_after_gap=False)
        session.clock.time += WRITE_OUT_SECONDS
        session.write_out()

        def fail(writer):
            writer._file.write(b"half of a stream")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(RecordingWriter, "write_out", fail)
        session.end("interrupted")

        assert f"{session.path}: cannot be written: No space left on device" == str(session.problem)
        assert session.stopped.is_set()
        read = Recording(session.path)
        assert [LogWritten(0.0, b"one\n")] == list(read.events())
        assert "it was not ended" in read.broken_off

    def test_the_first_line_says_what_is_removed(self, session):
        """Whether anything is removed is in the file."""
        session.end("interrupted")

        first = json.loads(lzma.decompress(session.path.read_bytes()).splitlines()[0])
        assert dict.fromkeys(("lines", "addresses", "queries", "arguments", "results"), True) == first["removed"]


class TestRedactingReader:
    """The daemon's reader, which keeps the lines."""

    def test_a_copy_goes_its_own_way(self):
        """After a rotation the old file and the new one are read side by side, each with its own open record."""
        reader = RedactingReader()
        opened = PROMPTS["0.5"]("x").encode() + b"\r"
        reader.read([STATISTICS.encode(), opened], TIMES)
        other = copy(reader)
        continued = opened.partition(b"Received")[0] + b"a secret"

        other_record = STATISTICS.replace("02:35:20", "02:35:30").encode()
        reader.read([other_record], TIMES)
        second = other.read([continued, other_record], TIMES)

        assert (continued.replace(b"a secret", b"[removed]"), other_record) == second.kept.lines

    def test_all_can_be_kept(self):
        """With `--keep-all` each line is as it came, its colours included, but for the mark where one was cut."""
        lines = (b'\x1b[32mINFO\x1b[0m:     1.2.3.4:5 - "GET /x?api_key=1 HTTP/1.1" 200 OK\r', b"a prompt")

        assert KeptLines(lines, {}) == RedactingReader(keeps_all=True).read([lines[0], b"a prompt\0"], TIMES).kept

    def test_history_is_not_counted(self):
        """What was removed is counted batch by batch: what is not recorded does not count."""
        reader = RedactingReader()
        line = b'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 200 OK'

        assert [2, 1] == [reader.read(lines, TIMES).kept.removed["addresses"] for lines in ([line, line], [line])]

    def test_the_daemon_keeps_no_lines(self):
        """Without a recorder no line is held longer than it is read."""
        assert LogReader().read([STATISTICS.encode()], TIMES).kept is None

    @pytest.mark.parametrize("name", ["day", "dp1", "vl"])
    def test_the_start_is_known_from_few_lines(self, name):
        """The lines of a server's start alone tell all that the whole log tells of it."""
        played = recording(name)
        written = b"".join(event.data for event in played.events() if isinstance(event, LogWritten) and event.at < 150)
        reader, told, whole = RedactingReader(), LogReader(), LogReader()
        lines = written.split(b"\n")[:-1]

        few = [line for _, text in start_lines(reader.read(lines, TIMES)) for line in text.split(b"\n")[:-1]]

        assert len(few) < len(lines) / 3
        facts = [timed.event for timed in whole.read(lines, TIMES).events if not isinstance(timed.event, EngineStats)]
        kept = [timed.event for timed in told.read(few, TIMES).events]
        assert kept == [event for event in facts if event in kept]
        assert {type(event).__name__ for event in kept} == {"StartupFact", "Lifecycle"}


class TestCommand:
    """A command is ended for certain, and its output is kept as far as it matters."""

    def test_one_that_ignores_signals_is_killed(self, monkeypatch, tmp_path):
        """After its patience SIGTERM follows SIGINT, and SIGKILL follows that."""
        monkeypatch.setattr(recorded_command, "PATIENCE", 0.2)
        ready = tmp_path / "ready"
        script = (
            "import signal, sys, time\nfor number in (2, 15): signal.signal(number, signal.SIG_IGN)\n"
            f"open({str(ready)!r}, 'w').close()\ntime.sleep(60)"
        )
        command = RunningCommand([sys.executable, "-c", script], lambda _: None)
        until(ready.exists)

        assert -signal.SIGKILL == command.end(threading.Event())

    def test_what_it_leaves_behind_is_killed(self, tmp_path):
        """A process that it started and did not wait for ends with it, although it keeps the output open."""
        pid = tmp_path / "pid"
        command = RunningCommand(["sh", "-c", f"sleep 60 & echo $! > {pid}; wait"], lambda _: None)
        child = int(until(lambda: pid.exists() and pid.read_text()))

        command.end(threading.Event())

        until(lambda: Path(f"/proc/{child}/stat").exists() is False or " Z " in Path(f"/proc/{child}/stat").read_text())
        assert "" == command.printed

    def test_the_start_and_the_end_of_its_output_are_kept(self):
        """Of a long output the first lines and the last ones are kept, whole, in bounded memory."""
        output = KeptOutput()
        for number in range(40_000):
            output.add(b"line %d %s\n" % (number, b"." * 90))

        text = output.text
        assert len(text) <= KEPT_START + 2 * KEPT_END
        lines = text.splitlines()
        numbers = [int(line.split()[1]) for line in lines]
        assert (0, 39_999) == (numbers[0], numbers[-1])
        gaps = Counter(after - before for before, after in itertools.pairwise(numbers))
        assert 2 == len(gaps)  # Lines that follow each other, and one gap.


class TestResultFiles:
    """The results of a benchmark are found among other files."""

    @pytest.mark.parametrize(
        ("argv", "name"),
        [
            ([], "any.json"),
            (["--result-dir", "r"], "r/any.json"),
            (["--result-dir=r", "--result-filename=x.txt"], "r/x.txt"),
            (["--result_dir", "r", "--result_filename", "x.txt"], "r/x.txt"),
            (["--output-json", "out.txt"], "out.txt"),
        ],
    )
    def test_a_new_one(self, tmp_path, argv, name):
        """A result that is written meanwhile is found, where the options say or in the working folder."""
        (tmp_path / "r").mkdir()
        (tmp_path / "old.json").write_text(json.dumps(RESULT))
        files = ResultFiles(argv, tmp_path)
        (tmp_path / "other.json").write_text('{"x": 1}')
        (tmp_path / "broken.json").write_bytes(b"\xff{")
        (tmp_path / name).write_text(json.dumps(RESULT))

        assert [Path(name).name] == [found for found, _ in files.new()]

    def test_one_that_is_written_again(self, tmp_path):
        """A file that was there is found if it was written again."""
        path = tmp_path / "old.json"
        path.write_text(json.dumps(RESULT))
        files = ResultFiles([], tmp_path)
        path.write_text(json.dumps({**RESULT, "completed": 2}))
        os.utime(path, ns=(1, 1))

        assert ["old.json"] == [name for name, _ in files.new()]


class TestReplay:
    """What reads recordings reads those of several servers, and those that break off."""

    def test_all_servers_are_backfilled(self, tmp_path):
        """A file of two servers gives the samples that their folders give, with their names."""
        parts = {name: recording(name) for name in ("vl", "dp1")}
        path, out = tmp_path / "both", tmp_path / "out"
        with path.open("wb") as file:
            writer = RecordingWriter(file, header(*parts, started=parts["vl"].started))
            events = [(event.at, name, event) for name, played in parts.items() for event in played.events()]
            for at, name, event in sorted(events, key=lambda each: each[0]):
                if isinstance(event, LogWritten):
                    writer.add(log_line(at, name, event.data))
                elif event.body:
                    writer.add(scrape_line(at, name, 0.0, event.body))
                else:
                    writer.add(scrape_line(at, name, 0.0, b"", event.status))
            writer.end(1e4, "interrupted", {})

        write_backfill([str(path)], 30.0, str(out), lambda _: None)
        both = out.read_text().splitlines()
        write_backfill([str(parts["vl"].path)], 30.0, str(out), lambda _: None)
        alone = out.read_text().splitlines()

        assert [line for line in alone if 'server="vl"' in line] == [line for line in both if 'server="vl"' in line]
        assert any('server="dp1"' in line for line in both)

    def test_that_one_breaks_off_is_said(self, tmp_path, capsys):
        """A command that reads a file without an end says so, and reads what is there."""
        path = as_file(recording("vl"), tmp_path / "vl")
        path.write_bytes(path.read_bytes()[:-40])

        assert write_backfill([str(path)], 60.0, str(tmp_path / "out"), lambda _: None)

        assert f"vllm-watch: {path}: the recording breaks off after " in capsys.readouterr().err

    def test_history_informs_and_does_not_count(self, tmp_path):
        """Lines from before a recording tell the version, and no start is counted."""
        path = tmp_path / "r"
        with path.open("wb") as file:
            writer = RecordingWriter(file, header("a"))
            head = b"(APIServer pid=1) INFO 11-21 02:35:12 [api_server.py:1289] "
            writer.add(history_line(-100.0, "a", head + b"vLLM API server version 0.14.0\n"))
            writer.add(log_line(1.0, "a", STATISTICS.encode() + b"\n", is_after_gap=True))
            writer.end(2.0, "interrupted", {})

        *_, last = run_recording(Recording(path), ServerState(ServerSettings("a", True, 5.0)), 1.0)

        assert "0.14.0" == last.version
        assert 0 == last.log.starts
        assert 3 == last.engines[0].gauges["requests_running"].value


class TestFlood:
    """A log that grows faster than private data is removed: what is recorded of it, and what is said of the rest."""

    @pytest.fixture
    def flood(self, session, tmp_path, monkeypatch):
        """A log of which a turn reads a small part, and its recorder."""
        monkeypatch.setattr(server_recorder, "MAX_READS", 1)
        monkeypatch.setattr(LogFile.read, "__defaults__", (1000,))
        monkeypatch.setattr(file_follower, "READ_SIZE", 1000)
        log = tmp_path / "a.log"
        log.touch()
        made = LogRecorder(ServerConfig(name="a", log=str(log)), session)
        made.log = log
        made.poll()
        return made

    def test_what_was_read_is_kept_at_once(self, flood, session):
        """F5: a turn keeps a part of what is there; it does not first read all of it."""
        flood.log.write_bytes(b"there\n" * 20_000)
        has_more = flood.poll()

        assert has_more
        assert 0 < session.counts.servers["a"].lines < 2000

    def test_a_container_runtime_leaves_no_trace(self, flood, session):
        """Of a log in Docker's form the lines are recorded as vLLM wrote them."""
        flood.log.write_bytes(b'{"log":"there\\n","stream":"stdout","time":"2026-11-22T05:14:00.1Z"}\n')
        flood.finish()
        session.end("test")

        assert [b"[removed]\n"] == [event.data for event in Recording(session.path).events("a")]

    def test_the_end_takes_what_was_there_and_no_more(self, flood, session, monkeypatch):
        """F5: what is written while the end reads is not recorded: else the end would never come."""
        add = session.add_log

        def add_and_write(*given, **options):
            add(*given, **options)
            with flood.log.open("ab") as log:
                log.write(b"later\n" * 200)

        flood.log.write_bytes(b"there\n" * 1000)
        monkeypatch.setattr(session, "add_log", add_and_write)
        flood.finish()

        assert 1000 <= session.counts.servers["a"].lines < 1400
