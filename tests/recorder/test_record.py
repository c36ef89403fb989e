# SPDX-License-Identifier: Apache-2.0
"""Running servers are recorded into a file that can be replayed, however the recording ends."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import signal
import subprocess
import sys

import pytest

from tests.support.command_line import vllm_watch
from tests.support.fake_nvml import Scene, h100
from tests.support.http_servers import free_port
from tests.support.logs import stats_line
from tests.support.processes import busy_core, run_on
from tests.support.recordings import ROOT, recording
from tests.support.servers_here import ServersHere
from tests.support.waiting import SECONDS, until

from vllm_watch.analysis.replay.recording import GpusRead, LogWritten, MetricsRead, Recording, with_start_moved
from vllm_watch.analysis.replay.replay import run_recording
from vllm_watch.cli.commands.demo import Player, StandIn
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch.daemon.support.clock import ScaledClock


pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "vllm_watch", "record"]
TELLS_REASONS = """
from vllm_watch.cli.command_line import main
from vllm_watch.daemon.sources.scraper import Scraper
fetch = Scraper.fetch
def told(*arguments):
    reason = fetch(*arguments)
    with open("reasons", "a") as file:
        print(reason, file=file)
    return reason
Scraper.fetch = told
main()
"""
"""The program, which also writes down how each scrape ended."""
BODY = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1.0\n"
ACCESS = b'INFO:     127.0.0.1:5123 - "POST /v1/completions HTTP/1.1" 200 OK\n'
LEFT = ACCESS.replace(b"127.0.0.1:5123", b"0.0.0.0:0")
BLOCK = """\
============ Serving Benchmark Result ============
Successful requests:                     8
Benchmark duration (s):                  2.00
Total input tokens:                      80
Total generated tokens:                  160
Request throughput (req/s):              4.00
Output token throughput (tok/s):         80.00
Total Token throughput (tok/s):          120.00
---------------Time to First Token----------------
Mean TTFT (ms):                          10.00
Median TTFT (ms):                        9.00
P99 TTFT (ms):                           20.00
==================================================
"""
RESULT = {
    "date": "20261122-051400", "backend": "vllm", "model_id": "m", "num_prompts": 8, "request_rate": "inf",
    "duration": 2.0, "completed": 8, "total_input_tokens": 80, "total_output_tokens": 160, "request_throughput": 4.0,
    "output_throughput": 80.0, "total_token_throughput": 120.0, "mean_ttft_ms": 10.0, "median_ttft_ms": 9.0,
    "p99_ttft_ms": 20.0, "generated_texts": ["a private answer"],
}  # fmt: skip


class CountingStandIn(StandIn):
    """A stand-in that counts its answers."""

    requests = 0

    @property
    def body(self):
        """Return the body that is answered, and count."""
        self.requests += 1
        return self._body

    @body.setter
    def body(self, value):
        self._body = value


class Recorded:
    """A server of the test's own, and a `vllm-watch record` of it."""

    def __init__(self, folder):
        self.folder = folder
        self.log = folder / "vllm.log"
        self.output = folder / "out.xz"
        self.server = CountingStandIn()
        self.server.answer(BODY)
        self.process = None
        self.command = COMMAND

    def arguments(self, *more, log=None):
        """Return a command line that records the server often."""
        url = f"http://127.0.0.1:{self.server.port}/metrics"
        sources = ["--log", str(log or self.log), "--metrics", url]
        return [*self.command, *sources, "--every", "200ms", "-o", str(self.output), *map(str, more)]

    def run(self, *more, **options):
        """Record to the end, which comes by itself, and return how it ended; the options are those of a process."""
        return vllm_watch("record", *self.arguments(*more)[len(COMMAND) :], **options)

    def start(self, *more, **options):
        """Start recording; return when the file is there and the log is read."""
        self.process = subprocess.Popen(
            self.arguments(*more, **options), cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        until(lambda: self.output.exists() and self.output.stat().st_size)
        self.until_read()

    def until_read(self):
        """Wait until what is in the log now was read: a log is polled as often as /metrics is scraped here."""
        target = self.server.requests + 4
        until(lambda: self.server.requests >= target)

    def end(self, number=signal.SIGINT):
        """End recording with a signal; return the exit status."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=SECONDS)
        self.errors = errors.decode()
        return self.process.returncode

    def read(self):
        """Open what was recorded."""
        return Recording(self.output)

    def lines(self):
        """Return the lines of the log in the recording, in one piece."""
        return b"".join(event.data for event in self.read().events() if isinstance(event, LogWritten))

    def scrapes(self):
        """Return the scrapes of the recording."""
        return [event for event in self.read().events() if isinstance(event, MetricsRead)]

    def close(self):
        """End what runs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdout, self.process.stderr):
                pipe.close()
        self.server.refuse()


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """A server, and a recording of it."""
    monkeypatch.chdir(tmp_path)
    made = Recorded(tmp_path)
    made.log.write_bytes(b"")
    with contextlib.closing(made):
        yield made


class TestHowItEnds:
    """Whatever ends a recording, what was recorded can be read."""

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_signal_completes_the_file(self, recorded, number):
        """Ctrl-C and its like end the recording well: exit 0, and all that was written is there."""
        recorded.start()
        recorded.log.write_bytes(3 * ACCESS)

        assert 0 == recorded.end(number), recorded.errors

        assert recorded.read().broken_off is None
        assert 3 * LEFT == recorded.lines()
        assert BODY in {scrape.body for scrape in recorded.scrapes()}
        assert "log lines: 3," in recorded.errors
        assert "removed: addresses of clients (3)." in recorded.errors

    def test_after_its_time(self, recorded):
        """`--for` ends it, and it says what was recorded and what comes next."""
        result = recorded.run("--for", "1s")

        assert 0 == result.returncode, result.stderr
        assert 1 <= recorded.read().seconds < SECONDS
        assert f"Next: vllm-watch report {recorded.output}" in result.stderr

    def test_a_kill_leaves_what_was_written_out(self, recorded):
        """Killed with SIGKILL it leaves a file that is read up to where it breaks off."""
        recorded.start()
        with recorded.log.open("ab") as log:
            log.write(ACCESS * (6 * 1024 * 1024 // len(ACCESS)))
        until(recorded.lines)
        recorded.process.kill()
        recorded.process.communicate()

        assert "breaks off" in recorded.read().broken_off
        assert recorded.lines().startswith(LEFT)

    def test_a_full_disk_is_said(self, recorded):
        """Where nothing can be written it ends with one sentence."""
        recorded.output = "/dev/full"

        result = recorded.run("--force", "--for", "30s", cwd=recorded.folder)

        assert (1, "vllm-watch: /dev/full: cannot be written: No space left on device\n") == (
            result.returncode,
            result.stderr,
        )

    def test_nothing_recorded_is_a_problem(self, recorded):
        """If no line came and no scrape succeeded the exit status is 1, and the reason is said."""
        recorded.server.refuse()

        result = recorded.run("--for", "1s")

        assert 1 == result.returncode
        assert "Nothing listens at this address" in result.stderr
        assert "nothing was recorded" in result.stderr
        assert "Next:" not in result.stderr
        assert {"refused"} == {scrape.status for scrape in recorded.scrapes()}


class TestWrongUse:
    """What cannot work is said before anything starts."""

    @pytest.mark.parametrize(
        ("arguments", "status", "sentence"),
        [
            (["--server", "x"], 2, "--server: there is no server x; there is vllm"),
            (["--every", "soon"], 2, '--every: expected a duration such as 5s, 500ms or 2m, got "soon"'),
            (["--for", "0s"], 2, "--for: expected more than 0 s"),
            (["--", "no-such-command", "-x"], 1, "no-such-command: there is no such command"),
        ],
    )
    def test_options(self, recorded, arguments, status, sentence):
        """A wrong option or command is named, and no file is made."""
        result = recorded.run(*arguments)

        assert (status, f"vllm-watch: {sentence}\n") == (result.returncode, result.stderr)
        assert not recorded.output.exists()

    def test_a_file_that_is_there_stays(self, recorded):
        """A file is written over only if that is asked for."""
        recorded.output.write_text("mine")

        result = recorded.run("--for", "1s")

        assert (1, f"vllm-watch: -o: {recorded.output} is there already; --force writes over it\n") == (
            result.returncode,
            result.stderr,
        )
        assert "mine" == recorded.output.read_text()
        assert 0 == recorded.run("--force", "--for", "1s").returncode
        assert recorded.scrapes()

    @pytest.mark.parametrize(("name", "reason"), [("none/out", "No such file or directory"), (".", "Is a directory")])
    def test_a_file_that_cannot_be_made(self, recorded, name, reason):
        """A path that cannot be written is named with the reason."""
        recorded.output = recorded.folder / name

        result = recorded.run("--force")

        assert (1, f"vllm-watch: -o: {recorded.output}: cannot be written: {reason}\n") == (
            result.returncode,
            result.stderr,
        )


class TestLogs:
    """The log is followed as the daemon follows it, from now on."""

    def test_what_was_there_is_not_recorded_but_for_the_start(self, recorded):
        """Of an older log only the lines that say how the server was started are there, as history."""
        day = recording("day")
        written = b"".join(event.data for event in day.events() if isinstance(event, LogWritten) and event.at < 180)
        recorded.log.write_bytes(written)
        recorded.start()
        with recorded.log.open("ab") as log:
            log.write(ACCESS)
        recorded.end()

        events = [event for event in recorded.read().events() if isinstance(event, LogWritten)]

        history = b"".join(event.data for event in events if event.is_history)
        assert all(event.at < 0 for event in events if event.is_history)
        assert b"vLLM API server version" in history or b"version 0.32.0" in history
        assert b' - "' not in history
        assert [LEFT] == [event.data for event in events if not event.is_history]
        state = ServerState(ServerSettings("s", has_log=True, metrics_interval=5.0))
        *_, last = run_recording(recorded.read(), state, 1.0)
        assert "0.32.0" == last.version

    @pytest.mark.parametrize("way", ["rename", "copytruncate"])
    def test_a_rotation_loses_nothing(self, recorded, way):
        """A log that is rotated meanwhile is recorded line by line, in order."""
        recorded.start()
        for number in range(2):
            with recorded.log.open("ab") as log:
                log.write(stats_line(number))
            recorded.until_read()
            copy = recorded.folder / f"vllm.log.{number}"
            if way == "rename":
                recorded.log.rename(copy)
                recorded.log.touch()
            else:
                copy.write_bytes(recorded.log.read_bytes())
                os.truncate(recorded.log, 0)
        recorded.end()

        assert b"".join(map(stats_line, range(2))) == recorded.lines()

    def test_a_line_is_recorded_when_it_is_complete(self, recorded):
        """A part of a line waits for its rest, and of one over 64 KiB only what is read of its start is recorded."""
        recorded.start()
        for part in (ACCESS[:20], ACCESS[20:] + b"x" * 100_000 + b"\nthe next"):
            with recorded.log.open("ab") as log:
                log.write(part)
            recorded.until_read()
        recorded.end()

        assert LEFT + b"[removed]\n" == recorded.lines()


class TestServers:
    """Servers come and go while they are recorded."""

    def test_a_server_that_starts_later_and_again(self, recorded):
        """Scrapes that are refused are recorded with their reason, and those of each start."""
        recorded.command = [sys.executable, "-c", TELLS_REASONS, "record"]
        recorded.start()
        recorded.server.refuse()
        again = BODY + b"vllm:prompt_tokens_total 2.0\n"
        until(lambda: "refused" in (recorded.folder / "reasons").read_text())
        recorded.server.answer(again)
        recorded.until_read()
        recorded.end()

        found = [(scrape.body, scrape.status) for scrape in recorded.scrapes()]
        first, refused, last = found.index((BODY, "200")), found.index((b"", "refused")), found.index((again, "200"))
        assert first < refused < last

    def test_several_servers_are_in_one_file(self, recorded):
        """Each server has its own events under its name; `--server` chooses."""
        second = recorded.folder / "second.log"
        second.write_bytes(b"")
        recorded.start("--log", second)
        second.write_bytes(ACCESS)
        recorded.end()

        read = recorded.read()
        names = {name: [type(event) for event in read.events(name)] for name in read.servers}
        assert {f"127.0.0.1:{recorded.server.port}", "second"} == set(names)
        assert [LogWritten] == names["second"]
        assert (True, None) == (read.sources["second"].log, read.sources["second"].scrape_interval)

    @pytest.mark.needs_module("pynvml")
    def test_their_gpus_are_read(self, recorded, fake_nvml):
        """The GPUs that a server is configured to use are read at their interval, and their energy is in the file."""
        fake_nvml.show(Scene([h100(0), h100(1)]))
        used = h100(1).uuid
        config = recorded.folder / "config.yml"
        config.write_text(
            f"gpu: {{interval: 1s}}\n"
            f"servers: [{{name: a, metrics: 'http://127.0.0.1:{recorded.server.port}/metrics', gpus: [{used}], "
            f"cost_per_hour: 2.4}}]\n"
        )
        options = ["--config", str(config), "-o", str(recorded.output)]
        recorded.process = subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Over several seconds: each reading may be a little late.
        until(lambda: sum(call.startswith("nvmlDeviceGetTemperature") for call in fake_nvml.calls()) >= 6 * 2)
        recorded.process.send_signal(signal.SIGINT)
        _, errors = recorded.process.communicate(timeout=SECONDS)
        read = recorded.read()
        uses = [event.use for event in read.events() if isinstance(event, GpusRead) and event.use.reason == "ok"]
        joules = [gpu.reading.values["gpu_energy_joules_total",] for use in uses for gpu in use.gpus]

        assert recorded.process.returncode == 0, errors
        assert (1.0, 2.4) == (read.sources["a"].gpu_interval, read.sources["a"].cost_per_hour)
        assert {used} == {gpu.gpu for use in uses for gpu in use.gpus}
        assert len(uses) >= 2
        assert f"GPU readings: {len(uses)}" in errors.decode()
        assert (joules[-1] - joules[0]) / (uses[-1].at - uses[0].at) == pytest.approx(640, rel=0.2)

    def test_servers_that_run_here_are_found(self, tmp_path):
        """Without options the servers of this machine are recorded; one of them if it is named."""
        here, port = ServersHere(tmp_path), free_port()
        with contextlib.closing(here):
            here.start(f"{here.command(port=port)} >> {tmp_path}/server.log 2>&1")
            here.until_listening(port)
            names = subprocess.run(
                [sys.executable, "-m", "vllm_watch", "discover", "--format", "json"],
                capture_output=True, check=False, timeout=SECONDS,
            )  # fmt: skip
            (name,) = [
                each["name"] for each in json.loads(names.stdout)["servers"] if f":{port}/" in each.get("metrics", "")
            ]
            output = tmp_path / "out"
            result = subprocess.run(
                [*COMMAND, "--server", name, "--for", "1s", "-o", output],
                capture_output=True, text=True, check=False, timeout=SECONDS,
            )  # fmt: skip

        assert 0 == result.returncode, result.stderr
        read = Recording(output)
        assert (name,) == read.servers
        assert any(isinstance(event, MetricsRead) and event.body for event in read.events())

    @pytest.mark.parametrize("source", ["log", "metrics"])
    def test_a_server_of_options_has_its_command_line(self, tmp_path, source):
        """Where a server's process runs here, its flags are kept although its log has lost its start to a rotation."""
        here, port, output = ServersHere(tmp_path), free_port(), tmp_path / "out"
        line = here.command("--max-num-seqs", "4", "--api-key", "sk-private", port=port)
        with contextlib.closing(here):
            (tmp_path / "server.log").touch()
            here.start(f"{line} >> {tmp_path}/server.log 2>&1")
            here.until_listening(port)
            os.truncate(tmp_path / "server.log", 0)
            options = {"log": f"{tmp_path}/server.log", "metrics": f"http://127.0.0.1:{port}/metrics"}
            also = ["--", "sh", "-c", f"echo line >> {tmp_path}/server.log"] if source == "log" else ["--for", "1s"]
            result = vllm_watch("record", f"--{source}", options[source], "-o", str(output), *also)

        assert 0 == result.returncode, result.stderr
        assert Recording(output).sources["vllm"].command.flags == (("max-num-seqs", "4"),)
        assert b"sk-private" not in lzma.decompress(output.read_bytes())


class TestCommands:
    """A command runs while it is recorded, and its result is kept."""

    def script(self, recorded, text):
        """Return a command that runs a Python script."""
        path = recorded.folder / "client.py"
        path.write_text(f"import json, signal, subprocess, sys, time\nBLOCK = {BLOCK!r}\nRESULT = {RESULT!r}\n{text}")
        return ["--", sys.executable, str(path)]

    def test_its_result_is_recorded(self, recorded):
        """What it prints passes through; block and file are recorded without answers and keys, between two scrapes."""
        text = "print('sent with', sys.argv[2])\nprint(BLOCK, end='')\njson.dump(RESULT, open('result.json', 'w'))"
        (recorded.folder / "older.json").write_text(json.dumps(RESULT))

        result = recorded.run(*self.script(recorded, text), "--api-key", "sk-private")

        assert (0, f"sent with sk-private\n{BLOCK}") == (result.returncode, result.stdout), result.stderr
        read = recorded.read()
        assert 0 == read.command.exit_status
        assert ("--api-key", "[removed]") == read.command.argv[-2:]
        found = {benchmark.file: benchmark.content for benchmark in read.benchmarks}
        assert {"result.json", "printed.txt"} == set(found)
        assert {**RESULT, "generated_texts": ["[removed]"]} == json.loads(found["result.json"])
        assert [line for line in BLOCK.splitlines() if line[0] != "-"] == found["printed.txt"].splitlines()
        assert "sk-private" not in "".join(found.values())
        assert "results of the benchmark: result.json, printed.txt" in result.stderr
        times = [scrape.at for scrape in recorded.scrapes()]
        assert min(times) <= read.command.started + 0.001
        assert read.command.ended <= max(times) + 0.001

    @pytest.mark.parametrize("more", [[], ["--keep-all"]])
    def test_another_clients_result(self, recorded, more):
        """A result of another client is recorded only as it is; without that it is said that it is not."""
        path = ROOT / "parsers" / "benchmark_results" / "guidellm-0.8.1.json"
        text = f"open('benchmarks.json', 'w').write(open({str(path)!r}).read())"

        result = recorded.run(*more, *self.script(recorded, text))

        assert (0, "not recorded: benchmarks.json: " in result.stderr) == (result.returncode, not more), result.stderr
        assert (["benchmarks.json"] if more else []) == [each.file for each in recorded.read().benchmarks]

    def test_its_failure_is_ours(self, recorded):
        """If the command fails the exit status is 1, and the recording has what was recorded until then."""
        result = recorded.run(*self.script(recorded, "sys.exit(3)"))

        failed = f"{sys.executable} ended with exit status 3; {recorded.output} has what was recorded until then"
        assert (1, True) == (result.returncode, failed in result.stderr.splitlines()[-1])
        assert (3, None) == (recorded.read().command.exit_status, recorded.read().broken_off)

    def test_it_is_ended_with_the_recording(self, recorded):
        """Ctrl-C reaches it first, with all that it started; then the recording is completed."""
        text = (
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
            "open('child', 'w').write(str(child.pid))\n"
            "try:\n    while True: time.sleep(0.1)\n"
            "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    sys.exit(4)"
        )
        recorded.start(*self.script(recorded, text))
        child = int(until(lambda: (recorded.folder / "child").exists() and (recorded.folder / "child").read_text()))
        recorded.process.send_signal(signal.SIGINT)
        output, _ = recorded.process.communicate(timeout=SECONDS)

        assert (1, b"interrupted\n") == (recorded.process.returncode, output)
        assert 4 == recorded.read().command.exit_status
        assert recorded.read().broken_off is None
        until(lambda: not is_running(child))

    def test_one_that_hangs_is_killed(self, recorded):
        """A command that ignores all signals is killed when the user presses Ctrl-C again and again."""
        text = (
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "import os\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"
        )
        recorded.start(*self.script(recorded, text))
        hanging = int(until(lambda: (recorded.folder / "pid").exists() and (recorded.folder / "pid").read_text()))

        def interrupt():
            recorded.process.send_signal(signal.SIGINT)
            with contextlib.suppress(AssertionError):  # Not yet: again.
                return until(lambda: not is_running(hanging), 0.5)
            return False

        until(interrupt)

        assert 1 == recorded.process.wait(SECONDS)
        assert -signal.SIGKILL == recorded.read().command.exit_status

    def test_it_ends_after_its_time(self, recorded):
        """With --for a command that goes on is ended, which is not its success."""
        result = recorded.run("--for", "1s", *self.script(recorded, "time.sleep(600)"))

        assert 1 == result.returncode
        assert "was ended by SIGINT" in result.stderr or "exit status" in result.stderr


def is_running(pid):
    """Return whether a process is there and has not ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_replayed_server_is_recorded_as_it_was(recorded):
    """What a server writes and answers is recorded line by line and body by body, on a core that is busy."""
    played = recording("vl")
    bodies = {with_start_moved(e.body, 0.0) for e in played.events() if isinstance(e, MetricsRead) and e.body}
    recorded.server.refuse()
    with busy_core() as core:
        recorded.process = subprocess.Popen(
            recorded.arguments("--keep-all"),
            stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        run_on(core, recorded.process)
        until(lambda: recorded.output.exists() and recorded.output.stat().st_size)
        with recorded.log.open("ab") as log:
            player = Player(played, log, recorded.server, ScaledClock(40.0))
            play = player._play
            player._play = lambda event, _later: play(event, 0.0)
            player.start()
            until(lambda: recorded.log.stat().st_size >= log_size(played), seconds=SECONDS)
            player.stop()
        size = recorded.log.stat().st_size
        recorded.end()

    assert "removed: nothing" in recorded.errors
    assert recorded.log.read_bytes()[:size] == recorded.lines()
    assert recorded.lines().startswith(
        b"".join(e.data for e in played.events() if isinstance(e, LogWritten))[: log_size(played)]
    )
    assert {scrape.body for scrape in recorded.scrapes() if scrape.body} <= bodies | {BODY}
    assert any(scrape.body in bodies for scrape in recorded.scrapes())


def log_size(played):
    """Return the bytes of a recorded log."""
    return sum(len(event.data) for event in played.events() if isinstance(event, LogWritten))
