# SPDX-License-Identifier: Apache-2.0
"""A recording keeps what vllm-watch reads, and nothing else that a client, a model or a plugin may have said."""

from __future__ import annotations

import json

from collections import Counter
from typing import ClassVar

import pytest

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.recorder.places import (
    ADDRESSES,
    ID_PLACES,
    IDS,
    KEY_PLACES,
    MARK,
    OTHERS,
    PROMPTS,
    STATISTICS,
    TEXTS,
    TOKENS,
    record,
)
from tests.support.recordings import NAMES, ROOT, log_of
from tests.support.samples import sample

from vllm_watch.analysis.recorder.redaction import LogRedactor, redact_arguments, redact_result
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch_parsers.benchmark import is_result, read_benchmarks
from vllm_watch_parsers.benchmark_result import BenchmarkError


EXAMPLES = sample(20, whole=100)
RELEASES = sorted(path.parent.name for path in ROOT.glob("corpus/*/vllm.log"))


def redacted(text):
    """Return what is left of a text that comes after an ordinary line, which remains."""
    redactor = LogRedactor()
    lines = f"{STATISTICS}\n{text}".encode("utf-8", "surrogatepass").split(b"\n")
    return b"\n".join(map(redactor.redact, lines)).decode("utf-8", "surrogatepass")


class TestNothingSurvives:
    """A secret in any place where it may be printed is not in what is left."""

    @pytest.mark.parametrize("place", PROMPTS)
    @given(before=TEXTS, after=TEXTS)
    @settings(max_examples=EXAMPLES)
    def test_prompts(self, place, before, after):
        """A prompt, an answer or a request's body is removed whatever it holds."""
        assert MARK not in redacted(PROMPTS[place](before + MARK + after))

    @pytest.mark.parametrize("place", ID_PLACES)
    @given(before=IDS, after=IDS)
    @settings(max_examples=EXAMPLES)
    def test_request_ids(self, place, before, after):
        """A request's id is removed, also one that its client chose."""
        assert MARK not in redacted(ID_PLACES[place](before + MARK + after))

    @pytest.mark.parametrize("place", [*KEY_PLACES, *OTHERS])
    @given(before=TOKENS, after=TOKENS)
    @settings(max_examples=EXAMPLES)
    def test_keys_and_other_texts(self, place, before, after):
        """A key, a query, an unknown path, and what a plugin or a middleware prints is removed."""
        assert MARK not in redacted((KEY_PLACES | OTHERS)[place](before.lstrip("-") + MARK + after))

    @pytest.mark.parametrize("place", ADDRESSES)
    @pytest.mark.parametrize("peer", ["203.0.113.9", "[2001:db8::5]", "unix"])
    def test_addresses(self, place, peer):
        """A client's address is removed, of IPv4 and of IPv6, wherever it is printed."""
        assert peer not in redacted(ADDRESSES[place](peer))


def read(lines):
    """Return what the daemon takes in of lines, one by one: targets of requests and forged statistics aside."""
    reader, found = LogReader(), []
    for line in lines:
        batch = reader.read([line], ArrivalTimes(0.0))
        requests = Counter((request.method, request.status) for request in batch.requests.elements())
        found.append((batch.events, requests, batch.lines, batch.continuation_lines, reader.is_in_record))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RELEASES, *NAMES, "day"])
def test_the_same_is_read_of_what_is_left(name):
    """Every line of every log of the tests yields the same events, counts and records before and after."""
    log = (ROOT / "corpus" / name / "vllm.log").read_bytes() if name in RELEASES else log_of(name)
    lines = log.split(b"\n")
    redactor = LogRedactor()

    left = [redactor.redact(line) for line in lines]

    assert redactor.removed["addresses"] or name == "loadkill"
    assert read(lines) == read(left)
    assert b"127.0.0.1" not in b"\n".join(left)


@pytest.mark.parametrize(
    "line",
    [
        STATISTICS,
        record("Engine 000: a field that the next release prints: 3 reqs", "loggers.py"),
        record("GPU KV cache size: 12,288 tokens, Maximum concurrency for 2,048 tokens per request: 6.00x", "kv.py"),
        record("non-default args: max_num_seqs=24, speculative_config={'method': 'mtp'}", "u.py"),
        "INFO:     Application startup complete.",
        'INFO:     0.0.0.0:0 - "POST /sleep?level=1 HTTP/1.1" 200 OK',
        "torch.OutOfMemoryError: CUDA out of memory",
        "",
    ],
)
def test_what_is_read_stays(line):
    """A line of which all is read, and any of statistics, is left as it is."""
    assert line.encode() == LogRedactor().redact(line.encode())


@pytest.mark.parametrize(
    ("line", "left", "removed"),
    [
        (record("Added request x-1."), record("[removed]"), {"lines": 1}),
        ("a traceback's line", "[removed]", {"lines": 1}),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
         "torch.OutOfMemoryError: CUDA out of memory [removed]", {"lines": 1}),
        (record("args: Namespace(api_key='k', seed=8, max_num_seqs=8)", "api_server.py"),
         record("args: max_num_seqs=8", "api_server.py"), {"lines": 1}),
        ('INFO:     [::1]:5 - "GET /health?a=1&level=1 HTTP/1.1" 200 OK',
         'INFO:     0.0.0.0:0 - "GET /health?level=1 HTTP/1.1" 200 OK', {"addresses": 1, "queries": 1}),
        ('INFO:     None - "GET /v2/x?a=1 HTTP/1.1" 404 Not Found',
         'INFO:     0.0.0.0:0 - "GET /[removed] HTTP/1.1" 404 Not Found', {"queries": 1}),
    ],
)  # fmt: skip
def test_what_is_removed_is_counted(line, left, removed):
    """Each line that is shortened counts once, and so does each address and each target."""
    redactor = LogRedactor()

    assert left.encode() == redactor.redact(line.encode())
    assert removed == {kind: number for kind, number in redactor.removed.items() if number}


class TestResults:
    """Results of benchmarks keep their numbers and lose their texts."""

    RESULT: ClassVar = {
        "date": "20261122-051400", "model_id": "m", "completed": 2, "request_throughput": 1.25, "ttfts": [0.1, 0.25],
        "input_lens": [3, 4], "errors": ["", "Traceback\nTimeoutError: 198.51.100.7 Zq7mark"], "request_rate": "inf",
        "generated_texts": ["Zq7mark", ""], "api_key": "Zq7mark", "extra": {"user": "Zq7mark"}, "tag": "mine",
    }  # fmt: skip

    def test_texts_are_removed(self):
        """Answers and keys are removed, of an error its reason stays; the user's own names stay, and every number."""
        left, removed = redact_result(json.dumps(self.RESULT))

        gone = {"errors": ["", "timeout"], "generated_texts": ["[removed]", ""], "api_key": "[removed]"}
        assert {**self.RESULT, **gone, "extra": {"user": "[removed]"}} == json.loads(left)
        assert removed == 4

    def test_several_results_are_read(self):
        """A file to which results were appended loses the texts of all of them."""
        left, _ = redact_result(json.dumps(self.RESULT) + "\n" + json.dumps(self.RESULT))

        assert MARK not in left
        assert 2 == left.count('"completed": 2')

    def test_what_is_cut_off_is_removed(self):
        """A result whose end is missing says nothing, and nothing stays of it."""
        assert ("\n", 1) == redact_result('{"completed": 2, "generated_texts": ["Zq7mark", "Zq7m')

    @pytest.mark.parametrize(
        "path", sorted((ROOT / "parsers").glob("**/benchmark*/**/*.*")), ids=lambda path: path.name
    )
    def test_the_same_is_read_of_what_is_left(self, path):
        """Each result of vLLM's own clients, the only ones that are recorded, is read as before, but for its place."""
        text = path.read_text(encoding="utf-8")
        if not is_result(text):
            pytest.skip("it is no result of vLLM's")
        try:
            before = read_benchmarks(text)
        except BenchmarkError:
            pytest.skip("it is no result")
        left = read_benchmarks(redact_result(text)[0])

        assert [result._replace(line=1) for result in before] == [result._replace(line=1) for result in left]


@pytest.mark.parametrize(
    ("argv", "left"),
    [
        ("x --api-key k1 --num-prompts 8", "x --api-key [removed] --num-prompts 8"),
        ("x --api-key=k1 --hf-token k2", "x --api-key=[removed] --hf-token [removed]"),
        ("env OPENAI_API_KEY=k1 vllm bench serve", "env [removed] vllm bench serve"),
        ("./bench2.sh serve sk-a1b2", "./bench2.sh serve [removed]"),
        ("x --api-key k1 k2 --seed 1", "x --api-key [removed] [removed] --seed 1"),
        ("x --header=Sub-Key=k1 -H Z:k2", "x --header=[removed] -H [removed]"),
        ("x --prompt hello --model m --request-rate inf", "x --prompt [removed] --model m --request-rate inf"),
    ],
)
def test_a_command_line_keeps_its_options(argv, left):
    """Of options the names stay, and the values that are numbers or are read; what else is said is removed."""
    assert (tuple(left.split()), left.count("[removed]")) == redact_arguments(argv.split())


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_any_line_has_one_line_left(text):
    """No line is dropped and none is added, and the redactor never fails."""
    redactor = LogRedactor()

    for line in text.encode("utf-8", "surrogatepass").split(b"\n"):
        assert b"\n" not in redactor.redact(line)
