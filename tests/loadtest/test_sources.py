# SPDX-License-Identifier: Apache-2.0
"""Files and folders are read as what they are; what is none of the sources is an error that names the place."""

from __future__ import annotations

import functools
import gzip
import json
import lzma
import math
import time

import pytest

from tests.loadtest.histories import log_of
from tests.loadtest.load_tests import FOLDER
from tests.support.recordings import recording_path

from vllm_watch.analysis.loadtest.load_test import parse_objective
from vllm_watch.analysis.loadtest.report_sources import ReadOptions, distinct_names, read_report
from vllm_watch.analysis.replay.recording import Recording
from vllm_watch.daemon.config.moments import TimeRange
from vllm_watch.daemon.support.errors import FileError


DRAFT = FOLDER / "draft2-run1.jsonl.xz"
NOT_UTF8 = (
    b'{"date": "\xff", "backend": "v", "completed": 1, "duration": 2.0, "request_throughput": 1.0, '
    b'"total_input_tokens": 1}'
)
PREFIX = FOLDER / "prefix-on-run1.jsonl.xz"


@functools.lru_cache
def logged(path):
    """Return the bytes of a recorded log."""
    return log_of(Recording(path))


@functools.lru_cache
def result_of(path):
    """Return the benchmark's result in a recording."""
    return Recording(path).benchmarks[0].content


@pytest.fixture
def files(tmp_path):
    """A test's log and its result as files of their own."""
    (tmp_path / "vllm.log").write_bytes(logged(DRAFT))
    (tmp_path / "result.json").write_text(result_of(DRAFT))
    return tmp_path


def test_a_folder_has_what_is_in_its_folders(files):
    """The sources in a folder's folders are read, too; a text that has no line of a vLLM server's is none."""
    (files / "run1").mkdir()
    (files / "result.json").rename(files / "run1" / "result.json")
    (files / "run1" / "stderr.txt").write_text("WARNING: tokenizer\n")
    (files / ".cache").mkdir()
    (files / ".cache" / "other.json").write_text("{}")

    (run,) = read_report([str(files)]).runs

    assert [view.view for view in run.views] == ["client", "server"]


def test_a_recording_has_both_views():
    """A recorded load test is one run, with the benchmark's result and the server's."""
    (run,) = read_report([str(DRAFT)]).runs

    assert (run.name, [view.view for view in run.views]) == ("draft2-run1", ["client", "server"])
    assert run.config["speculative-config.num_speculative_tokens"] == "2"
    assert run.hardware == {"device": "cpu", "kv_cache_memory_gib": "1"}


def test_a_log_and_a_result_are_joined(files):
    """The log alone gives throughput, phases and acceptance beside the client's result."""
    (run,) = read_report([str(files / "vllm.log"), str(files / "result.json")]).runs
    client, server = run.views

    assert server.output_throughput == pytest.approx(client.output_throughput, rel=0.05)
    assert server.successful == client.successful
    assert server.ttft_ms is None
    assert run.use.acceptance_length == pytest.approx(3, rel=0.01)
    assert "There is no /metrics" in " ".join(run.warnings)


def test_a_log_in_another_zone_is_matched(files):
    """A result of a client that lives eight hours ahead of the log's times is still joined."""
    result = json.loads((files / "result.json").read_text())
    assert result["date"].startswith("20261122-05")
    result["date"] = result["date"].replace("-05", "-13", 1)
    (files / "result.json").write_text(json.dumps(result))
    (run,) = read_report([str(files / "vllm.log"), str(files / "result.json")]).runs

    assert len(run.views) == 2
    assert any("differ by -8 h" in each for each in run.warnings)


def test_the_zone_is_this_machine_s(files, monkeypatch):
    """Local times of logs are those of TZ."""
    starts = []
    for zone in ("UTC", "Asia/Shanghai"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        starts.append(read_report([str(files / "vllm.log")]).runs[0].start)
    monkeypatch.undo()
    time.tzset()

    assert starts[0] - starts[1] == pytest.approx(8 * 3600)


def test_a_rotated_log_is_one_server(files):
    """A log's parts, of which one is compressed, give the same run as the whole log."""
    (whole,) = read_report([str(files / "vllm.log")]).runs
    data = logged(DRAFT)
    cut = data.index(b"\n", len(data) // 2) + 1
    (files / "vllm.log.1.gz").write_bytes(gzip.compress(data[:cut]))
    (files / "vllm.log").write_bytes(data[cut:])
    (rotated,) = read_report([str(files / "vllm.log")]).runs

    assert rotated.result == whole.result


def test_progress_reaches_the_end(files):
    """Progress never falls, and ends at 1."""
    shares = []
    read_report([str(files / "vllm.log"), str(files / "result.json"), str(PREFIX)], None, shares.append)

    assert shares == sorted(shares)
    assert shares[-1] == 1


def wrong():
    """Return files that are no sources, and what is said of each."""
    result = result_of(DRAFT)
    return {
        "empty": (b"", "is empty"),
        "foreign.log": (b"Nov 22 host sshd[1]: hello\n" * 20, "has no line of a vLLM server's log"),
        "binary": (bytes(range(256)) * 40, "has no line of a vLLM server's log"),
        "recording.jsonl": (lzma.decompress(DRAFT.read_bytes()), "compress it with xz"),
        "truncated.json": (result[:800].encode(), ":1: "),
        "foreign.json": (b'{"hello": 1}', ":1: "),
        "not-utf8.json": (NOT_UTF8, "not text in UTF-8"),
        "mixed.log": (logged(DRAFT) + b"============ Serving Benchmark Result ============\n",
                      "has a server's log and a benchmark's result"),
        "truncated.jsonl.xz": (DRAFT.read_bytes()[:200], ""),
        "never-used.log": (logged(DRAFT).partition(b"Engine 000")[0], "no load is in it: "),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(wrong()))
def test_what_is_no_source_is_said(tmp_path, name):
    """Each is an error that names the file, and where it can, the line."""
    data, reason = wrong()[name]
    path = tmp_path / name
    path.write_bytes(data)

    with pytest.raises(FileError) as raised:
        read_report([str(path)])

    assert str(raised.value).startswith(str(path))
    assert reason in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_recording_that_breaks_off_is_read_as_far_as_it_goes(tmp_path):
    """What is complete is reported, with a warning that it is not all."""
    path = tmp_path / "cut.jsonl.xz"
    path.write_bytes(PREFIX.read_bytes()[:-3000])
    (run,) = read_report([str(path)]).runs

    assert any("breaks off" in each for each in run.warnings)


@pytest.mark.parametrize("name", ["queue", "pause", "longshort"])
def test_printed_times_are_good_times(name):
    """From the second in which a load is said to begin to the one in which it ends there is that load, whole."""
    path = str(recording_path(name))
    for run in read_report([path]).runs:
        times = TimeRange(math.floor(run.start), math.floor(run.end))
        (cut,) = read_report([path], ReadOptions(times=times)).runs

        assert cut.result == run.result


def test_a_folder_is_the_sources_in_it(files):
    """The files whose names end as a source's do count, and nothing else: a log and its result are one run."""
    (files / "notes.md").write_text("none")
    (files / ".hidden").write_text("none")
    (run,) = read_report([str(files)]).runs

    assert [view.view for view in run.views] == ["client", "server"]


def test_distinct_names_are_as_short_as_they_can_be():
    """Names are those of the files, with the folders in which they differ."""
    assert distinct_names(["/a/x.json", "/a/y.json"]) == {"/a/x.json": "x.json", "/a/y.json": "y.json"}
    assert list(distinct_names(["/a/1/r.json", "/a/2/r.json", "/b/2/r.json"]).values()) == [
        "a/1/r.json", "a/2/r.json", "b/2/r.json",
    ]  # fmt: skip


def test_an_objective_that_is_asked_for_goes_before_the_clients(files):
    """What a client counted within limits of its own says nothing of others, and that is said."""
    counted = json.loads(result_of(DRAFT)) | {"request_goodput": 1.0}
    (files / "result.json").write_text(json.dumps(counted))
    asked = parse_objective("ttft=100ms")
    (run,) = read_report([str(files / "result.json")], ReadOptions(objective=asked)).runs

    assert (run.result.goodput.objective, run.result.goodput.ratio) == (asked, None)
    assert any(warning.startswith("By the client it is not known") for warning in run.warnings)
