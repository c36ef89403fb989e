# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch backtest``, from the command line to what is printed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess

import pytest

from tests.alerts.incidents import INCIDENTS
from tests.support.command_line import COMMAND, vllm_watch
from tests.support.monitoring import filled_prometheus
from tests.support.recording_files import as_file, header
from tests.support.recordings import RECORDINGS, log_file, log_of, recording
from tests.support.server_stories import line
from tests.support.waiting import SECONDS, until

from vllm_watch.analysis.replay.recording import MetricsRead, Recording
from vllm_watch.analysis.replay.recording_lines import CommandLine, RecordingWriter, scrape_line
from vllm_watch.cli.commands.backfill import write_backfill


STALL = str(RECORDINGS["stall"])
LIVES_LONG = "#!/bin/sh\ncase $1 in check) ;; *) exec sleep 600;; esac\n"

pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("promtool")]


def backtest(*arguments, **options):
    """Run the command to its end."""
    return vllm_watch("backtest", *arguments, **options)


def answered(*arguments):
    """Return the JSON that the command prints."""
    found = backtest(*arguments, "--format", "json")
    assert (found.returncode, found.stderr) == (0, "")
    return json.loads(found.stdout)


def words(text):
    """Return a text with its lines joined."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def answer():
    """What is said of a stalled engine."""
    return answered(STALL)


class TestRecording:
    """A recording of a stalled engine."""

    def test_it_fires_as_the_tests_of_the_rules_expect(self, answer):
        """The package's rules page within the time in which they must, with all labels, in the recording's time."""
        (stall,) = [each for each in INCIDENTS if each.name == "stall"]
        page = next(each for each in answer["alerts"] if each["alertname"] == "VllmEngineStalled")
        started = Recording(stall.path).started

        assert stall.expected[0].earliest <= page["start"] - started <= stall.expected[0].latest
        assert page["end"] - started <= stall.expected[0].ended_by
        assert page["pending_since"] == pytest.approx(page["start"] - 15)
        labels = {"engine": "0", "model_name": "Qwen3.6-27B", "server": "stall", "state": "stalled", "tier": "core"}
        assert page["labels"] == labels

    def test_with_other_thresholds(self, tmp_path):
        """A threshold that waits longer loses the page: it was pending only."""
        file = tmp_path / "slow.yml"
        file.write_text("stalled_for: 40s\n")
        found = answered(STALL, "--thresholds", file, "--fail-if-firing", "critical")

        assert found["alerts"] == []
        assert "VllmEngineStalled" in {each["alertname"] for each in found["pending"]}

    def test_what_was_not_judged_did_not_stay_quiet(self, answer):
        """Alerts that lack series or time are named with the reason; those that fired or were judged are not."""
        reasons = {each["alertname"]: each["reason"] for each in answer["not_judged"]}

        assert reasons["VllmProbeFailing"] == "no probe was made"
        assert reasons["VllmDataParallelImbalance"] == "there is one engine"
        assert reasons["VllmLatencyBudgetBurnsFast"] == "no objective is given (--objective)"
        assert reasons["VllmWatchGone"] == "a log or a recording shows nothing of vllm-watch itself"
        assert reasons["VllmSleepingWithRequests"] == "it waits 10m before it fires, longer than the values last"
        assert not {"VllmEngineStalled", "VllmEngineDown", "VllmCapacityExhausted", "Watchdog"} & set(reasons)

    def test_a_log_into_a_file(self, tmp_path):
        """Of a log alone what needs /metrics is not judged; an alert that fires makes the command fail if asked to."""
        log = log_file("stall")
        options = ("--fail-if-firing", "info", "-o", tmp_path / "alerts.txt")
        found = backtest(log, *options, env={**os.environ, "TZ": "Asia/Shanghai"})
        text = (tmp_path / "alerts.txt").read_text()

        assert (found.returncode, found.stdout, found.stderr) == (1, "", "")
        assert " UTC+08:00 " in text
        assert re.search(r"VllmEngineStalled +02:41:\d\d +the end", text)  # The zone is that of the log.
        assert re.search(r"Not judged: (.*; )?\d+ alerts, because no /metrics was read; ", words(text))


class TestFlagThatIsNotKnown:
    """An overload by a log without its start: whether the batch is full, only its limit tells."""

    def test_what_it_would_decide_is_named(self, tmp_path):
        """Nothing passes in silence: the answer and a line for CI name the alert and the flag."""
        lines = log_of("queue").decode().splitlines(keepends=True)
        file = tmp_path / "vllm.log"
        file.write_text("".join(line for line in lines if "Avg prompt throughput" in line))
        found = backtest(file, "--fail-if-firing", "critical")
        text = words(found.stdout)

        assert "because max-num-seqs is not known: VllmCapacityExhausted." in text
        assert found.returncode == 0
        assert found.stderr == (
            "vllm-watch: --fail-if-firing critical: none fired, but without max-num-seqs these could not be judged: "
            "VllmCapacityExhausted\n"
        )
        assert len(found.stdout.splitlines()) <= 30  # With the long path of the file in the title, and an alert.

    def test_with_the_recorded_command_line_it_fires(self, tmp_path):
        """What record knew of the flag is enough for the page."""
        said = CommandLine(flags={"max-num-seqs": "4"})
        file = as_file(recording("queue"), tmp_path / "queue.jsonl.xz", has_log=False, command=said)
        answer = answered(file)

        assert "VllmCapacityExhausted" in {each["alertname"] for each in answer["alerts"]}

    def test_nothing_is_pending_before_the_first_look(self, tmp_path):
        """A recording begins before its first scrape has ended: what nobody had looked at is not down."""
        path = tmp_path / "late.jsonl.xz"
        scrapes = [event for event in recording("busy").events() if isinstance(event, MetricsRead) and event.body][9:]
        with path.open("wb") as file:
            writer = RecordingWriter(file, header("busy"))
            for number, event in enumerate(scrapes):
                writer.add(scrape_line(0.2 + 5 * number, "busy", 0.1, event.body))
            writer.end(5.0 * len(scrapes), "interrupted", {})
        answer = answered(path)

        assert not {"VllmSourceDown", "VllmStateUnknown"} & {each["alertname"] for each in answer["pending"]}

    def test_a_first_line_without_a_token_is_no_page(self, tmp_path):
        """After idle minutes whose zeros are printed, requests that wait 40 s for their first token wake nobody."""
        log = tmp_path / "vllm.log"
        log.write_bytes(
            b"".join(
                line(running, generation=rate).replace(b"02:35:10", b"02:%02d:%02d" % divmod(10 * number, 60)) + b"\n"
                for number, (running, rate) in enumerate([(1, 9.0), *[(0, 0.0)] * 60, *[(1, 0.0)] * 5, (1, 9.0)])
            )
        )

        assert answered(log)["alerts"] == []


class TestUsersRules:
    """A user's own rules."""

    def test_they_are_evaluated_instead_of_the_packages(self, tmp_path):
        """They may select what the package records, wait as their group says, and are told what is not there."""
        file = tmp_path / "mine.yml"
        file.write_text(
            "groups:\n- name: g\n  interval: 10s\n  rules:\n"
            "  - {alert: Working, expr: 'engine:vllm_watch_requests_queued >= 0 and vllm_watch_requests_running > 0'}\n"
            "  - {alert: Hot, expr: 'DCGM_FI_DEV_GPU_TEMP > 90', labels: {severity: warning}}\n"
            "  - {alert: Night, expr: 'vllm_watch_build_info == 1 and on () hour() < 6'}\n"
            "  - {alert: Old, expr: time() - vllm_watch_last_token_timestamp_seconds > 60, labels: {severity: info}}\n"
        )
        answer = answered(STALL, "--rules", file)
        (source,) = answer["sources"]

        assert {each["alertname"]: each["reason"] for each in answer["not_judged"]} == {
            "Hot": "there is no series DCGM_FI_DEV_GPU_TEMP",
            "Night": "it depends on the date or the time of day, and promtool evaluates all rules in 1970",
        }
        assert {(each["alertname"], each["severity"]) for each in answer["alerts"]} == {
            ("Working", ""),
            ("Old", "info"),
        }
        assert source["evaluation_interval"] == 10
        (old,) = [each["start"] - source["start"] for each in answer["alerts"] if each["alertname"] == "Old"]
        assert 149 <= old <= 165  # The last token came at 89.

    def test_a_rule_that_cannot_be_evaluated(self, tmp_path):
        """A rule that fails over these values is an error with its name, and no result without it."""
        file = tmp_path / "mine.yml"
        file.write_text(
            "groups:\n- name: g\n  rules:\n"
            "  - {alert: Many, expr: 'vllm_watch_source_up * on (server) vllm_watch_source_up > 0'}\n"
        )
        found = backtest(STALL, "--rules", file)

        assert (found.returncode, found.stdout) == (1, "")
        assert found.stderr.startswith("vllm-watch: the rule Many cannot be evaluated: found duplicate series")

    @pytest.mark.parametrize(
        ("option", "text", "message"),
        [
            ("--rules", "groups:\n- name: g\n  rules:\n  - {alert: A, expr: 'sum('}\n", ": 4:22: "),
            ("--thresholds", "kv_full: 1\n", ":1: kv_full: there is no such threshold"),
        ],
    )
    def test_a_wrong_file(self, tmp_path, option, text, message):
        """A mistake in a file is wrong usage, with the file and the line."""
        (tmp_path / "wrong.yml").write_text(text)
        found = backtest(STALL, option, tmp_path / "wrong.yml")

        assert (found.returncode, found.stdout) == (2, "")
        assert f"{tmp_path}/wrong.yml{message}" in found.stderr


class TestPromtool:
    """What happens to the program that evaluates."""

    def test_it_may_be_missing(self, tmp_path):
        """Without it the command says what is missing and how to get it."""
        found = backtest(STALL, env={**os.environ, "PATH": str(tmp_path)})

        assert (found.returncode, found.stdout) == (1, "")
        assert "promtool is missing" in found.stderr
        assert "apt-get install prometheus" in found.stderr

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_it_ends_with_the_command(self, tmp_path, number):
        """A signal ends what was started, and leaves no file."""
        folder, program = tmp_path / "tmp", tmp_path / "bin" / "promtool"
        folder.mkdir()
        program.parent.mkdir()
        program.write_text(LIVES_LONG.replace("exec", f"echo $$ > {tmp_path}/pid; exec"))
        program.chmod(0o755)
        environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "TMPDIR": str(folder)}
        with subprocess.Popen([*COMMAND, "backtest", STALL], env=environment, stderr=subprocess.DEVNULL) as running:
            try:
                until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip(), 60)
                pid = int((tmp_path / "pid").read_text())
                running.send_signal(number)
                running.wait(SECONDS)
            finally:
                running.kill()

        assert running.returncode in {1, -number}
        assert list(folder.iterdir()) == []
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.needs_tool("prometheus")
def test_a_prometheus_says_what_the_recording_says(tmp_path):
    """The alerts over a recording's series in a real Prometheus are those over the recording itself."""
    name = "stall"
    series = tmp_path / "series.om"
    write_backfill([str(RECORDINGS[name])], 5.0, str(series), lambda _: None)
    recorded = answered(RECORDINGS[name])
    source = recorded["sources"][0]
    with filled_prometheus(tmp_path, series) as url:
        found = answered(f"prom:{url}/{name}@{source['start'] + 60}/{source['end']}")

    def said(answer):
        return {(each["alertname"], each["labels"].get("event")): each for each in answer["alerts"]}

    assert said(found).keys() == said(recorded).keys()
    for key, each in said(found).items():
        assert each["start"] == pytest.approx(said(recorded)[key]["start"], abs=15)
        assert each.get("end", 0) == pytest.approx(said(recorded)[key].get("end", 0), abs=15)
    assert found["sources"][0]["start"] == pytest.approx(source["start"] + 60, abs=5)
