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

from vllm_watch.analysis.recorder.command_redaction import redact_arguments, redact_result
from vllm_watch.analysis.recorder.redaction import LogRedactor
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
        "(RayWorkerWrapper pid=9, ip=0.0.0.0) INFO 11-21 02:35:12 [x.py:1] Loading weights took 2 s",
        record("GPU KV cache size: 12,288 tokens, Maximum concurrency for 2,048 tokens per request: 6.00x", "kv.py"),
        record("non-default args: max_num_seqs=24, speculative_config={'method': 'mtp'}", "u.py"),
        "INFO:     Application startup complete.",
        'INFO:     0.0.0.0:0 - "POST /sleep?level=1 HTTP/1.1" 200 OK',
        "torch.OutOfMemoryError: CUDA out of memory",
        "",
    ],
)
def test_what_is_read_stays(line):
    """A line of which all is read is left as it is."""
    assert line.encode() == LogRedactor().redact(line.encode())


@pytest.mark.parametrize(
    ("line", "left", "removed"),
    [
        (record("Added request x-1."), record("[removed]"), {"lines": 1}),
        ("a traceback's line", "[removed]", {"lines": 1}),
        (record("user bob", "metrics.py"), record("[removed]", "metrics.py"), {"lines": 1}),
        (f"{STATISTICS}, A next field: 3 reqs", f"{STATISTICS}, A next field: 3 [removed]", {"lines": 1}),
        ("my password INFO 11-21 02:35:12 [x.py:1] hello", "[removed]", {"lines": 1}),
        (record("args: {'max_num_seqs': 8, 'speculative_config': '{\"method\":\"mtp\",\"x\":1}'}", "api_server.py"),
         record("args: max_num_seqs=8, speculative_config={'method': \"mtp\"}", "api_server.py"), {"lines": 1}),
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
    """Results of benchmarks keep their numbers and settings, and lose all other texts."""

    RESULT: ClassVar = {
        "date": "20261122-051400", "model_id": "m", "completed": 2, "request_throughput": 1.25, "ttfts": [0.1, 0.25],
        "input_lens": [3, 4], "errors": ["", "Traceback\nTimeoutError: 198.51.100.7 Zq7mark"], "request_rate": "inf",
        "generated_texts": ["Zq7mark", ""], "api_key": "Zq7mark", "pwd": "Zq7mark", "bearer": "Zq7mark",
        "extra": {"Zq7mark": 1, "user": "Zq7mark"}, "error": "Cannot connect to 198.51.100.7 Zq7mark",
        "base_url": "http://bob:Zq7mark@198.51.100.7/", "temperature": "0.6",
    }  # fmt: skip

    def test_texts_are_removed(self):
        """Of an error its reason stays; every number stays, and no text but the settings that are read."""
        left, removed = redact_result(json.dumps(self.RESULT))

        gone = {"errors": ["", "timeout"], "generated_texts": ["[removed]", ""], "extra": {}} | dict.fromkeys(
            ("api_key", "pwd", "bearer", "error", "base_url"), "[removed]"
        )
        assert {**self.RESULT, **gone} == json.loads(left)
        assert removed == 8

    @pytest.mark.parametrize("form", ['{{"completed": 1, "model_id": "{}"}}', "Namespace(model='{}', seed=1)"])
    def test_a_login_in_the_name_of_a_model_is_removed(self, form):
        """A model may be a URL: what is before its host is removed, in JSON and in what is printed."""
        left, _ = redact_result(form.format("s3://bob:Zq7mark@host/m"))

        assert "s3://host/m" in left

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
        """Each result of vLLM's own clients is read as before, but for its place and the user's metadata."""
        text = path.read_text(encoding="utf-8")
        if not is_result(text):
            pytest.skip("it is no result of vLLM's")
        try:
            before = read_benchmarks(text)
        except BenchmarkError:
            pytest.skip("it is no result")
        left = read_benchmarks(redact_result(text)[0])

        def all_but_place_and_metadata(result):
            return result._replace(line=1, settings=result.settings._replace(metadata=set(result.settings.metadata)))

        assert list(map(all_but_place_and_metadata, before)) == list(map(all_but_place_and_metadata, left))


@pytest.mark.parametrize(
    ("argv", "left"),
    [
        ("x --api-key k1 --num-prompts 8", "x --api-key [removed] --num-prompts 8"),
        ("x --api-key=k1 --hf-token k2", "x --api-key=[removed] --hf-token [removed]"),
        ("env OPENAI_API_KEY=k1 vllm bench serve", "env [removed] vllm bench serve"),
        ("./bench2.sh serve sk-a1b2", "./bench2.sh serve [removed]"),
        ("x --api-key k1 k2 --seed 1", "x --api-key [removed] [removed] --seed 1"),
        ("x --header=Sub-Key=k1 -H Z:k2", "x --header=[removed] -H [removed]"),
        ("x --api-key -sk1 -HAuthorization:k2 -ubob:k3", "x --api-key [removed] [removed] [removed]"),
        ("x --model m k1 --sk-a1b2", "x --model m [removed] [removed]"),
        ("x --goodput ttft:100 tpot:50 --burstiness -1", "x --goodput ttft:100 tpot:50 --burstiness -1"),
        ("x --prompt hello --model m --request-rate inf", "x --prompt [removed] --model m --request-rate inf"),
    ],
)
def test_a_command_line_keeps_its_options(argv, left):
    """Of options the names stay, and the values that are numbers or are read; what else is said is removed."""
    assert (tuple(left.split()), left.count("[removed]")) == redact_arguments(argv.split())


def test_a_command_line_loses_logins():
    """A model that is a URL keeps neither user nor password."""
    assert (("x", "--model=s3://host/m"), 1) == redact_arguments(["x", "--model=s3://bob:k1@host/m"])


@given(st.text(max_size=200))
@settings(max_examples=300)
def test_any_line_has_one_line_left(text):
    """No line is dropped and none is added, and the redactor never fails."""
    redactor = LogRedactor()

    for line in text.encode("utf-8", "surrogatepass").split(b"\n"):
        assert b"\n" not in redactor.redact(line)
