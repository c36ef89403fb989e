# SPDX-License-Identifier: Apache-2.0
"""The configuration of each release of the corpus, worked out by reading its logs and pages."""

from __future__ import annotations

from functools import cache

import pytest

from tests.parsers.releases import PAGES, RELEASES, page, read_events

from vllm_watch.daemon.catalog.codes import CONFIG_LABELS
from vllm_watch.daemon.exposition.samples import server_samples
from vllm_watch.daemon.reading.log_reader import LogBatch
from vllm_watch.daemon.state.scrape_source import ScrapeResult
from vllm_watch.daemon.state.server import ServerState
from vllm_watch.daemon.state.server_sources import ServerSettings
from vllm_watch_parsers.events import Lifecycle
from vllm_watch_parsers.scrape import read_metrics


NOW = 1_795_302_000.0
GIB = 2**30

LABELS = {
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "prefix_caching": "true",
    "chunked_prefill": "true",
    "enforce_eager": "false",
    "spec_method": "none",
    "device": "cuda",
}
"""What all starts below print alike; every other label is empty: no line has its flag."""

V0_SIZES = {"gpu_memory_utilization_ratio": 0.9, "block_size_tokens": 16, "pipeline_parallel_size": 1}
V1_SIZES = {"pipeline_parallel_size": 1}
"""To 0.8.5 all arguments are printed, later only those that were given."""

DRAFTS = {"spec_method": "ngram"}

SIZES = ("max_batched_tokens", "max_running_requests", "model_weights_bytes", "kv_cache_bytes")

PHASES = ("load", "weights", "compile", "graphs", "init")

# Release, start, engine: labels that differ; what is alike; the sizes above, memory in GiB; seconds of the phases.
STARTS = {
    ("0.5.5", 1, "0"): ({}, V0_SIZES, (2048, 256, 15.4926, None), (None, None, None, 10, None)),
    ("0.5.5", 2, "0"): (DRAFTS, V0_SIZES, (2048, 512, 11.7164, None), (None, None, None, 20, None)),
    ("0.6.6", 1, "0"): ({}, V0_SIZES, (2048, 64, 14.8779, None), (None, None, 44.56, 39, 62.94)),
    ("0.6.6", 2, "0"): (DRAFTS, V0_SIZES, (2048, 128, 11.4285, None), (None, None, 34.14, 17, 60.71)),
    ("0.7.3", 1, "0"): ({}, V0_SIZES, (2048, 256, 9.8519, None), (None, None, 36.67, 7, 28.44)),
    ("0.7.3", 2, "0"): (DRAFTS, V0_SIZES, (2048, 256, 11.9322, None), (None, None, 58.96, 26, 45.03)),
    ("0.7.3", 4, "0"): ({}, V0_SIZES, (2048, 256, 8.1897, None), (None, None, 32.23, 12, 90.68)),
    ("0.8.5", 1, "0"): ({}, V0_SIZES, (2048, 64, 8.6885, None), (33.999823, 27.2, 14.33, 26, 94.11)),
    ("0.8.5", 2, "1"): (DRAFTS, V0_SIZES, (2048, 128, None, None), (None, None, 10.78, 30, 21.3)),
    ("0.10.2", 1, "0"): ({}, V1_SIZES, (2048, 64, 8.1169, 27.16), (29.816176, 23.85, 19.55, 20, 28.73)),
    ("0.10.2", 5, "0"): ({}, V1_SIZES, (2048, 128, 7.7375, 56.48), (36.890701, 29.51, 48.91, 32, 25.46)),
    ("0.12.0", 1, "0"): ({}, V1_SIZES, (8192, 256, 15.9548, 18.47), (14.097313, 11.28, 23.55, 40, 47.09)),
    ("0.12.0", 2, "1"): (DRAFTS, V1_SIZES, (8192, 256, None, 59.19), (None, None, 10.75, 39, 86.8)),
    ("0.20.2", 1, "0"): ({}, V1_SIZES, (8192, 128, 9.27, 59.29), (3.800271, 3.04, 15.4, 27, 51.32)),
    ("0.20.2", 2, "0"): (DRAFTS, V1_SIZES, (8192, 128, 10.72, 31.16), (10.059332, 8.05, 15.67, 25, 52.22)),
    ("0.33.0", 1, "0"): ({}, V1_SIZES, (8192, 128, 11.41, 53.92), (27.023648, 21.62, 10.1, 15, 33.66)),
    ("0.33.0", 2, "1"): (DRAFTS, V1_SIZES, (8192, 128, None, 33.47), (None, None, 10.49, 26, 34.96)),
    # One rank of eight, whose workers print no rank.
    ("0.33.0", 6, "3"): ({}, V1_SIZES, (8192, 128, 12.8, 20.87), (32.018109, 25.61, 34.26, 25, 114.19)),
    ("0.33.0", 7, "aggregated"): ({}, V1_SIZES, (None, 128, None, None), (None, None, None, None, None)),
}  # fmt: skip

CHANGES = {
    "0.5.5": "max-num-seqs 128 → 64, tensor-parallel-size 1 → 2",
    "0.6.6": "tensor-parallel-size 1 → 2",
    "0.7.3": "max-num-seqs 128 → 256, tensor-parallel-size 1 → 2",
    "0.8.5": "tensor-parallel-size 1 → 2",
    "0.10.2": "data-parallel-size 2 → (not set), max-num-seqs 128 → 256",
    "0.12.0": (
        "api-server-count (not set) → 2, data-parallel-size 8 → 2, max-num-seqs 512 → 128, tensor-parallel-size 2 → 1"
    ),
    "0.20.2": (
        "api-server-count (not set) → 2, data-parallel-size 8 → 2, max-num-seqs 256 → 128, tensor-parallel-size 2 → 1"
    ),
    "0.33.0": "api-server-count (not set) → 2, data-parallel-size 8 → 2, tensor-parallel-size 2 → 1",
}
"""What the last start in each log has changed, by the lines with the arguments."""


@cache
def states(release):
    """Return what is known at the end of each start of a release's log."""
    state, found = ServerState(ServerSettings("s", has_log=True, metrics_interval=None, keeps_stale=True)), []
    for _, timed in read_events(release):
        if isinstance(timed.event, Lifecycle) and timed.event.phase == "starting":
            found.append(state.snapshot(NOW))
        state.apply_log(LogBatch((timed,), requests={}, lines=1, size=0, end=timed.at, continuation_lines=0))
    return [*found[1:], state.snapshot(NOW)]


@pytest.mark.parametrize(("release", "start", "engine"), STARTS)
def test_each_start_is_known(release, start, engine):
    """The labels, sizes and seconds of a start are those that its lines have, and nothing else is."""
    labels, alike, sizes, seconds = STARTS[release, start, engine]
    snapshot = states(release)[start - 1]
    (found,) = [each for each in snapshot.engines if each.key.engine == engine]
    known = {**alike, **{name: size for name, size in zip(SIZES, sizes, strict=True) if size is not None}}
    bytes_of = {name: round(size * GIB) if name.endswith("_bytes") else size for name, size in known.items()}
    checked = {*V0_SIZES, *SIZES}

    assert {**dict.fromkeys(CONFIG_LABELS, ""), **LABELS, **labels} == snapshot.configuration.labels
    assert bytes_of == {name: value for name, value in found.facts.items() if name in checked}
    assert seconds == tuple(map(found.startup_seconds.get, PHASES))


@pytest.mark.parametrize("release", RELEASES)
def test_the_last_change_is_known(release):
    """What a start has changed is what differs between its arguments and those of the start before."""
    assert CHANGES[release] == states(release)[-1].configuration.change.text


@pytest.mark.parametrize("release", RELEASES)
def test_equal_starts_have_equal_digests(release):
    """Two starts have one digest where neither the arguments nor what vLLM made of them differ, else two."""
    known = [state.configuration for state in states(release)]
    flags = [(each.flags, state.engine_generation) for each, state in zip(known, states(release), strict=True)]

    for one, its_flags in zip(known, flags, strict=True):
        assert [its_flags == other for other in flags] == [one.digest == other.digest for other in known]


@pytest.mark.parametrize(("release", "prefix"), PAGES)
def test_a_page_alone_has_some_of_it(release, prefix):
    """/metrics has the share of memory, the block's size and whether prefixes are cached, where it has the cache's."""
    state = ServerState(ServerSettings("s", has_log=False, metrics_interval=5.0))
    state.apply_scrape(ScrapeResult(NOW, 0.1, read_metrics(page(release, f"{prefix}0.txt")), "ok"))
    snapshot = state.snapshot(NOW)
    has_cache = prefix not in {"metrics_v1_", "metrics_rust_"} or release == "0.8.5"
    shown = {sample.name: sample for sample in server_samples(snapshot)}

    assert has_cache == ("server_config_info" in shown) == (snapshot.configuration.digest is not None)
    assert (0.9 if has_cache else None) == snapshot.engines[0].facts.get("gpu_memory_utilization_ratio")
    assert (16 if has_cache else None) == snapshot.engines[0].facts.get("block_size_tokens")
    labels = {"prefix_caching": "true"} if has_cache else {}
    assert {**dict.fromkeys(CONFIG_LABELS, ""), **labels} == snapshot.configuration.labels
