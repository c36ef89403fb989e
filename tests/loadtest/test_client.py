# SPDX-License-Identifier: Apache-2.0
"""A benchmark's result as a run: what the client wrote is kept, the rest is computed, what misleads is said."""

from __future__ import annotations

import json

from datetime import datetime
from pathlib import Path
from statistics import fmean

import pytest

from vllm_watch.analysis.loadtest.client_runs import read_client_runs
from vllm_watch.analysis.loadtest.load_test import Load, parse_objective
from vllm_watch.daemon.support.errors import FileError


FOLDER = Path(__file__).parent.parent / "parsers" / "benchmark_results"
REAL = FOLDER / "real-0.32.0-detailed.json"


def text_of(name):
    """Return a file of the benchmark results."""
    return (FOLDER / name).read_bytes().decode()


def run_of(name, **options):
    """Return the run of a file with one result."""
    (run,) = read_client_runs(text_of(name), name, **options)
    return run


def changed(name, **changes):
    """Return the run of a JSON file with some keys changed; those that are ``...`` left out."""
    values = json.loads(text_of(name)) | changes
    text = json.dumps({key: value for key, value in values.items() if value is not ...})
    (run,) = read_client_runs(text, name)
    return run


def said(run, words):
    """Return the run's warnings and notes that have these words."""
    return [sentence for sentence in (*run.warnings, *run.notes) if words in sentence]


def test_the_window_ends_at_the_written_date():
    """The date is that of the end in this machine's zone; the duration leads back to the start."""
    run = run_of("serve-0.33.0-detailed.json")

    assert run.end == datetime(2026, 11, 10, 10, 15, 2).astimezone().timestamp()
    assert run.end - run.start == pytest.approx(run.result.duration_s)


def test_the_load_is_that_of_the_benchmark():
    """Rate, limit and mean lengths come from the result; a rate without a limit is ``inf``."""
    run = changed("serve-0.33.0-detailed.json", temperature="0.7", note="night")

    assert run.load == Load(
        endpoint="online",
        backend="openai",
        request_rate="inf",
        burstiness=1.0,
        max_concurrency=8,
        num_prompts=24,
        mean_input_tokens=run.result.total_input_tokens / 23,
        mean_output_tokens=run.result.total_output_tokens / 23,
        temperature=0.7,
        duration_s=run.result.duration_s,
        metadata={"temperature": "0.7", "note": "night"},
    )
    assert run.model == "example/Small-1B"


def test_a_real_result_is_kept_as_it_was_written():
    """Every number that vLLM 0.32.0 wrote is in the run unchanged, and P90, which it did not write, is between."""
    written = json.loads(REAL.read_text(encoding="utf-8"))
    run = run_of(REAL.name)
    result = run.result

    assert result.successful == written["completed"]
    assert result.output_throughput == written["output_throughput"]
    for name in ("ttft", "tpot", "itl", "e2el"):
        latency = getattr(result, f"{name}_ms")
        for field in ("mean", "median", "std", "p50", "p95", "p99"):
            assert getattr(latency, field) == written[f"{field}_{name}_ms"]
        assert latency.p50 <= latency.p90 <= latency.p95
    assert result.ttft_ms.count == 80
    assert result.ttft_ms.too_few == ("p99",)
    assert result.itl_ms.count == sum(len(each) for each in written["itls"])
    assert result.itl_ms.too_few == ()


@pytest.mark.parametrize("field", ["mean", "median", "std", "p50", "p95", "p99"])
@pytest.mark.parametrize("name", ["ttft", "tpot", "itl", "e2el"])
def test_what_is_computed_is_what_the_client_would_have_written(name, field):
    """Left out of the file, each statistic comes out of the lists of requests as vLLM computed it."""
    written = json.loads(REAL.read_text(encoding="utf-8"))[f"{field}_{name}_ms"]
    run = changed(REAL.name, **{f"{field}_{name}_ms": ...})

    assert getattr(getattr(run.result, f"{name}_ms"), field) == pytest.approx(written, rel=2e-5)


@pytest.mark.parametrize(
    ("text", "expected"), [("chat", "ttft tpot"), ("ttft=60ms", "ttft"), ("e2el=270ms,tpot=11ms", "e2el tpot")]
)
def test_goodput_counts_requests_within_all_limits(text, expected):
    """Failed requests are not within, and those of the rest that miss one limit are not either."""
    objective = parse_objective(text)
    values = json.loads(text_of("serve-0.33.0-detailed.json"))
    good = 0
    for ttft, whole, tokens, error in zip(
        values["ttfts"], values["latencies"], values["output_lens"], values["errors"], strict=True
    ):
        if not error:
            each = {"ttft_ms": ttft, "e2el_ms": whole, "tpot_ms": (whole - ttft) / (tokens - 1)}
            good += all(1000 * each[name] <= limit for name, limit in objective.limits.items())

    goodput = run_of("serve-0.33.0-detailed.json", objective=objective).result.goodput

    assert set(expected.split()) == {name.removesuffix("_ms") for name in objective.limits}
    assert goodput.objective == objective
    assert goodput.request_goodput == pytest.approx(good / values["duration"])
    assert goodput.ratio == pytest.approx(good / 24)
    assert 0 < good < 24


def test_results_of_one_file_are_runs_in_order():
    """Each result of ``--append-result`` is a run with its own name and time."""
    runs = read_client_runs(text_of("serve-0.9.1-append.json"), "all.json")

    assert [run.name for run in runs] == ["all.json (1)", "all.json (2)", "all.json (3)"]
    assert [run.load.request_rate for run in runs] == [4.0, 8.0, "inf"]
    assert [run.end - runs[0].end for run in runs] == [0, 60, 120]


def test_pooling_models_have_end_to_end_latency_only():
    """A pooling model generates nothing."""
    run = run_of("serve-0.29.0-pooling.json")

    assert run.load.endpoint == "pooling"
    assert run.result.total_output_tokens is None
    assert (run.result.ttft_ms, run.result.itl_ms) == (None, None)
    assert run.result.e2el_ms.count == 23


SLOW = [1.5] * 8 + json.loads(text_of("serve-0.16.0-detailed.json"))["ttfts"][8:]


@pytest.mark.parametrize(
    ("name", "changes", "words", "is_said"),
    [
        (REAL.name, {}, "A chunk of the stream has 5.0 tokens", True),
        ("serve-0.14.0-drafts.json", {}, "A chunk of the stream has 2.9 tokens", True),
        ("serve-0.16.0-detailed.json", {}, "chunk", False),
        ("serve-0.11.0.json", {}, "chunk", False),
        ("serve-0.6.6.json", {}, "places of --max-concurrency", True),
        ("serve-0.30.0-queue.json", {"queue_times": [0.0] * 24}, "places", False),
        ("serve-0.33.0-detailed.json", {}, "A closed loop: at most 8 at a time", True),
        ("serve-0.7.3.json", {}, "client", False),
        ("serve-0.12.0-detailed.json", {}, "failed", False),
        ("serve-0.16.0-detailed.json", {}, "failed", False),
        ("serve-0.11.0.json", {}, "Of 24 prompts that were asked for, 23 have an answer. This release", True),
        ("serve-0.33.0-detailed.json", {"duration": 0.9}, "times as long as a request", True),
        ("serve-0.33.0-detailed.json", {"duration": 60.0}, "times as long as a request", False),
        ("serve-0.11.0.json", {"duration": 0.9}, "times as long as a request", True),
        ("serve-0.16.0-detailed.json", {"ttfts": SLOW}, "The first 8 answers started", True),
        ("serve-0.16.0-detailed.json", {}, "The first 8 answers started", False),
        ("serve-0.16.0-detailed.json", {}, "Answers have 20 to 29 tokens", True),
        (REAL.name, {}, "Answers have", False),
        ("serve-0.6.2.json", {}, "exchanged", False),
        ("printed-0.6.3.post1-unknown.txt", {}, "this may be such a result", True),
        ("serve-0.6.6.json", {}, "exchanged", False),
    ],
)  # fmt: skip
def test_what_misleads_is_said(name, changes, words, is_said):
    """Each sentence is there where the result shows it, and nowhere else."""
    run = changed(name, **changes) if changes else run_of(name)

    assert is_said == bool(said(run, words))


def test_the_wait_at_the_client_is_said_with_its_length():
    """With a rate and a limit requests wait before they are sent, and no latency has that."""
    waits = json.loads(text_of("serve-0.30.0-queue.json"))["queue_times"]

    (sentence,) = said(run_of("serve-0.30.0-queue.json"), "waited")

    assert f"{1000 * fmean(waits):.0f} ms on average, {1000 * max(waits):.0f} ms at most" in sentence


def test_a_wrong_file_is_named_with_its_line():
    """The message has the file, the line and the key."""
    with pytest.raises(FileError, match=r"bad\.json:1: completed: must be a number, not 'x'"):
        read_client_runs(json.dumps(json.loads(text_of("serve-0.11.0.json")) | {"completed": "x"}), "bad.json")
