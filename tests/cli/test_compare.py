# SPDX-License-Identifier: Apache-2.0
"""``vllm-watch compare`` as a user types it: sides, formats, limits, mistakes."""

from __future__ import annotations

import json
import math
import random

from pathlib import Path

import pytest

from tests.support.command_line import vllm_watch


pytestmark = pytest.mark.slow

DOCUMENTS = Path(__file__).parents[2] / "daemon"
LATENCIES = {"ttft": 80.0, "tpot": 7.0, "itl": 7.0, "e2el": 780.0}


def compare(*arguments):
    """Run the command to its end."""
    return vllm_watch("compare", *arguments)


def result_file(path, speed, **changes):
    """Write what ``vllm bench serve`` writes of a server that is so many times as fast as the usual one."""
    result = {
        "date": "20261122-051417",
        "backend": "openai",
        "model_id": "Qwen3-8B",
        "num_prompts": 2000,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 16,
        "duration": 100.0 / speed,
        "completed": 2000,
        "failed": 0,
        "total_input_tokens": 400_000,
        "total_output_tokens": 200_000,
        "request_throughput": 20.0 * speed,
        "output_throughput": 2000.0 * speed,
        "total_token_throughput": 6000.0 * speed,
    }
    for name, mean in LATENCIES.items():
        for statistic, times in (("mean", 1.0), ("median", 0.9), ("std", 0.3), ("p99", 2.5)):
            result[f"{statistic}_{name}_ms"] = mean * times / speed
    path.write_text(json.dumps(result | changes), encoding="utf-8")
    return str(path)


@pytest.fixture(name="sides")
def fixture_sides(tmp_path):
    """Return two sides of five runs each that took turns, the second 20 % faster."""
    generator = random.Random(1)
    return [
        f"{name}="
        + ",".join(
            result_file(
                tmp_path / f"{name}{number}.json",
                speed * math.exp(generator.gauss(0, 0.02)),
                date=f"20261122-05{4 * number + 2 * (name == 'new'):02d}17",
            )
            for number in range(5)
        )
        for name, speed in (("old", 1.0), ("new", 1.2))
    ]


def test_a_table_on_standard_output(sides):
    """The answer is a sentence and a short table; --all has the rest; nothing is on standard error."""
    found = compare(*sides)

    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith("new is faster: output ")
    assert 8 <= len(found.stdout.splitlines()) <= 12
    assert "new compared with old" in compare(*sides, "--all").stdout


def test_tables_for_articles(sides, tmp_path):
    """The wide table and the gains are text, Markdown and CSV by the ending; a page or JSON has no table of its own."""
    (text, markdown), csv = (
        (compare(*sides, "--table", "gains", *more).stdout for more in ((), ("--format", "markdown"))),
        tmp_path / "wide.csv",
    )
    wrong = compare(*sides, "--table", "wide", "--format", "json")

    assert compare(*sides, "-o", csv).returncode == 0
    assert csv.read_text(encoding="utf-8").startswith("Side,Requests (1/s),Output (tokens/s)")
    assert text.startswith("Side")
    assert markdown.startswith("| Side | Metric | Unit |")
    assert (wrong.returncode, "not as json" in wrong.stderr) == (2, True)


def test_json_has_the_keys_that_programs_read(sides):
    """The keys, a row for each metric, and the grade of the headline."""
    answer = json.loads(compare(*sides, "--format", "json").stdout)
    headline = answer["metrics"][0]

    assert {"baseline", "comparable", "reasons", "config", "metrics"} <= set(answer)
    assert {"metric", "a", "b", "difference", "percent", "low", "high", "runs", "grade"} <= set(headline)
    assert (answer["baseline"], answer["comparable"], answer["reasons"]) == ("old", True, [])
    assert (headline["metric"], headline["grade"], headline["runs"]) == ("output_throughput", "shown", [5, 5])
    assert headline["low"] < headline["percent"] < headline["high"]


def test_prices_are_listed_and_compared(sides):
    """A side's own price counts more than that of all; a fifth more tokens at half the price more cost more."""
    costs = ("--cost-per-hour", "new=3.6", "--cost-per-hour", "2.4")
    answer = json.loads(compare(*sides, "--format", "json", *costs).stdout)
    row = next(row for row in answer["metrics"] if row["metric"] == "cost_per_million_output_tokens")

    assert answer["cost_per_hour"] == {"old": [2.4], "new": [3.6]}
    assert row["a"] == pytest.approx(2.4 / 3600 / 2000 * 1e6, rel=0.05)
    assert row["percent"] == pytest.approx(100 * (3.6 / 2.4 / 1.2 - 1), abs=8)
    assert (row["higher_is_better"], row["runs"]) == (False, [5, 5])
    assert "Cost per hour: old 2.4, new 3.6." in " ".join(compare(*sides, "--all", *costs).stdout.split())


def test_another_baseline(sides):
    """With the faster side as the baseline, the other one is worse."""
    answer = json.loads(compare(*sides, "--format", "json", "--baseline", "new").stdout)

    assert (answer["baseline"], answer["candidate"]) == ("new", "old")
    assert (answer["metrics"][0]["grade"], answer["metrics"][0]["difference"] < 0) == ("shown", True)


@pytest.mark.parametrize(
    ("name", "begins"),
    [("c.md", "## new compared with old"), ("c.html", "<!DOCTYPE html>"), ("c.json", "{"), ("c", "new is faster")],
)
def test_a_file_has_the_format_of_its_ending(sides, tmp_path, name, begins):
    """The format is that of the file's ending, else text; standard output stays empty."""
    found = compare(*sides, "-o", tmp_path / name)

    assert (found.returncode, found.stdout) == (0, "")
    assert (tmp_path / name).read_text(encoding="utf-8").lower().startswith(begins.lower())


def test_a_shown_regression_fails(sides):
    """A rule whose limit is broken exits with 1 and says by how much; the table is there all the same."""
    found = compare(
        *sides, "--baseline", "new", "--fail-if", "output_throughput < -5%", "--fail-if", "ttft_ms.p99 > 90%"
    )

    assert found.returncode == 1
    assert found.stdout.startswith("old is slower")
    first, second = found.stderr.splitlines()
    assert first.startswith("vllm-watch: failed: output_throughput < -5% (old against new): -1")
    assert second.startswith("vllm-watch: passed: ttft_ms.p99 > +90% (old against new): ")


def test_what_was_not_measured_has_its_own_exit_status(sides):
    """Of a metric that is in no file, and of a file that is missing, nothing can be told: the exit status is 3."""
    found = compare(*sides, "--fail-if", "ttft_ms.p95 > 1%")
    missing = compare("old=nowhere.json", sides[1], "--fail-if", "ttft_ms.p95 > 1%")

    assert (found.returncode, missing.returncode, compare("nowhere.json", sides[1]).returncode) == (3, 3, 1)
    assert found.stderr.startswith("vllm-watch: cannot be told: ttft_ms.p95 > +1% (new against old): ")
    assert missing.stderr.startswith("vllm-watch: cannot be told: nowhere.json: ")


@pytest.mark.parametrize("lacking", ["old", "new"])
def test_a_load_that_a_side_lacks_passes_no_rule(sides, tmp_path, lacking):
    """Of a load that only one side has nothing can be told: the exit status is 3, and the load is named."""
    more = result_file(tmp_path / "more.json", 1.0, max_concurrency=4)
    given = [side if side.startswith(lacking) else f"{side},{more}" for side in sides]
    found = compare(*given, "--fail-if", "output_throughput < -50%")

    assert found.returncode == 3
    passed, missing = found.stderr.splitlines()
    assert passed.startswith("vllm-watch: passed: output_throughput < -50% (new, 16 at once against old, 16 at once): ")
    assert missing == "vllm-watch: cannot be told: not all sides have the load 4 at once"


@pytest.mark.parametrize("dead", ["old", "new"])
def test_a_dead_run_passes_no_rule(sides, tmp_path, dead):
    """A run in which nothing succeeded is named, whichever side it is of, and the exit status is 3."""
    nothing = {"completed": 0, "failed": 20, "num_prompts": 20, "total_output_tokens": 0, "output_throughput": 0.0}
    more = result_file(tmp_path / "dead.json", 1.0, **nothing)
    given = [f"{side},{more}" if side.startswith(dead) else side for side in sides]
    found = compare(*given, "--fail-if", "output_throughput < -50%")

    assert found.returncode == 3
    assert f"of {dead} no request succeeded." in found.stderr


@pytest.mark.parametrize("words", [["--explain"], ["a.json", "b.json", "--explain"]])
def test_the_method_comes_with_the_command(words):
    """The document that a comparison names is in the package, whatever else is asked."""
    found = compare(*words)

    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == (DOCUMENTS / "COMPARING.md").read_text(encoding="utf-8")


def test_sides_that_are_not_comparable(tmp_path):
    """The reason is there, and the values with their differences, which have no grade."""
    sides = [result_file(tmp_path / "a.json", 1.0), result_file(tmp_path / "b.json", 1.1, model_id="Qwen3-32B")]
    found = json.loads(compare(*sides, "--format", "json").stdout)

    assert found["reasons"] == ["The models differ: Qwen3-8B and Qwen3-32B."]
    assert not found["comparable"]
    assert (found["metrics"][0]["percent"], found["metrics"][0]["grade"]) == (pytest.approx(10), "not_decided")


def test_a_folder_alone_names_the_folders_in_it(tmp_path):
    """Who gives the folder of all sides reads which sides are in it."""
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
    found = compare(tmp_path)

    assert found.returncode == 2
    assert "give at least two sides" in found.stderr
    assert "has the folders new, old" in found.stderr
