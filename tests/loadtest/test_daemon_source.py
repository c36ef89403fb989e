# SPDX-License-Identifier: Apache-2.0
"""A running vllm-watch as a source: what its /metrics says again and again."""

from __future__ import annotations

import functools

from contextlib import contextmanager

import pytest

from tests.support.http_servers import StandIn, answer
from tests.support.recordings import recording, snapshots
from tests.support.waiting import HandClock

from vllm_watch.analysis.advice.advisor import advise
from vllm_watch.analysis.loadtest.daemon_source import DaemonQuery, watch_daemon
from vllm_watch.analysis.loadtest.load_test import Report
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.exposition.text_format import TextWriter
from vllm_watch.daemon.sources.daemon_client import DaemonTarget
from vllm_watch.daemon.support.errors import DaemonError


NAME = "queue"
GPUS = b"""\
vllm_watch_server_gpu_info{server="queue",gpu="GPU-1",how="pid",shared="false"} 1
vllm_watch_server_gpu_info{server="queue",gpu="GPU-2",how="pid",shared="false"} 1
vllm_watch_gpu_memory_used_bytes{gpu="GPU-1"} 50
vllm_watch_gpu_memory_used_bytes{gpu="GPU-2"} 75
vllm_watch_gpu_memory_used_bytes{gpu="GPU-3"} 99
vllm_watch_gpu_memory_total_bytes{gpu="GPU-1"} 100
vllm_watch_gpu_memory_total_bytes{gpu="GPU-2"} 100
vllm_watch_gpu_memory_total_bytes{gpu="GPU-3"} 100
"""
FROM = 150.0
"""The second of the recording at which it is first asked: four requests run, and many wait."""


@functools.cache
def snapshots_by_second():
    """Return what the daemon knows at each fifth second of the recording."""
    return {round(second): snapshot for second, snapshot in snapshots(NAME, "both", 5.0)}


def snapshot_at(at):
    """Return what the daemon knew last at a moment."""
    second = int(at - recording(NAME).started)
    return snapshots_by_second()[min(second - second % 5, max(snapshots_by_second()))]


def metrics(at):
    """Return the daemon's /metrics."""
    writer = TextWriter()
    writer.add(server_samples(snapshot_at(at)))
    return b"".join(writer.families()) + GPUS


@contextmanager
def daemon(clock, **answers):
    """Serve a vllm-watch that replays the recording by the clock; `answers` has other answers by path."""

    def pieces(head):
        path = head.split()[1]
        for end, given in answers.items():
            if path.endswith(end):
                return [given]
        return [answer(metrics(clock.time))]

    with StandIn(pieces) as server:
        yield server.url.removesuffix("/metrics")


def clock():
    """Return a clock that stands in the middle of the load."""
    return HandClock(recording(NAME).started + FROM)


@pytest.fixture(scope="module")
def history():
    """What was seen in two and a half minutes of the recording."""
    time, shares = clock(), []
    with daemon(time) as url:
        (found,) = watch_daemon(DaemonQuery(DaemonTarget(url), 150.0), time, shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    return found


class TestWatching:
    """The recording, watched from its 150th to its 300th second."""

    def test_each_reading_is_a_point(self, history):
        """Each new reading is a point with its own time and all that /metrics has."""
        started = recording(NAME).started
        watched = [point for point in history.points if point.counters]

        assert len(watched) >= 24
        assert all(started + FROM - 10 <= point.at <= started + FROM + 150 for point in watched)
        assert {point.state for point in watched} == {"saturated"}
        assert all(point.gauges["requests_running"] in {3, 4} for point in watched)
        assert watched[-1].counters["generation_tokens_total"] > watched[0].counters["generation_tokens_total"]
        assert watched[-1].histograms["time_per_output_token_seconds"].observations > 100
        assert len(watched[-1].position_acceptance) == 4

    def test_the_flags_are_known(self, history):
        """The flags are those that the daemon exports."""
        assert history.config["max-num-seqs"] == "4"
        assert history.config["enforce-eager"] == "True"
        assert history.version == "0.32.0"
        assert history.are_all_flags_known

    def test_it_is_enough_for_advice(self, history):
        """These minutes show that drafts are thrown away; the rules need no more."""
        (advice,) = advise([history], Report(runs=())).advice

        assert (advice.rule, advice.now, advice.proposed) == ("draft-tokens-down", "4", "off")

    def test_the_memory_of_its_gpus_is_known(self, history):
        """Of the server's GPUs the fullest counts; others of the machine do not."""
        assert {point.gauges.get("gpu_memory_used_ratio") for point in history.points} == {0.75}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({"/metrics": answer(b"", "401 Unauthorized")}, "a user name and a password: read another"),
        ({"/metrics": answer(b"", Content_Encoding="br")}, "an answer is compressed"),
        ({"/metrics": answer(b"# nothing\n")}, "it watches no server"),
        ({"/metrics": answer(b"not metrics {")}, "/metrics is not what a vllm-watch answers"),
    ],
)
def test_what_cannot_be_read_has_a_sentence(answers, said):
    """Each answer that is not a vllm-watch's is one sentence, with the address."""
    time = clock()
    with daemon(time, **answers) as url, pytest.raises(DaemonError) as raised:
        watch_daemon(DaemonQuery(DaemonTarget(url, if_unauthorized="read another"), 10.0), time)

    assert str(raised.value).startswith(f"{url}: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
