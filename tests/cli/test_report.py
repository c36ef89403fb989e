# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch report`` as a user types it: formats, files, and errors that leave nothing behind."""

from __future__ import annotations

import json
import os

from importlib.resources import files
from pathlib import Path

import pytest

from tests.loadtest.load_tests import FOLDER
from tests.support.command_line import vllm_watch


pytestmark = pytest.mark.slow


RESULTS = Path(__file__).parents[1] / "parsers" / "benchmark_results"
DRAFT = FOLDER / "draft2-run1.jsonl.xz"

DESIGNED = {"source", "model", "version", "config", "load", "result", "phases", "steady"}
"""Keys of a run that programs may rely on."""

RESULT = {
    "successful",
    "failed",
    "duration_s",
    "total_input_tokens",
    "total_output_tokens",
    "request_throughput",
    "output_throughput",
    "total_token_throughput",
    "ttft_ms",
    "tpot_ms",
    "itl_ms",
    "e2el_ms",
}


def test_the_json_is_as_promised():
    """Standard output is one JSON document with the promised keys, and standard error is empty."""
    done = vllm_watch("report", DRAFT, "--format", "json")
    (run,) = json.loads(done.stdout)["runs"]

    assert (done.returncode, done.stderr) == (0, "")
    assert set(run) >= DESIGNED
    assert set(run["result"]) >= RESULT
    assert {"mean", "median", "p99"} <= set(run["result"]["ttft_ms"])
    assert {"request_rate", "max_concurrency", "num_prompts"} <= set(run["load"])
    assert {"phase", "start", "end", "result"} <= set.union(*map(set, run["phases"]))
    assert {"start", "end", "method"} <= set(run["steady"])
    assert 1.7e9 < run["start"] < run["end"] < 1.9e9


@pytest.mark.parametrize(
    ("name", "start"),
    [("r.json", "{"), ("r.html", "<!DOCTYPE html>"), ("r.md", "#"), ("r.txt", "Load test"), ("noending", "Load test")],
)
def test_the_format_is_that_of_the_file_s_ending(tmp_path, name, start):
    """Without --format the ending of FILE decides."""
    done = vllm_watch("report", DRAFT, "-o", tmp_path / name)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_a_format_overrides_the_ending(tmp_path):
    """--format decides where it is given."""
    vllm_watch("report", DRAFT, "-o", tmp_path / "r.txt", "--format", "json")

    assert json.loads((tmp_path / "r.txt").read_text(encoding="utf-8"))["runs"]


def test_an_objective_is_counted():
    """With an objective the server's share within it is between bounds."""
    done = vllm_watch("report", DRAFT, "--format", "json", "--objective", "ttft=100ms,tpot=10ms")
    server = json.loads(done.stdout)["runs"][0]["views"][1]["goodput"]

    assert server["objective"]["limits"] == {"ttft_ms": 100, "tpot_ms": 10}
    assert 0 < server["bounds"]["low"] <= server["bounds"]["high"] <= 1


def test_a_part_of_a_recording_and_one_of_its_tests_are_shown():
    """--from, --to and --run choose among several load tests of any source, and what is not shown is said."""
    day = files("vllm_watch") / "analysis/replay/recordings/day.jsonl.xz"
    whole = vllm_watch("report", day)
    later = vllm_watch("report", day, "--from", "2026-11-21T02:26:30Z", "--to", "2026-11-21T02:28:00Z")
    none = vllm_watch("report", day, "--to", "2026-11-21T02:00:00Z")
    third = vllm_watch("report", day, "--run", "3")

    assert "3 loads found, 2 left out" in whole.stdout
    assert "78 requests in 28.5 s" in later.stdout
    assert (none.returncode, "between --from and --to" in none.stderr) == (1, True)
    assert (third.returncode, "there is only one" in third.stderr) == (1, True)


def test_an_objective_that_cannot_be_judged_is_named(tmp_path):
    """A result without single requests says what would judge it, instead of leaving the row out."""
    result = {"date": "20261121-020000", "duration": 10, "completed": 5, "total_input_tokens": 50}
    result |= {"total_output_tokens": 50, "request_throughput": 0.5, "output_throughput": 5.0}
    (tmp_path / "a.json").write_text(json.dumps(result), encoding="utf-8")
    done = vllm_watch("report", tmp_path / "a.json", "--objective", "chat")

    assert "Within objective (%)" in done.stdout
    assert "--save-detailed" in done.stdout


def test_a_price_shows_what_tokens_cost():
    """Each view has the costs of its own time and tokens, at the price that is given."""
    done = vllm_watch("report", DRAFT, "--format", "json", "--cost-per-hour", "3.6")
    (run,) = json.loads(done.stdout)["runs"]

    assert run["cost_per_hour"] == 3.6
    for view in run["views"]:
        cost = 3.6 / 3600 * view["duration_s"] * 1e6
        assert view["cost_per_million_output_tokens"] == pytest.approx(cost / view["total_output_tokens"])
        assert view["cost_per_million_input_tokens"] == pytest.approx(cost / view["total_input_tokens"])


def test_a_failure_leaves_the_old_file(tmp_path):
    """What was there before is there afterwards, and nothing half-written beside it."""
    output = tmp_path / "r.json"
    output.write_text("old")
    broken = tmp_path / "broken.json"
    broken.write_text('{"date": ')
    done = vllm_watch("report", DRAFT, broken, "-o", output)

    assert done.returncode == 1
    assert f"{broken}:1: " in done.stderr
    assert output.read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["broken.json", "r.json"]


def test_a_device_is_written_as_it_is():
    """A report may go to a device, which nothing can take the place of."""
    assert vllm_watch("report", DRAFT, "-o", os.devnull).returncode == 0


@pytest.mark.parametrize(("form", "is_ascii"), [("text", True), ("markdown", True), ("html", False)])
def test_a_terminal_that_has_only_ascii_gets_a_whole_report(form, is_ascii):
    """Where standard output has no dashes and quotes, what looks alike takes their place; a page stays UTF-8."""
    done = vllm_watch("report", DRAFT, "--format", form, env=os.environ | {"PYTHONIOENCODING": "ascii"})

    assert (done.returncode, done.stderr) == (0, "")
    assert is_ascii == done.stdout.isascii()
    assert "Qwen3.6-27B" in done.stdout
    assert "\\u" not in done.stdout


def test_standard_input_is_a_source():
    """What comes on standard input is read as a file with the same content is."""
    printed = RESULTS / "printed-0.27.0-probe.txt"

    piped = vllm_watch("report", "--format", "json", "-", input=printed.read_text())
    named = vllm_watch("report", "--format", "json", str(printed))

    assert json.loads(piped.stdout)["runs"][0]["result"] == json.loads(named.stdout)["runs"][0]["result"]
