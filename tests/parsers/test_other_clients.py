# SPDX-License-Identifier: Apache-2.0
"""Other clients' results, lists of requests, pasted blocks: the same requests have the same numbers in each form."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_watch_parsers.benchmark import is_client_result, is_result, read_benchmarks
from vllm_watch_parsers.benchmark_result import BenchmarkError, ServeResult, reason_of


FOLDER = Path(__file__).parent / "benchmark_results"
SAME = (
    "guidellm-0.8.1.json",
    "aiperf-0.13.0.json",
    "aiperf-0.13.0.jsonl",
    "inference-perf-010d12fb.json",
    "inference-perf-010d12fb-requests.json",
    "requests.jsonl",
    "requests.csv",
)
"""Files that each have the same requests, as another client writes them."""


def result_of(text: str) -> ServeResult:
    """Return the only result in a text."""
    (result,) = read_benchmarks(text)
    assert isinstance(result, ServeResult)
    return result


def text_of(name: str) -> str:
    """Return a sample."""
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SAME)
def test_the_same_requests_have_the_same_counts_and_rates(name):
    """Requests, tokens, duration and rates are the same, whoever wrote them."""
    reference, result = result_of(text_of("requests.jsonl")), result_of(text_of(name))

    assert is_client_result(text_of(name))
    assert result.client is not None
    for field in (
        "completed",
        "duration",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "output_throughput",
        "total_token_throughput",
    ):
        assert getattr(result, field) == pytest.approx(getattr(reference, field), rel=1e-4), field


@pytest.mark.parametrize("name", SAME[:2] + SAME[3:4])
def test_what_a_client_wrote_of_latencies_is_read_in_milliseconds(name):
    """TTFT and E2EL have the mean and the 99th percentile that follow from the requests."""
    requests = result_of(text_of("requests.jsonl")).requests
    latencies = result_of(text_of(name)).latencies

    assert requests is not None
    for metric, values in (("ttft", requests.ttfts), ("e2el", requests.latencies)):
        assert latencies[metric].mean == pytest.approx(1000 * sum(values) / len(values), rel=1e-4)
        assert latencies[metric].percentiles[99.0] == pytest.approx(1000 * max(values), rel=0.1)


@pytest.mark.parametrize("name", [SAME[0], *SAME[2:3], *SAME[4:]])
def test_single_requests_are_read_from_every_list(name):
    """Prompts, TTFT and E2EL of each request are those that were written."""
    reference, result = result_of(text_of("requests.jsonl")).requests, result_of(text_of(name)).requests

    assert reference is not None
    assert result is not None
    assert result.input_lens == reference.input_lens
    assert result.ttfts == pytest.approx(reference.ttfts, abs=1e-6)
    assert result.latencies == pytest.approx(reference.latencies, abs=1e-4)


@pytest.mark.parametrize(
    "name", ["guidellm-0.8.1.json", "aiperf-0.13.0.json", "inference-perf-010d12fb.json", *SAME[5:]]
)
def test_errors_are_counted_by_reason(name):
    """Two requests failed with HTTP 503 and one ran out of time; no address and no prompt is among the reasons."""
    result = result_of(text_of(name))

    assert result.failed == 3
    assert result.errors == {"HTTP 503": 2, "timeout": 1}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Service Unavailable", "HTTP 503"),
        ("Traceback (most recent call last):\nTimeoutError\n", "timeout"),
        ("Traceback …\naiohttp.client_exceptions.ServerDisconnectedError: Server disconnected", "connection closed"),
        ("Cannot connect to host 192.0.2.7:8000", "connection refused"),
        ('{"error": {"message": "my secret prompt", "code": 400}}', "HTTP 400"),
        ("Traceback …\nValueError: my secret prompt", "ValueError"),
        ("my secret prompt", "another reason"),
        ("", "no reason given"),
    ],
)
def test_a_reason_holds_nothing_private(text, reason):
    """A reason is a status, a known failure or the name of an exception."""
    assert reason_of(text) == reason


def test_a_time_without_a_unit_is_refused_with_the_names_it_may_have():
    """Nobody can tell seconds from milliseconds."""
    with pytest.raises(BenchmarkError, match="has no unit: name the column ttft_s or ttft_ms"):
        read_benchmarks('{"start": 1, "ttft": 2}')


def test_what_is_recorded_stays_that_of_vllm_alone():
    """Other clients write prompts into their results: `is_result`, by which a recording takes files, knows none."""
    assert not any(is_result(text_of(name)) for name in SAME)


def test_a_block_pasted_as_one_line_is_the_block():
    """Blanks in place of line ends change nothing."""
    text = text_of("printed-0.14.0-drafts.txt")
    start = text.index("====")
    pasted = text[:start] + " ".join(text[start:].split("\n"))

    whole, one = result_of(text), result_of(pasted)

    assert one._replace(line=0, settings=whole.settings) == whole._replace(line=0)


def test_a_fenced_and_quoted_block_is_read():
    """Code fences of Markdown, and a log's or a mail's prefix before each line, change nothing."""
    text = text_of("printed-0.14.0-drafts.txt")
    quoted = "```text\n" + "\n".join(f"> 2026-11-28T04:00:00Z {line}" for line in text.split("\n")) + "\n```\n"

    assert result_of(quoted).latencies == result_of(text).latencies


def test_a_script_with_common_names_is_not_called_sglang():
    """A result that nobody knows is said to be none, without a guess at who wrote it."""
    with pytest.raises(BenchmarkError) as caught:
        read_benchmarks('{"mean_e2e_latency_ms": 5, "throughput": 2}')

    assert "SGLang" not in str(caught.value)
