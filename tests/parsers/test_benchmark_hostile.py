# SPDX-License-Identifier: Apache-2.0
"""Files that are damaged or made to hurt: a result or an error, never anything else, and in no time."""

from __future__ import annotations

import json

from pathlib import Path

import pytest

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.samples import sample
from tests.support.waiting import computes_at_most

from vllm_watch_parsers.benchmark import is_result, read_benchmarks
from vllm_watch_parsers.benchmark_result import BenchmarkError, ServeResult


pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent / "benchmark_results"
TEXTS = {path.name: path.read_bytes().decode() for path in sorted(FOLDER.iterdir()) if path.suffix != ".md"}
QUICK = settings(max_examples=sample(60, whole=400), deadline=None, suppress_health_check=[HealthCheck.too_slow])

SECONDS = 30
"""Generous: a pattern that goes wrong takes minutes."""

TITLE = "============ Serving Benchmark Result ============\n"

PIECES = ["", "\x00", "-", "9" * 400, "NaN", '"', "{", "]", "\n"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=5), each, max_size=3),
    max_leaves=5,
)


def results_of(text):
    """Return the results of a text, or none; any other error than that of a wrong file is a defect."""
    is_result(text)
    try:
        return read_benchmarks(text)
    except BenchmarkError as error:
        reason = error.reason
    assert reason
    assert "\n" not in reason
    return ()


@QUICK
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_a_damaged_file_is_a_result_or_an_error(name, data):
    """Pieces of a file cut out, doubled or replaced make no other error."""
    text = TEXTS[name]
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 60)))
        piece = data.draw(st.sampled_from([*PIECES, text[start:end] * 2]))
        text = text[:start] + piece + text[end:]

    for result in results_of(text):
        if isinstance(result, ServeResult):
            assert result.duration is None or result.duration > 0
            assert result.completed >= 0
            assert result.request_throughput is None or result.request_throughput >= 0


@QUICK
@given(st.data())
def test_any_value_of_any_key_is_a_result_or_an_error(data):
    """Whatever JSON is in the place of a value."""
    values = json.loads(TEXTS["serve-0.33.0-detailed.json"])
    for key in data.draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=3)):
        values[key] = data.draw(VALUES)

    results_of(json.dumps(values))


@pytest.mark.parametrize(
    "name", sorted(name for name in TEXTS if name.startswith(("serve", "sweep")) and name.endswith(".json"))
)
def test_a_file_cut_off_anywhere_is_no_result(name):
    """Of a JSON file without its end there is nothing, but for the results that are whole before it."""
    text = TEXTS[name].rstrip()
    whole = read_benchmarks(text)
    for end in range(1, len(text), max(len(text) // 200, 1)):
        found = results_of(text[:end])
        assert len(found) < len(whole)
        assert found == whole[: len(found)]


@pytest.mark.parametrize(
    "text",
    [
        "{" + '"\\"' * 200_000,
        '{"a": "' + '\\"' * 500_000,
        '{"' + "\\" * 500_001,
        "[{" * 200_000,
        "{} " * 200_000,
        '{"a":1}' * 100_000,
        "=" * 500_000 + " Serving Benchmark Result " + "=" * 500_000 + "x",
        ("=" * 100 + "\n") * 20_000,
        TITLE * 20_000,
        (TITLE + "=" * 50 + "\n") * 5_000,
        TITLE + "Successful requests:" + " " * 500_000 + "x",
        TITLE + "Successful requests:" * 50_000,
        TITLE + "Mean TTFT (ms):" * 50_000,
        "Namespace(" * 100_000,
        f"Namespace({'a=[' * 100_000}\n{TITLE}",
        "\x1b[" * 500_000,
        "\r" * 500_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_no_text_is_slow(text):
    """What each pattern begins with, a hundred thousand times, is read or dismissed at once."""
    with computes_at_most(SECONDS):
        results_of(text)
