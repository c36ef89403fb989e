# SPDX-License-Identifier: Apache-2.0
"""The commands as a user types them: what they print, and how they leave."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import pty
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from pathlib import Path

import pytest

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.command_line import COMMAND, call_here, called, vllm_watch
from tests.support.corpus import CORPUS
from tests.support.http_servers import StandIn, answer, free_port
from tests.support.recordings import RECORDINGS, bodies_of, body_file, log_file, log_of
from tests.support.waiting import SECONDS, until

from vllm_watch.cli.commands import run, server_check
from vllm_watch.cli.commands.once import log_records
from vllm_watch.cli.commands.watched import Selection
from vllm_watch.daemon.support.errors import UsageError


pytestmark = pytest.mark.slow


SECRET = "sk-0123456789abcdef"


def in_shell(script, *arguments):
    """Run the command line as "$@" of a shell's script."""
    command = ["/bin/sh", "-c", script, "sh", *COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def values(text):
    """Return a page's values by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def value(found, name, **labels):
    """Return the only value of a name whose labels include these."""
    (only,) = [
        v for (n, *pairs), v in found.items() if n == f"vllm_watch_{name}" and labels.items() <= dict(pairs).items()
    ]
    return only


@pytest.fixture
def closed_port():
    """A port on which nothing listens."""
    return free_port()


def _on_a_terminal(*arguments, stderr=None, env=None):
    """Run `once` on a terminal; return its exit status and what the terminal got."""
    ours, theirs = pty.openpty()
    command = [*COMMAND, "once", "--log", str(log_file("dp1")), *arguments]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs if stderr is None else stderr, env=env) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # Nobody has the terminal any more.
            while True:
                shown += os.read(ours, 65536)
        os.close(ours)
    return process.returncode, shown


class TestOnce:
    """`once` prints everything that a finished log and a page say."""

    def test_a_log_says_state_facts_and_counts(self):
        """From a recorded log alone come its last values, its facts, starts, failures and requests."""
        result = vllm_watch("once", "--log", log_file("day"))
        found = values(result.stdout)

        assert (0, "") == (result.returncode, result.stderr)
        assert 1 == value(found, "engine_state", state="idle")
        assert 5.0 == value(found, "spec_decode_mean_acceptance_length")
        assert 12_288 == value(found, "kv_cache_capacity_tokens")
        assert 24 == value(found, "max_running_requests")
        assert 2 == value(found, "server_starts_total")
        assert 1 == value(found, "log_events_total", event="engine_dead")
        assert 1 == value(found, "server_info", version="0.32.0", model_name="Qwen3.6-27B")
        requests = log_of("day").decode().count('"POST /v1/completions HTTP/1.1" 200')
        assert requests == value(found, "http_requests_total", handler="/v1/completions", code="200")

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_a_saved_page_says_gauges_counters_and_latencies(self, tmp_path, suffix):
        """From a page in a file, also a compressed one, come its gauges, counters and histograms."""
        body = bodies_of("day")[50]
        page = tmp_path / f"page.txt{suffix}"
        page.write_bytes(gzip.compress(body) if suffix else body)
        found = values(vllm_watch("once", "--metrics", page).stdout)

        assert 296 == value(found, "requests_waiting")
        assert 139_728 == value(found, "generation_tokens_total")
        assert 594 == value(found, "time_to_first_token_seconds_count")
        assert 1 == value(found, "engine_state", state="saturated")

    def test_a_log_and_a_page_complete_each_other(self):
        """With both, facts come from the log and latencies from the page."""
        page = body_file("vl", 9)
        found = values(vllm_watch("once", "--log", log_file("vl"), "--metrics", page).stdout)

        assert 24 == value(found, "max_running_requests")
        assert value(found, "e2e_request_latency_seconds_count") > 0

    def test_json(self):
        """The same as JSON, for programs, with the times of the log's first and last line."""
        view = json.loads(vllm_watch("once", "--log", log_file("dp1"), "--format", "json").stdout)

        assert ["0", "1"] == [engine["engine"] for engine in view["engines"]]
        assert "0.32.0" == view["version"]
        assert 96.0 == view["log_period"]["end"] - view["log_period"]["start"]
        assert view["at"] == view["log_period"]["end"]

    @pytest.mark.parametrize(("encoding", "quotes"), [("utf-8", "“”"), ("ascii", '""')])
    def test_a_terminal_gets_a_summary(self, encoding, quotes):
        """On a terminal a person reads it: as wide as that is, without colours, in what its encoding has."""
        page = body_file("dp1", 9)
        environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "75"}
        status, shown = _on_a_terminal("--metrics", str(page), stderr=subprocess.DEVNULL, env=environment)
        lines = shown.decode(encoding).replace("\r\n", "\n").splitlines()

        assert (0, "Qwen3.6-27B on vLLM 0.32.0: idle") == (status, lines[0])
        assert 71 <= max(map(len, lines)) <= 75
        assert f"{quotes[0]}~187 (100 to 200){quotes[1]}: estimated between the" in " ".join(lines)
        assert b"\x1b" not in shown

    def test_the_bar_is_erased_before_the_summary(self):
        """Where both streams are one terminal the bar's line is erased, and no line of the summary."""
        status, shown = _on_a_terminal()
        bar, erase, summary = shown.partition(b"\x1b[1A\x1b[2K")

        assert (0, True, True) == (status, b"100%" in bar, bool(erase))
        assert summary.startswith(b"Qwen3.6-27B on vLLM 0.32.0: unknown")
        assert b"\x1b" not in summary

    def test_the_same_input_gives_the_same_bytes(self, tmp_path):
        """E2: the page of a log and a saved /metrics is byte-equal from run to run, whatever Python's hash seed."""
        page = tmp_path / "page.txt.gz"
        page.write_bytes(gzip.compress(bodies_of("dp1")[0]))
        arguments = ("once", "--log", log_file("dp1"), "--metrics", page)
        pages = {vllm_watch(*arguments, env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in "01"}

        assert 1 == len(pages)
        assert 100 < len(pages.pop().splitlines())

    @pytest.mark.parametrize("release", ["0.12.0", "0.20.2", "0.33.0"])
    def test_events_of_every_kind(self, release):
        """A log with all kinds of lines, those on KV transfers among them, is printed to its end."""
        lines = [json.loads(line) for line in log_records(str(CORPUS / release / "vllm.log"))]
        kv = [line["fields"]["counts"] for line in lines if line["kind"] == "kv_transfers"]

        assert len(lines) > 50
        assert kv
        assert all(number >= 0 for counts in kv for number in counts.values())

    def test_a_live_page(self, closed_port):
        """A page that cannot be read is said in one sentence, with exit 1; what else there is, is printed."""
        result = vllm_watch("once", "--metrics", f"http://127.0.0.1:{closed_port}/metrics")

        assert 1 == result.returncode
        assert "Nothing listens at this address" in result.stderr
        assert 1 == value(values(result.stdout), "source_info", reason="refused")

    def test_a_url_without_a_path(self):
        """As for `run`, the path is /metrics."""
        page = answer(b'vllm:num_requests_running{engine="0",model_name="m"} 3.0\n')
        with StandIn(lambda head: [page if " /metrics " in head else answer()]) as server:
            result = vllm_watch("once", "--metrics", server.url.removesuffix("/metrics"))

        assert (0, 3) == (result.returncode, value(values(result.stdout), "requests_running"))

    def test_secrets_are_in_no_output(self, tmp_path):
        """An API key that the log prints is in none of the formats."""
        log = tmp_path / "vllm.log"
        log.write_text(
            "INFO 11-21 02:00:00 [api_server.py:1043] vLLM API server version 0.8.5\n"
            f"INFO 11-21 02:00:00 [api_server.py:1044] args: Namespace(api_key='{SECRET}', model='m', max_num_seqs=9)\n"
            f"INFO 11-21 02:00:00 [utils.py:1] non-default args: {{'api_key': ['{SECRET}'], 'model': 'm'}}\n"
        )
        results = [vllm_watch("once", "--log", log, "--format", form) for form in ("prometheus", "json", "events")]
        results.append(vllm_watch("check", "--log", log))

        assert 9 == value(values(results[0].stdout), "max_running_requests")
        assert not [r for r in results if SECRET in r.stdout + r.stderr]


@pytest.mark.parametrize("command", [["run", "--log", "/tmp/none.log"], ["demo"]], ids=["run", "demo"])
def test_a_port_in_use(command):
    """E6: a port that is taken is one sentence and exit 2."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        result = vllm_watch(*command, "--listen", address)

    assert 2 == result.returncode
    assert f"vllm-watch: cannot listen on {address}: address already in use" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Open http" not in result.stderr


class TestCheck:
    """`check` says source by source what was found, what is missing and why."""

    def test_a_good_log(self):
        """A log with everything in it is read, and its missing companion named."""
        result = vllm_watch("check", "--log", log_file("day"))

        assert 0 == result.returncode
        assert "vLLM 0.32.0, model Qwen3.6-27B" in result.stdout
        assert "KV cache of 12,288 tokens" in result.stdout
        assert "metrics: not configured. Latencies, exact counters" in result.stdout

    def test_json(self, closed_port, tmp_path):
        """The same for programs: servers as in the snapshot, what is wrong, and the alerts that cannot fire."""
        log = log_file("dp1")
        servers = tmp_path / "servers"
        servers.mkdir()
        (servers / "good.yml").write_text(f"log: {log}\n")
        (servers / "bad.yml").write_text(f"metrics: http://127.0.0.1:{closed_port}/metrics\n")
        (servers / "notes.txt").touch()
        config = tmp_path / "config.yml"
        config.write_text(f"servers_dir: {servers}\n")
        result = vllm_watch("check", "--config", config, "--format", "json")
        view = json.loads(result.stdout)
        bad, good = sorted(view["servers"], key=lambda server: server["name"])
        of_once = json.loads(vllm_watch("once", "--log", log, "--format", "json").stdout)

        assert (1, "") == (result.returncode, result.stderr)
        assert {"ok", "problems", "ignored_files", "servers"} == set(view)
        assert (False, [], [str(servers / "notes.txt")]) == (view["ok"], view["problems"], view["ignored_files"])
        assert {"file", "problems", "alert_count", "silent_alerts", "limited_alerts"} == set(good) - set(of_once)
        assert (str(servers / "good.yml"), [], "0.32.0") == (good["file"], good["problems"], good["version"])
        assert {"alert", "summary", "reason"} == set(good["silent_alerts"][0])
        assert len(good["silent_alerts"]) < len(bad["silent_alerts"]) < good["alert_count"]
        assert any("Nothing listens at this address" in text for text in bad["problems"])

    def test_a_configured_capacity_is_told(self, tmp_path):
        """Whoever configures what a benchmark has measured sees that it is in use, with its bounds."""
        page = b'vllm:num_requests_running{engine="0",model_name="m"} 0.0\n'
        config = tmp_path / "config.yml"
        with StandIn(lambda _head: [answer(page)]) as server:
            metrics = f"metrics: {{url: '{server.url}'}}"
            config.write_text(f"servers:\n  - {{name: q, {metrics}, capacity: {{tokens_per_second: 900}}}}\n")
            out = vllm_watch("check", "--config", config).stdout

        assert "capacity: 900 (810 to 990) tokens/s, measured by a benchmark, from the configuration" in out

    def test_a_server_that_is_down(self, tmp_path):
        """A log that ends with the server's death is read well, and yet something is wrong: the exit status is 1."""
        log = tmp_path / "vllm.log"
        log.write_text("ERROR 11-21 02:35:10 [core.py:1] EngineCore encountered a fatal error.\n")
        result = vllm_watch("check", "--log", log)

        assert (1, True) == (result.returncode, "engine 0: down" in result.stdout)

    def test_a_server_that_was_stopped(self, tmp_path, closed_port):
        """Nothing listens where a server was stopped in order: the source has no fault, but answers nothing."""
        log = tmp_path / "vllm.log"
        log.write_text(
            "(APIServer pid=1) INFO:     Application startup complete.\n"
            "(APIServer pid=1) INFO:     Shutting down\n"
            "(APIServer pid=1) INFO:     Finished server process [1]\n"
        )
        url = f"http://127.0.0.1:{closed_port}/metrics"
        result = vllm_watch("check", "--log", log, "--metrics", url)

        says = "not read. Nothing listens at this address: the server was stopped in order."
        assert (1, True) == (result.returncode, f"/metrics {url}: {says}" in result.stdout)
        assert "FAILED" not in result.stdout

    def test_bad_sources(self, tmp_path, closed_port):
        """Sources that cannot be read are named with what to do, and the exit status is 1."""
        url = f"http://127.0.0.1:{closed_port}/metrics"
        result = vllm_watch("check", "--log", tmp_path / "none.log", "--metrics", url)

        assert 1 == result.returncode
        assert f"log {tmp_path}/none.log: FAILED. The file does not exist yet." in result.stdout
        assert f"metrics {url}: FAILED. Nothing listens at this address" in result.stdout

    def test_a_folder_of_servers(self, tmp_path):
        """Each server is shown with its file, and a file that is passed over is named."""
        folder = tmp_path / "servers.d"
        folder.mkdir()
        (folder / "day.yml").write_text(f"log: {log_file('day')}")
        (folder / "other.yaml").write_text("log: other.log")
        config = tmp_path / "config.yml"
        config.write_text("servers_dir: servers.d")
        result = vllm_watch("check", "--config", config)

        assert 0 == result.returncode
        assert f"{folder}: 1 server\n" in result.stdout
        assert f"  ignored, because its name does not end in .yml: {folder}/other.yaml\n" in result.stdout
        assert f"\nday ({folder}/day.yml):\n" in result.stdout

    @pytest.mark.parametrize(
        ("content", "reason"),
        [
            (None, "cannot be read: no such file or directory"),
            ("basic_auth_users: {a: secret}\n", "expected a bcrypt hash"),
        ],
        ids=["missing", "password"],
    )
    def test_a_wrong_web_configuration_file(self, tmp_path, content, reason):
        """`check` rejects what `run` rejects, with the same sentence and exit 2."""
        if content is not None:
            (tmp_path / "web.yml").write_text(content)
        config = tmp_path / "config.yml"
        log = log_file("day")
        config.write_text(f"listen: 127.0.0.1:0\nweb_config_file: web.yml\nservers: [{{name: a, log: {log}}}]\n")
        checked = vllm_watch("check", "--config", config)
        ran = called("run", "--config", config)

        assert 2 == checked.returncode == ran.returncode
        assert str(tmp_path / "web.yml") in checked.stderr
        assert reason in checked.stderr
        assert checked.stderr == ran.stderr

    def test_an_empty_folder_of_servers(self, tmp_path):
        """A daemon may watch nothing for a while, but that is not all right: the exit status is 1."""
        (tmp_path / "servers.d").mkdir()
        config = tmp_path / "config.yml"
        config.write_text("servers_dir: servers.d")
        result = vllm_watch("check", "--config", config)

        assert 1 == result.returncode
        assert "there is nothing to watch: no server is configured" in result.stdout


class TestWithoutStandardError:
    """The exit status says what went wrong, also where no sentence can be written."""

    @pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
    @pytest.mark.parametrize(("log", "status"), [("servers: []", 2), ("servers: [{name: a, log: none.log}]", 1)])
    def test_exit_status(self, tmp_path, where, log, status):
        """D5: a bad configuration is exit 2 and a missing log exit 1, with a full or closed standard error."""
        (tmp_path / "config.yml").write_text(log)
        script = f'exec "$@" {where}'
        command = ["/bin/sh", "-c", script, "sh", *COMMAND, "check", "--config", tmp_path / "config.yml"]

        assert status == subprocess.run(command, stdout=subprocess.DEVNULL, check=False, timeout=SECONDS).returncode


class TestStandardOutput:
    """Where nothing can be printed that is said in one sentence; a reader that has enough is no error."""

    LOG = log_file("dp1")

    @pytest.mark.parametrize(
        ("where", "reason"), [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")]
    )
    @pytest.mark.parametrize(
        "arguments",
        [
            ["once", "--log", LOG, "--format", "events"],
            ["check", "--log", LOG],
            ["backfill", LOG, "--step", "60s"],
            ["--version"],
        ],
        ids=lambda arguments: " ".join(argument for argument in arguments if isinstance(argument, str)),
    )
    def test_that_cannot_be_written(self, arguments, where, reason):
        """A full or closed standard output is one sentence and exit 1."""
        result = in_shell(f'exec "$@" {where}', *arguments)

        assert (1, f"vllm-watch: standard output: cannot be written: {reason}\n") == (result.returncode, result.stderr)

    @pytest.mark.parametrize(
        "arguments",
        [
            ["once", "--log", LOG, "--format", "events"],
            ["backfill", LOG],
            ["once", "--help"],
        ],
        ids=lambda arguments: " ".join(argument for argument in arguments if isinstance(argument, str)),
    )
    def test_whose_reader_has_enough(self, arguments):
        """A pipe that is closed ends the command quietly, with exit 0."""
        reading, writing = os.pipe()
        os.close(reading)
        with open(writing, "wb") as pipe:
            command = [*COMMAND, *map(str, arguments)]
            result = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False, timeout=SECONDS)

        assert (0, b"") == (result.returncode, result.stderr)


class TestCheckOfTheJournal:
    """`check` waits for journalctl's first lines, not for ever."""

    @pytest.mark.parametrize(
        ("does", "words", "status"),
        [
            ("sleep 0.1\ncat entries\nexec sleep 3600", "ok. ", 0),
            ("exec sleep 3600", "FAILED. The journal has no entry of this unit yet. Check the unit's name", 1),
            ("exec true", "FAILED. journalctl ended with an error", 1),
            ("echo 'No journal files were opened due to insufficient permissions.' >&2\nexit 1", "systemd-journal", 1),
            (None, "FAILED. The program journalctl is not installed", 1),
        ],
        ids=["late", "no entries", "ends", "forbidden", "missing"],
    )
    def test_what_journalctl_does(self, tmp_path, monkeypatch, does, words, status):
        """Lines that come late are seen; a unit without any, an error and a missing journalctl are said."""
        if does is not None:
            (tmp_path / "journalctl").write_text(f"#!/bin/sh\ncd {tmp_path}\n{does}\n")
            (tmp_path / "journalctl").chmod(0o755)
        stats = next(line for line in log_of("day").decode().splitlines() if "Running:" in line)
        entry = {"__CURSOR": "c1", "__REALTIME_TIMESTAMP": str(int(time.time() * 1e6)), "MESSAGE": stats}
        (tmp_path / "entries").write_text(json.dumps(entry) + "\n")
        config = tmp_path / "config.yml"
        config.write_text("servers: [{name: a, log: {journal: vllm.service}}]\n")
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}" if does is not None else str(tmp_path))
        monkeypatch.setattr(server_check, "ANSWER_SECONDS", 0.1 if "no entry" in words else SECONDS)
        result = call_here("check", "--config", str(config))

        assert f"log of unit vllm.service: {'ok' if status == 0 else 'FAILED'}" in result.stdout
        assert words in result.stdout
        assert status == result.returncode


class TestBackfill:
    """`backfill` writes what Prometheus can load."""

    @pytest.mark.parametrize("source", [RECORDINGS["stall"], log_file("day")])
    def test_strict_openmetrics(self, tmp_path, source):
        """The file is strictly valid OpenMetrics, and each series' times ascend."""
        out = tmp_path / "out.om"
        result = vllm_watch("backfill", source, "-o", out)
        blocks = re.split(r"(?m)^(?=# (?:TYPE|EOF))", out.read_text())
        # This parser drops all but the first moment's buckets and then misses them; promtool reads those below.
        checked = "".join(block for block in blocks if " histogram\n" not in block)
        families = list(parse_openmetrics(checked))

        assert 0 == result.returncode
        assert {"vllm_watch_engine_state", "vllm_watch_requests_running"} <= {family.name for family in families}
        lines = [line for block in blocks for line in block.splitlines() if not line.startswith("#")]
        assert f"{len(lines)} samples" in result.stderr

    @pytest.mark.needs_tool("promtool")
    def test_promtool_makes_blocks_of_it(self, tmp_path):
        """Prometheus' own tool turns a recording's series into blocks; the dashboards' tests have them of all."""
        out = tmp_path / "out.om"
        vllm_watch("backfill", RECORDINGS["dp1"], "-o", out)
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(out), str(tmp_path / "data")]
        result = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)

        assert 0 == result.returncode, result.stderr
        assert list((tmp_path / "data").glob("*/index"))


class Daemon:
    """A daemon in a process of its own."""

    def __init__(self, *arguments, **environment):
        self.port = free_port()
        self.process = subprocess.Popen(
            [*COMMAND, *map(str, arguments), "--listen", f"127.0.0.1:{self.port}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
        )
        until(lambda: self.get("/-/ready")[0] == 200)

    def __enter__(self):
        """Return the daemon."""
        return self

    def __exit__(self, *_):
        """End it."""
        self.process.kill()
        self.process.communicate()

    def get(self, path, **headers):
        """Return status and body of a page, or 0 and nothing."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()
        except OSError:
            return 0, b""

    def stop(self, number=signal.SIGTERM):
        """Ask it to end; return its exit status and its log."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, errors.decode()


class TestDaemon:
    """`run` and `demo` as processes."""

    def test_a_log_that_grows_moves_the_gauges(self, tmp_path):
        """What is appended to a log is on the page at once, in the text format, in OpenMetrics and compressed."""
        log = tmp_path / "vllm.log"
        with Daemon("run", "--log", log) as daemon:
            log.write_bytes(log_of("vl"))
            until(lambda: b'vllm_watch_server_starts_total{server="vllm"} 1.0' in daemon.get("/metrics")[1])
            openmetrics = daemon.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")[1]
            packed = daemon.get("/metrics", **{"Accept-Encoding": "gzip"})[1]

        assert list(parse_openmetrics(openmetrics.decode()))
        assert b"vllm_watch_engine_state" in gzip.decompress(packed)

    def test_it_says_once_what_is_wrong_and_recovers(self, tmp_path, closed_port):
        """A missing log and a refusing server are said once each in JSON, shown, and got over."""
        log = tmp_path / "vllm.log"
        with Daemon("run", "--log", log, "--metrics", f"http://127.0.0.1:{closed_port}/metrics") as daemon:
            page = daemon.get("/metrics")[1].decode()
            log.touch()
            until(lambda: b'source_up{server="vllm",source="log"} 1.0' in daemon.get("/metrics")[1])
            status, errors = daemon.stop()

        found = values(page)
        assert 1 == value(found, "source_info", source="log", reason="not_found")
        assert 1 == value(found, "source_info", source="metrics", reason="refused")
        said = [json.loads(line) for line in errors.splitlines()]
        changes = [(record["source"], record["reason"]) for record in said if record["event"] == "source.changed"]
        assert [("log", "not_found"), ("log", "ok"), ("metrics", "refused")] == sorted(changes)
        assert 0 == status

    def test_the_demo_names_the_address_that_it_listens_on(self):
        """The address to open is one that answers, with the port that was free, also if it listens on all."""
        with subprocess.Popen([*COMMAND, "demo", "--listen", ":0"], stderr=subprocess.PIPE, text=True) as process:
            try:
                line = next(line for line in process.stderr if "Open " in line)
                opened = re.search(r"Open (http://(.*):(\d+)/) ", line)
                with urllib.request.urlopen(f"{opened[1]}-/healthy", timeout=SECONDS) as reply:
                    status = reply.status
            finally:
                process.kill()

        assert (200, "127.0.0.1") == (status, opened[2])

    def test_ctrl_c_ends_it_well(self, tmp_path):
        """SIGINT ends it as SIGTERM does, with exit 0; of its environment it needs neither HOME nor a locale."""
        with Daemon("run", "--log", tmp_path / "x.log", HOME="/nonexistent", LANG="C", LC_ALL="C") as daemon:
            status, errors = daemon.stop(signal.SIGINT)

        assert 0 == status
        assert "service.stopped" in errors

    def test_the_demo_moves(self):
        """The demo shows a server that starts, serves, and has its page and its JSON."""
        with Daemon("demo", "--speed", "50") as daemon:
            until(lambda: b'state="serving"} 1.0' in daemon.get("/metrics")[1])
            page = daemon.get("/")
            view = json.loads(daemon.get("/api/v1/snapshot")[1])
            status, _ = daemon.stop()

        assert (200, 0) == (page[0], status)
        assert "Qwen3.6-27B" == view["servers"][0]["model_name"]

    def test_every_mistake_of_a_configuration_is_a_line(self, tmp_path):
        """All mistakes of a configuration are printed, one a line, and it leaves with 2."""
        config = tmp_path / "vllm-watch.yml"
        config.write_text("servers:\n  - {name: a, log: ''}\nlisten: x\n")
        result = vllm_watch("check", "--config", config)

        assert 2 == result.returncode
        assert [
            f'vllm-watch: {config}:2: servers[0].log: expected a path, got ""',
            f'vllm-watch: {config}:3: listen: expected HOST:PORT such as 127.0.0.1:9468, got "x"',
        ] == result.stderr.splitlines()

    @pytest.mark.parametrize(
        ("key", "extra"),
        [("otlp: {endpoint: 'http://127.0.0.1:1'}", "otlp"), ("kubernetes: {selector: 'app=vllm'}", "kubernetes")],
    )
    def test_a_configuration_whose_extra_is_missing_is_wrong(self, tmp_path, monkeypatch, key, extra):
        """The daemon does not start with half of what it is told to do: one sentence says what to install."""
        monkeypatch.setattr(run, "is_installed", lambda: False)
        monkeypatch.setattr(run, "find_spec", lambda _name: None)
        config = tmp_path / "vllm-watch.yml"
        config.write_text(f"servers: [{{name: a, log: a.log}}]\n{key}\n")

        with pytest.raises(UsageError, match=rf"^{extra}: the extra {extra} is not installed: .*'\.\[{extra}\]'$"):
            run.run_daemon(Selection(str(config), (), ()))

    def test_the_level_and_the_form_of_its_log(self, closed_port):
        """--log-level says from which severity on events are written, --log-format in which form."""
        options = ["run", "--metrics", f"http://127.0.0.1:{closed_port}/metrics"]
        logs = {}
        for level in ("debug", "warning"):
            with Daemon(*options, "--log-level", level) as daemon:
                logs[level] = [json.loads(line) for line in daemon.stop()[1].splitlines()]
        with Daemon(*options, "--log-format", "console") as daemon:
            console = daemon.stop()[1]

        assert {"debug", "info", "warning"} <= {entry["level"] for entry in logs["debug"]}
        assert {"scrape.ended", "source.changed"} <= {entry["event"] for entry in logs["debug"]}
        assert {"source.changed"} == {entry["event"] for entry in logs["warning"]}
        assert "service.started" in console
        assert "{" not in console
        assert "\x1b" not in console


def test_every_command_is_in_the_readme():
    """Each command of `vllm-watch --help` is in the README."""
    commands = re.findall(r"^  (\w+) ", vllm_watch("--help").stdout.partition("Commands:")[2], re.MULTILINE)
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")

    assert commands
    assert not [command for command in commands if f"vllm-watch {command}" not in readme]
