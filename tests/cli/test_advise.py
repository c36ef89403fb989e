# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch advise`` as a user types it: formats, files, sources and errors."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from tests.support.command_line import vllm_watch
from tests.support.monitoring import filled_prometheus, series_of
from tests.support.recording_files import as_file
from tests.support.recordings import log_file, recording, recording_path

from vllm_watch.analysis.replay.recording_lines import CommandLine


ROOT = Path(__file__).parents[2]
QUEUE = recording_path("queue")
HEALTHY = recording_path("stop")
DRAFTS = "speculative-config.num_speculative_tokens"
DESIGNED = {"flag", "now", "proposed", "expected", "risk", "evidence"}
"""Keys of a piece of advice that programs may rely on."""


def advise(*arguments):
    """Run the command to its end."""
    return vllm_watch("advise", *arguments)


def test_the_json_is_as_promised():
    """Standard output is one JSON document with the promised keys, and standard error is empty."""
    done = advise(QUEUE, "--format", "json")
    found = json.loads(done.stdout)
    (advice,) = found["advice"]

    assert (done.returncode, done.stderr) == (0, "")
    assert set(found) == {"advice", "notes", "silent", "servers"}
    assert set(advice) >= DESIGNED
    assert (advice["flag"], advice["now"], advice["proposed"]) == (DRAFTS, "4", "off")
    assert all(each["series"].startswith("vllm_watch_") for each in advice["evidence"])
    assert all(each["start"] < each["end"] and each["value"] >= 0 for each in advice["evidence"])
    assert advice["check"][-1].startswith("vllm-watch compare now=")
    assert {each["rule"] for each in found["silent"]} > {"max-num-seqs-up", "enforce-eager-off"}


def test_no_advice_is_an_empty_list():
    """Without advice the list is empty, and the exit status is 0."""
    done = advise(HEALTHY, "--format", "json")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["advice"] == []
    assert "That is too little to say anything about its flags: 2 min are needed." in advise(HEALTHY).stdout


def test_the_text_says_all():
    """The text has the change, its reason, numbers, risk and commands, and with --verbose why there is no other."""
    plain, verbose = advise(QUEUE), advise(QUEUE, "--verbose")

    assert (plain.returncode, verbose.returncode) == (0, 0)
    for said in (
        f"{DRAFTS}: 4 → off",
        "vllm_watch_requests_running",
        "Expected: ",
        "Risk: ",
        "    vllm-watch compare ",
    ):
        assert said in plain.stdout
    assert "Why there is no other advice" not in plain.stdout
    assert "there is advice for the same cause: draft-tokens-down" in " ".join(verbose.stdout.split())


@pytest.mark.parametrize(
    ("name", "start", "said"),
    [
        ("a.json", "{", f'"flag": "{DRAFTS}"'),
        ("a.md", "## Advice", "    vllm-watch compare "),
        ("a.html", "<!DOCTYPE html>", "<pre "),
        ("a.txt", "Advice: 1 flag", f"{DRAFTS}: 4"),
    ],
)
def test_the_format_is_that_of_the_file_s_ending(tmp_path, name, start, said):
    """Without --format the ending of FILE decides, and nothing else is written."""
    done = advise(QUEUE, "-o", tmp_path / name)
    text = (tmp_path / name).read_text(encoding="utf-8")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert text.startswith(start)
    assert said in text


def test_a_log_alone_is_enough():
    """The log has the flags and what ran and waited."""
    (advice,) = json.loads(advise(log_file("queue"), "--format", "json").stdout)["advice"]

    assert (advice["flag"], advice["proposed"]) == (DRAFTS, "off")


@pytest.mark.slow
def test_a_prometheus_is_enough(tmp_path):
    """A time range of a Prometheus gives the same advice, and is the baseline of the check."""
    played = recording("queue")
    with filled_prometheus(tmp_path, series_of(QUEUE, tmp_path)) as url:
        time = f"{played.started:.0f}/{played.started + played.seconds:.0f}"
        done = advise(f"prom:{url}/queue@{time}", "--format", "json")
    (advice,) = json.loads(done.stdout)["advice"]

    assert (advice["flag"], advice["now"], advice["proposed"]) == (DRAFTS, "4", "off")
    assert f"now=prom:{url}/queue@2026-" in advice["check"][-1]
    assert f"changed=prom:{url}/queue@FROM/TO" in advice["check"][-1]


def test_a_result_alone_shows_no_server(tmp_path):
    """What a benchmark measured does not show what the server did: its log has to be there, too."""
    result = {"date": "20261120-140000", "backend": "vllm", "model_id": "m", "num_prompts": 10, "completed": 10}
    times = {"duration": 60.0, "request_throughput": 1.0, "total_input_tokens": 100, "total_output_tokens": 100}
    (tmp_path / "result.json").write_text(json.dumps({**result, **times, "output_throughput": 2.0}), encoding="utf-8")
    done = advise(tmp_path / "result.json")

    assert done.returncode == 1
    assert "a benchmark's result does not show what the server did: add its log or /metrics" in done.stderr


def test_the_rules_come_with_the_command():
    """The document on the rules is in the package."""
    done = advise("--explain")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (ROOT / "daemon" / "ADVISING.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The overload by its /metrics alone: once with the command line as `record` keeps it, once without."""
    folder = tmp_path_factory.mktemp("recorded")
    said = CommandLine(flags={"max-num-seqs": "4", "max-model-len": "2048"})
    queue = recording("queue")
    return (
        as_file(queue, folder / "known.jsonl.xz", has_log=False, command=said),
        as_file(queue, folder / "unknown.jsonl.xz", has_log=False),
    )


def test_a_recorded_command_line_is_known(recorded):
    """What record knew of the flags is what advise, report, compare, backfill and top know."""
    known, unknown = recorded
    unjudged = [
        {
            name
            for each in json.loads(advise(file, "--format", "json").stdout)["silent"]
            for name in each.get("unknown", ())
        }
        for file in recorded
    ]
    (run,) = json.loads(vllm_watch("report", known, "--format", "json").stdout)["runs"]
    compared = json.loads(vllm_watch("compare", unknown, known, "--format", "json").stdout)
    filled = vllm_watch("backfill", known, "--step", "60s").stdout
    (shown,) = json.loads(vllm_watch("top", "--recording", known, "--once", "--format", "json").stdout)["servers"]

    assert ["max-num-seqs" in each for each in unjudged] == [False, True]
    assert run["config"].items() >= {"max-num-seqs": "4", "max-model-len": "2048"}.items()
    assert {each["flag"]: each["b"] for each in compared["config"]}["max-num-seqs"] == "4"
    assert 'vllm_watch_max_running_requests{server="queue"' in filled
    assert shown["configuration"]["flags"]["max-num-seqs"] == {"value": "4", "source": "command line"}


def test_rules_that_lack_something_are_not_said_to_see_nothing(recorded):
    """Where the limit of the batch is not known, the answer says so, and not that nothing is wrong."""
    text = " ".join(advise(recorded[1]).stdout.split())

    assert "rules could not judge for want of: " in text
    assert "max-num-seqs" in text
    assert "Nothing that was observed" not in text
