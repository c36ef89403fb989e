# SPDX-License-Identifier: Apache-2.0
"""Results of vLLM's benchmarks: every era's JSON and print is read, and what is no result says so with its place."""

from __future__ import annotations

import json

from math import inf
from pathlib import Path
from statistics import fmean

import pytest

from vllm_watch_parsers.benchmark import is_result, read_benchmarks
from vllm_watch_parsers.benchmark_result import (
    BenchmarkError,
    RampUp,
    ServeResult,
)


FOLDER = Path(__file__).parent / "benchmark_results"
EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
SERVED = [(name, number) for name, entries in EXPECTED.items() for number in range(len(entries))]
PRINT = 0.00501
"""Half of the last digit that is printed, and the error of a binary fraction."""


def text_of(name: str) -> str:
    """Return a file of the folder as it is, ends of lines and all."""
    return (FOLDER / name).read_bytes().decode()


def result_of(name: str, number: int = 0) -> ServeResult:
    """Return one result of a file that has results of ``vllm bench serve``."""
    result = read_benchmarks(text_of(name))[number]
    assert isinstance(result, ServeResult)
    return result


def serve(**changes: object) -> str:
    """Return the text of a small result of 0.33.0, with some keys changed; those that are ``...`` left out."""
    values = json.loads(text_of("serve-0.33.0-detailed.json")) | changes
    return json.dumps({key: value for key, value in values.items() if value is not ...})


def reason(text: str) -> str:
    """Return why a text is no result."""
    with pytest.raises(BenchmarkError) as caught:
        read_benchmarks(text)
    return str(caught.value)


def test_every_file_is_expected_to_hold_something():
    """Each file of ``vllm bench serve`` has its expected values, and no value is of a file that is not there."""
    names = {path.name for path in FOLDER.glob("*") if path.name.startswith(("printed", "serve", "sweep"))}

    assert set(EXPECTED) == names
    assert len(names) > 30


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_file_has_as_many_results_as_runs(name):
    """One object or block is one result, also where several follow each other."""
    assert len(read_benchmarks(text_of(name))) == len(EXPECTED[name])
    assert is_result(text_of(name))


@pytest.mark.parametrize(("name", "number"), SERVED)
def test_counts_and_rates_are_those_that_were_measured(name, number):
    """Requests, tokens, duration and the rates that follow from them are read from every era."""
    expected, result = EXPECTED[name][number], result_of(name, number)
    is_printed = name.startswith("printed")

    assert result.line == expected["line"]
    assert result.completed == expected["completed"]
    assert result.failed == expected["failed"]
    assert result.duration == pytest.approx(expected["duration"])
    assert result.total_input_tokens == expected["total_input_tokens"]
    assert result.total_output_tokens == expected["total_output_tokens"]
    assert result.request_throughput == pytest.approx(
        expected["completed"] / expected["duration"], rel=0.01 if is_printed else 1e-9
    )
    assert result.is_pooling is expected.get("is_pooling", False)
    if result.output_throughput is not None and result.total_output_tokens is not None:
        rate = result.total_output_tokens / expected["duration"]
        assert result.output_throughput == pytest.approx(rate, rel=0.01 if is_printed else 1e-6)
    for field in ("request_goodput", "total_token_throughput"):
        if field in expected:
            assert getattr(result, field) == pytest.approx(expected[field])


@pytest.mark.parametrize(("name", "number"), SERVED)
def test_latencies_are_those_that_were_measured(name, number):
    """Mean, median, deviation and every percentile are read, but for mean and median of E2EL that may be exchanged."""
    expected, result = EXPECTED[name][number], result_of(name, number)

    assert set(result.latencies) == set(expected["latencies"])
    for metric, values in expected["latencies"].items():
        stats = result.latencies[metric]
        is_old = metric == "e2el" and "e2el_order" in expected
        assert stats.mean == (None if is_old else pytest.approx(values["mean"], abs=PRINT))
        assert stats.median == (None if is_old else pytest.approx(values["median"], abs=PRINT))
        assert stats.std == (None if values["std"] is None else pytest.approx(values["std"]))
        percentiles = {float(share): value for share, value in values["percentiles"].items()}
        assert stats.percentiles == pytest.approx(percentiles, abs=PRINT)


@pytest.mark.parametrize(("name", "number"), SERVED)
def test_the_load_is_what_was_asked_for(name, number):
    """Rate, limit, model, ramp, temperature and the user's own keys are read where a release says them."""
    expected, settings = EXPECTED[name][number], result_of(name, number).settings
    rate = expected.get("request_rate")

    assert settings.request_rate == (inf if rate == "inf" else rate)
    assert settings.max_concurrency == expected.get("max_concurrency")
    assert settings.metadata == expected.get("metadata", {})
    assert settings.ramp_up == (RampUp(*expected["ramp_up"]) if "ramp_up" in expected else None)
    for field in ("backend", "model_id", "num_warmups", "temperature"):
        if field in expected:
            assert getattr(settings, field) == expected[field]


@pytest.mark.parametrize(("name", "number"), SERVED)
def test_single_requests_are_the_successful_ones(name, number):
    """Lists of requests are those of the successful requests, of one length, and give the printed mean."""
    expected, result = EXPECTED[name][number], result_of(name, number)
    requests = result.requests
    if "requests" not in expected:
        assert requests is None
        return
    assert requests is not None
    assert len(requests.latencies) == expected["requests"] == result.completed
    assert len(requests.start_times) == expected.get("starts", 0)
    if requests.ttfts:
        assert sum(requests.ttfts) / len(requests.ttfts) * 1000 == pytest.approx(result.latencies["ttft"].mean)
        assert sum(requests.output_lens) == result.total_output_tokens
        assert min(requests.ttfts) > 0
    if "e2el" in result.latencies and result.latencies["e2el"].mean is not None:
        assert sum(requests.latencies) / len(requests.latencies) * 1000 == pytest.approx(result.latencies["e2el"].mean)


@pytest.mark.parametrize("name", ["throughput-0.31.0.json", "latency-0.31.0.json"])
def test_benchmarks_without_a_server_are_named(name):
    """``vllm bench throughput`` and ``latency`` measure no server: their results are not read."""
    what = name.partition("-")[0]
    assert reason(text_of(name)) == f"line 1: this is a result of vllm bench {what}, not of vllm bench serve"
    assert not is_result(text_of(name))


def test_lines_above_one_block_are_not_of_the_next():
    """The rate and the limit printed above the first of two blocks say nothing of the second."""
    text = text_of("printed-0.10.1.txt") + text_of("printed-0.4.2.txt")

    first, second = read_benchmarks(text)

    assert isinstance(first, ServeResult)
    assert isinstance(second, ServeResult)
    assert first.settings.request_rate == 8.0
    assert second.settings.request_rate is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1: the file is empty"),
        ("\ufeff \n", "line 1: the file is empty"),
        ("nothing here\n", "line 1: no result of vllm bench serve in it, as JSON or printed"),
        ("{}", "line 1: this JSON object is no result of vllm bench serve"),
        ("[]", "line 1: this is an empty list"),
        ("[{}]", "line 1: [0]: this JSON object is no result of vllm bench serve"),
        ("[[1]]", "line 1: [0]: a result must be a JSON object"),
        ('{"a": ' + "[" * 100_000, "line 1: the JSON is nested too deeply"),
        ('{"completed": ' + "9" * 5000 + "}", "line 1: the JSON has a number with thousands of digits"),
        ('{"a": nonsense, "b": "many more characters follow here"}', "line 1: no JSON at column 7: Expecting value"),
    ],
)
def test_what_is_no_result_says_why(text, expected):
    """An empty file, other text, other JSON and JSON that no program reads are told apart."""
    assert reason(text) == expected


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9, 0.999])
def test_json_that_is_cut_off_says_so(cut):
    """A file whose end is missing is an error at the line where its object starts, wherever it ends."""
    text = text_of("serve-0.33.0-detailed.json")

    found = reason(text[: int(len(text) * cut)])

    assert found == "line 1: the JSON is cut off: it ends at line 1 in the middle of a value"


def test_the_second_object_of_a_file_is_named_by_its_line():
    """If a later object of ``--append-result`` is wrong or cut off, the message has its line."""
    good = text_of("serve-0.9.1-append.json")

    assert reason(good[:-100]).startswith("line 3: the JSON is cut off")
    assert reason(f'{good}\n{{"completed": 1}}').startswith("line 4: this JSON object is no result")
    assert reason(f"{good}\nand text").startswith("line 4: neither JSON nor the end of the file follows")


def test_json_and_print_in_one_file_are_an_error():
    """Whichever comes first, the line at which the other one starts is named."""
    block, values = text_of("printed-0.12.0.txt"), serve()

    assert reason(values + "\n" + block).startswith("line 2: neither JSON nor the end of the file")
    assert reason(block + values).startswith("line 26: JSON follows printed text")


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if name.startswith("printed")))
def test_a_block_that_is_cut_off_says_so(name):
    """A block without its last line is an error at its first line, also where another block follows."""
    lines = text_of(name).rstrip("\r\n").split("\n")
    cut = "\n".join(lines[:-1])
    start = EXPECTED[name][-1]["line"]

    expected = f"line {start}: the block that starts here is cut off: it has no last line of equal signs"
    assert reason(cut) == expected
    assert reason(f"{cut}\n{text_of(name)}") == expected


def test_a_block_without_a_needed_line_says_which():
    """What every release prints has to be there."""
    lines = text_of("printed-0.12.0.txt").split("\n")
    without = "\n".join(line for line in lines if not line.startswith("Total input"))

    assert reason(without) == 'line 1: the block that starts here has no line "Total input tokens:"'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (serve(total_output_tokens_retokenized=1), "a result of SGLang's bench_serving"),
        (json.dumps({"runs": []}), "a report of vllm-watch"),
        (json.dumps({"request_throughput": {"avg": 1}, "input_config": {}}), "a profile of GenAI-Perf"),
        (json.dumps([{"benchmark": {}, "model": {}, "metric": {}}]), "a record for PyTorch's benchmark database"),
    ],
)
def test_results_of_other_programs_are_named(text, what):
    """A known program's JSON is no result, and the message says whose it is."""
    assert reason(text).startswith(f"line 1: this is {what}")
    assert not is_result(text)


def test_a_block_of_another_program_is_named():
    """SGLang prints a block with the same title."""
    block = text_of("printed-0.12.0.txt")
    lines = block.split("\n")
    lines.insert(3, "Total generated tokens (retokenized):    103837    ")

    assert reason("\n".join(lines)) == "line 1: this is a result of SGLang's bench_serving, not of vLLM's benchmarks"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"completed": ...}, "completed: is missing"),
        ({"duration": ...}, "duration: is missing"),
        ({"duration": 0}, "duration: must be above 0"),
        ({"completed": -1}, "completed: must be from 0 to 1e+07, not -1"),
        ({"completed": 1.5}, "completed: must be a whole number, not 1.5"),
        ({"completed": True}, "completed: must be a number, not true"),
        ({"mean_ttft_ms": float("nan")}, "mean_ttft_ms: must be from 0 to 1e+11, not nan"),
        ({"p99_itl_ms": float("inf")}, "p99_itl_ms: must be from 0 to 1e+11, not inf"),
        ({"request_rate": "fast"}, "request_rate: must be a number, not 'fast'"),
        ({"date": 20261110}, "date: must be a text, not 20261110"),
        ({"ttfts": [0.1]}, "ttfts: has 1 entries, but input_lens has 24"),
        ({"ttfts": 5}, "ttfts: must be a list, not 5"),
        ({"ttfts": [0.1] * 23 + ["x"]}, "ttfts[23]: must be a number from 0 to 1e+08, not 'x'"),
        ({"ttfts": [0.1] * 23 + [-1]}, "ttfts[23]: must be a number from 0 to 1e+08, not -1"),
        ({"ttfts": [0.1] * 23 + [float("nan")]}, "ttfts[23]: must be a number from 0 to 1e+08, not nan"),
        ({"itls": [[0.1]] * 23 + [[0.1, None]]}, "itls[23][1]: must be a number from 0 to 1e+08, not null"),
        ({"itls": [[0.1]] * 23 + [3]}, "itls[23]: must be a list, not 3"),
    ],
)
def test_a_value_that_cannot_be_is_named(changes, expected):
    """A value that is missing, of the wrong type, NaN, negative or far too high is an error with its key."""
    assert expected in reason(serve(**changes))


def test_a_benchmark_without_a_success_has_no_latencies():
    """Where all requests failed the client writes 0 for every latency, and nothing is known of them."""
    text = serve(completed=0, failed=24, mean_ttft_ms=0.0, errors=["broken"] * 24)

    (result,) = read_benchmarks(text)

    assert isinstance(result, ServeResult)
    assert (result.completed, result.failed, result.latencies, result.requests) == (0, 24, {}, None)


def test_a_latency_that_is_all_zeros_was_not_measured():
    """An endpoint that does not stream has 0 for every TTFT and ITL; a wait at the client can be 0."""
    zeros = {f"{statistic}_itl_ms": 0.0 for statistic in ("mean", "median", "std", "p50", "p95", "p99")}
    queue = {"mean_client_queue_time_ms": 0.0, "median_client_queue_time_ms": 0.0}

    (result,) = read_benchmarks(serve(**zeros, **queue))

    assert isinstance(result, ServeResult)
    assert set(result.latencies) == {"ttft", "tpot", "e2el", "client_queue_time"}


def test_a_failure_without_a_text_is_known_by_its_length():
    """A server may fail without a reason: the request that has no output is not successful either."""
    values = json.loads(serve())
    values["errors"] = [""] * 24

    (result,) = read_benchmarks(json.dumps(values))

    assert isinstance(result, ServeResult)
    assert result.requests is not None
    assert len(result.requests.ttfts) == 23
    assert min(result.requests.ttfts) > 0


def test_requests_that_cannot_be_told_apart_are_left_out():
    """If it is not known which requests were successful, none of them says anything."""
    (result,) = read_benchmarks(serve(completed=20))

    assert isinstance(result, ServeResult)
    assert result.requests is None


def test_a_data_set_may_have_fewer_prompts_than_were_asked_for():
    """Before 0.11.1 failures are counted from the requests that were sent, not from the prompts asked for."""
    values = json.loads(text_of("serve-0.7.3.json")) | {"num_prompts": 1000}

    (result,) = read_benchmarks(json.dumps(values))

    assert isinstance(result, ServeResult)
    assert result.failed == 2


def test_keys_in_any_order_and_unknown_ones_do_no_harm():
    """A file that a tool sorted and indented, with keys of a later release, is read the same."""
    (plain,) = read_benchmarks(serve())

    text = json.dumps(json.loads(serve(new_thing={"a": [1]}, other=5)), sort_keys=True, indent=2)

    assert is_result(text)
    assert read_benchmarks(text) == (plain,)


def test_a_quoted_block_is_read():
    """Comment signs before each line, as in a script or a mail, change nothing."""
    block = text_of("printed-0.12.0.txt")

    quoted = "".join(f"# {line}\n" for line in block.splitlines())

    assert read_benchmarks(quoted) == read_benchmarks(block)


def test_a_real_result_and_its_print_say_the_same():
    """JSON and terminal of one run of vLLM 0.32.0 agree in what both have, and its requests give its statistics."""
    saved = result_of("real-0.32.0-detailed.json")
    printed = result_of("real-0.32.0.txt")

    assert (saved.completed, saved.failed, saved.settings.max_concurrency) == (80, 0, 8)
    assert printed.completed == saved.completed
    assert printed.total_output_tokens == saved.total_output_tokens
    assert printed.settings.temperature == 0.0
    assert printed.acceptance_length == saved.acceptance_length
    assert set(printed.latencies) == {"ttft", "tpot", "itl", "e2el"}
    for name, stats in printed.latencies.items():
        assert stats.mean == pytest.approx(saved.latencies[name].mean, abs=PRINT)
        assert stats.percentiles == pytest.approx(dict(saved.latencies[name].percentiles), abs=PRINT)
    assert saved.requests is not None
    assert fmean(saved.requests.ttfts) * 1000 == pytest.approx(saved.latencies["ttft"].mean)
    assert fmean(gap for gaps in saved.requests.itls for gap in gaps) * 1000 == pytest.approx(
        saved.latencies["itl"].mean, rel=1e-5
    )


def test_a_real_result_without_details_keeps_its_latencies():
    """From 0.30.0 on the time of each request, and its wait at the client, are there without ``--save-detailed``."""
    short = result_of("real-0.32.0-short.json")

    assert short.requests is not None
    assert (len(short.requests.latencies), len(short.requests.ttfts)) == (16, 0)
    assert len(short.requests.queue_times) == 16
