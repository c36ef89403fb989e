# SPDX-License-Identifier: Apache-2.0
"""What is private is removed from a log, wherever vLLM prints it, and vllm-watch reads the same from what is left."""

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
    PROMPTS,
    STATISTICS,
    TEXTS,
    TOKENS,
    record,
)
from tests.support.recordings import NAMES, ROOT, log_of
from tests.support.samples import sample

from vllm_watch.analysis.recorder.log_redaction import LogRedactor
from vllm_watch.analysis.recorder.private_text import KINDS, PrivateText
from vllm_watch.analysis.recorder.recorded_command import redact_benchmark
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.reading.times import ArrivalTimes
from vllm_watch_parsers.benchmark import read_benchmarks, what_is
from vllm_watch_parsers.benchmark_result import BenchmarkError


EXAMPLES = sample(20, whole=100)
RELEASES = sorted(path.parent.name for path in ROOT.glob("corpus/*/vllm.log"))


def redacted(text: str, *, kept: tuple[str, ...] = ()) -> str:
    """Return what is left of a text that comes after an ordinary line, which remains."""
    redactor = LogRedactor(PrivateText(kept))
    lines = f"{STATISTICS}\n{text}".encode("utf-8", "surrogatepass").split(b"\n")
    return b"\n".join(redactor.redact(line) for line in lines).decode("utf-8", "surrogatepass")


class TestNothingSurvives:
    """A secret in any place where vLLM prints one is not in what is left."""

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

    @pytest.mark.parametrize("place", KEY_PLACES)
    @given(before=TOKENS, after=TOKENS)
    @settings(max_examples=EXAMPLES)
    def test_keys(self, place, before, after):
        """A key, a token or a password is removed."""
        assert MARK not in redacted(KEY_PLACES[place](before.lstrip("-") + MARK + after))

    @pytest.mark.parametrize("place", ADDRESSES)
    @pytest.mark.parametrize("peer", ["203.0.113.9", "2001:db8::5", "unix"])
    def test_addresses(self, place, peer):
        """A client's address is removed."""
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
    private = PrivateText()
    redactor = LogRedactor(private)

    left = [redactor.redact(line) for line in lines]

    assert private.counts["addresses"] or name == "loadkill"
    assert read(lines) == read(left)
    assert b"127.0.0.1:" not in b"\n".join(line for line in left if b' - "' in line)


@pytest.mark.parametrize(
    "line",
    [
        STATISTICS,
        record("GPU KV cache size: 12,288 tokens, Maximum concurrency for 2,048 tokens per request: 6.00x", "kv.py"),
        record("Dumping scheduler stats: SchedulerStats(num_running_reqs=3, kv_cache_usage=0.5000)", "dump_input.py"),
        record("[shutdown] EngineCore: aborting in-flight requests count=6", "core.py"),
        record("non-default args: {'api_key': '***', 'max_num_seqs': 24, 'limit_mm_per_prompt': {'image': 1}}", "u.py"),
        record("Loaded new LoRA adapter: name 'sql', path 'lora/adapters/sql'", "serving.py"),
        record("    outputs = await engine_core.get_output_async()", "async_llm.py", "ERROR"),
        "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
        'INFO:     None - "POST /v1/completions HTTP/1.1" 200 OK',
        "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.25s/it]",
        '  File "/opt/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 390, in run_engine_core',
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
    ],
)
def test_what_is_not_private_stays(line):
    """A line without private data is left as it is, and nothing is counted."""
    private = PrivateText()

    assert line.encode() == LogRedactor(private).redact(line.encode())
    assert not private.counts


def test_the_temperature_stays():
    """Of a request's parameters the numbers stay: the temperature decides how many drafts are accepted."""
    left = redacted(PROMPTS["stop"]("secret").replace("n=1", "n=1, temperature=0.7, top_p=0.95"))

    assert "Received request [removed]: params: SamplingParams(n=1, temperature=0.7, top_p=0.95, stop=[[removed]]" in (
        left.replace("stop=[removed]", "stop=[[removed]]")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_can_be_kept(kind):
    """A kind that is kept stays in the text, and the others are removed."""
    texts = {
        "prompts": PROMPTS["0.5"](MARK),
        "request-ids": ID_PLACES["added"](MARK),
        "keys": KEY_PLACES["list"](MARK),
        "addresses": ADDRESSES["access"](MARK),
    }

    assert {kind} == {each for each, text in texts.items() if MARK in redacted(text, kept=(kind,))}


def test_with_all_kept_nothing_is_changed():
    """What keeps everything leaves each line as it came, its colours included."""
    line = b'\x1b[32mINFO\x1b[0m:     1.2.3.4:5 - "GET /x?api_key=1 HTTP/1.1" 200 OK\r'

    assert line == LogRedactor(PrivateText(KINDS)).redact(line)


def test_what_is_removed_is_counted():
    """Each prompt, id, key and address counts once."""
    private = PrivateText()
    redactor = LogRedactor(private)
    for text in (
        PROMPTS["0.5"]("hello you"),
        ID_PLACES["added"]("x-1"),
        KEY_PLACES["list"]("k"),
        ADDRESSES["access"]("::1"),
    ):
        redactor.redact(text.encode())

    assert {"prompts": 1, "request-ids": 2, "keys": 1, "addresses": 1} == private.counts


def test_where_reading_starts_in_a_record_its_rest_is_removed():
    """Lines whose record is not known are a client's until a line shows that none is open."""
    redactor = LogRedactor(PrivateText())
    redactor.lose_place()

    left = [redactor.redact(line.encode()) for line in ("a secret", STATISTICS, "not one")]

    assert [b"[removed]", STATISTICS.encode(), b"not one"] == left


class TestBenchmarks:
    """Results of benchmarks keep their numbers and lose their texts."""

    RESULT: ClassVar = {
        "date": "20261122-051400", "model_id": "m", "completed": 2, "request_throughput": 1.25, "ttfts": [0.1, 0.25],
        "input_lens": [3, 4], "errors": ["", "ValueError: {'prompt': 'Zq7mark'}"], "generated_texts": ["Zq7mark", ""],
        "api_key": "Zq7mark", "header": "Authorization: Bearer Zq7mark", "request_rate": "inf",
    }  # fmt: skip

    def test_texts_are_removed(self):
        """Answers, errors' texts and keys are removed; an empty text stays empty, and each number what it is."""
        private = PrivateText()

        left = redact_benchmark(json.dumps(self.RESULT), private)

        assert MARK not in left
        read_again = json.loads(left)
        assert ["[removed]", ""] == read_again["generated_texts"]
        numbers = ("completed", "request_throughput", "ttfts", "input_lens", "request_rate", "model_id", "date")
        assert [self.RESULT[name] for name in numbers] == [read_again[name] for name in numbers]

    def test_several_results_are_read(self):
        """A file to which results were appended loses the texts of all of them."""
        left = redact_benchmark(json.dumps(self.RESULT) + "\n" + json.dumps(self.RESULT), PrivateText())

        assert MARK not in left
        assert 2 == left.count('"completed": 2')

    def test_what_is_cut_off_is_redacted_as_text(self):
        """A result whose end is missing is no JSON, and loses its texts all the same."""
        assert MARK not in redact_benchmark('{"completed": 2, "generated_texts": ["Zq7mark", "Zq7m', PrivateText())

    @pytest.mark.parametrize(
        "path", sorted((ROOT / "parsers").glob("**/benchmark*/**/*.*")), ids=lambda path: path.name
    )
    def test_the_same_is_read_of_what_is_left(self, path):
        """Each result of vLLM's own clients, the only ones that are recorded, is read as before."""
        text = path.read_text(encoding="utf-8")
        if what_is(text) is None:
            pytest.skip("it is no result of vLLM's")

        try:
            before = read_benchmarks(text)
        except BenchmarkError:
            pytest.skip("it is no result")
        assert before == read_benchmarks(redact_benchmark(text, PrivateText()))


@pytest.mark.parametrize(
    ("argv", "left"),
    [
        (["x", "--api-key", "k1", "--num-prompts", "8"], ["x", "--api-key", "[removed]", "--num-prompts", "8"]),
        (["x", "--api-key=k1", "--hf-token", "k2"], ["x", "--api-key=[removed]", "--hf-token", "[removed]"]),
        (["env", "OPENAI_API_KEY=k1", "x"], ["env", "OPENAI_API_KEY=[removed]", "x"]),
        (["x", "--header", "Authorization: Bearer k1"], ["x", "--header", "Authorization: Bearer [removed]"]),
        (["x", "--api-key", "k1", "k2", "--port", "1"], ["x", "--api-key", "[removed]", "[removed]", "--port", "1"]),
        (["x", "--header", "Sub-Key=k1", "Z=k2"], ["x", "--header", "Sub-Key=[removed]", "Z=[removed]"]),
        (["x", "--header=Sub-Key=k1", "-H", "Z: k2"], ["x", "--header=Sub-Key=[removed]", "-H", "Z: [removed]"]),
        (["x", "--prompt", "hello", "--tokenizer", "t"], ["x", "--prompt", "[removed]", "--tokenizer", "t"]),
    ],
)  # fmt: skip
def test_a_command_line_loses_its_keys(argv, left):
    """The values of options that hold a key or a prompt are removed."""
    assert tuple(left) == PrivateText().clean_arguments(argv)


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_any_line_has_one_line_left(text):
    """No line is dropped and none is added, and the redactor never fails."""
    redactor = LogRedactor(PrivateText())

    for line in text.encode("utf-8", "surrogatepass").split(b"\n"):
        assert b"\n" not in redactor.redact(line)


@pytest.mark.parametrize("before", ["", "ValueError: token='", 'x="'])
def test_a_run_of_backslashes_is_read_once(before):
    """JSON within JSON has long runs of them: a text of 200 KB is read in a moment, not by each of them anew."""
    text = before + "\\" * 200_000

    assert len(PrivateText().clean(text)) <= len(text)
