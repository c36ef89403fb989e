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

# Release, start, engine: labels that differ; sizes, with the memory of the weights and of the KV cache in GiB; seconds.
STARTS = {
    ("0.5.5", 1, "0"): (
        {},
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 256, "model_weights_bytes": 15.4926},
        {"graphs": 10},
    ),
    ("0.5.5", 2, "0"): (
        DRAFTS,
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 512, "model_weights_bytes": 11.7164},
        {"graphs": 20},
    ),
    ("0.6.6", 1, "0"): (
        {},
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 64, "model_weights_bytes": 14.8779},
        {"compile": 44.56, "graphs": 39, "init": 62.94},
    ),
    ("0.6.6", 2, "0"): (
        DRAFTS,
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 128, "model_weights_bytes": 11.4285},
        {"compile": 34.14, "graphs": 17, "init": 60.71},
    ),
    ("0.7.3", 1, "0"): (
        {},
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 256, "model_weights_bytes": 9.8519},
        {"compile": 36.67, "graphs": 7, "init": 28.44},
    ),
    ("0.7.3", 2, "0"): (
        DRAFTS,
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 256, "model_weights_bytes": 11.9322},
        {"compile": 58.96, "graphs": 26, "init": 45.03},
    ),
    ("0.7.3", 4, "0"): (
        {},
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 256, "model_weights_bytes": 8.1897},
        {"compile": 32.23, "graphs": 12, "init": 90.68},
    ),
    ("0.8.5", 1, "0"): (
        {},
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 64, "model_weights_bytes": 8.6885},
        {"load": 33.999823, "weights": 27.2, "compile": 14.33, "graphs": 26, "init": 94.11},
    ),
    ("0.8.5", 2, "1"): (
        DRAFTS,
        {**V0_SIZES, "max_batched_tokens": 2048, "max_running_requests": 128},
        {"compile": 10.78, "graphs": 30, "init": 21.3},
    ),
    ("0.10.2", 1, "0"): (
        {},
        {
            **V1_SIZES,
            "max_batched_tokens": 2048,
            "max_running_requests": 64,
            "model_weights_bytes": 8.1169,
            "kv_cache_bytes": 27.16,
        },
        {"load": 29.816176, "weights": 23.85, "compile": 19.55, "graphs": 20, "init": 28.73},
    ),
    ("0.10.2", 5, "0"): (
        {},
        {
            **V1_SIZES,
            "max_batched_tokens": 2048,
            "max_running_requests": 128,
            "model_weights_bytes": 7.7375,
            "kv_cache_bytes": 56.48,
        },
        {"load": 36.890701, "weights": 29.51, "compile": 48.91, "graphs": 32, "init": 25.46},
    ),
    ("0.12.0", 1, "0"): (
        {},
        {
            **V1_SIZES,
            "max_batched_tokens": 8192,
            "max_running_requests": 256,
            "model_weights_bytes": 15.9548,
            "kv_cache_bytes": 18.47,
        },
        {"load": 14.097313, "weights": 11.28, "compile": 23.55, "graphs": 40, "init": 47.09},
    ),
    ("0.12.0", 2, "1"): (
        DRAFTS,
        {**V1_SIZES, "max_batched_tokens": 8192, "max_running_requests": 256, "kv_cache_bytes": 59.19},
        {"compile": 10.75, "graphs": 39, "init": 86.8},
    ),
    ("0.20.2", 1, "0"): (
        {},
        {
            **V1_SIZES,
            "max_batched_tokens": 8192,
            "max_running_requests": 128,
            "model_weights_bytes": 9.27,
            "kv_cache_bytes": 59.29,
        },
        {"load": 3.800271, "weights": 3.04, "compile": 15.4, "graphs": 27, "init": 51.32},
    ),
    ("0.20.2", 2, "0"): (
        DRAFTS,
        {
            **V1_SIZES,
            "max_batched_tokens": 8192,
            "max_running_requests": 128,
            "model_weights_bytes": 10.72,
            "kv_cache_bytes": 31.16,
        },
        {"load": 10.059332, "weights": 8.05, "compile": 15.67, "graphs": 25, "init": 52.22},
    ),
    ("0.33.0", 1, "0"): (
        {},
        {
            **V1_SIZES,
            "max_batched_tokens": 8192,
            "max_running_requests": 128,
            "model_weights_bytes": 11.41,
            "kv_cache_bytes": 53.92,
        },
        {"load": 27.023648, "weights": 21.62, "compile": 10.1, "graphs": 15, "init": 33.66},
    ),
    ("0.33.0", 2, "1"): (
        DRAFTS,
        {**V1_SIZES, "max_batched_tokens": 8192, "max_running_requests": 128, "kv_cache_bytes": 33.47},
        {"compile": 10.49, "graphs": 26, "init": 34.96},
    ),
    ("0.33.0", 6, "3"): (  # One rank of eight, whose workers print no rank.
        {},
        {
            **V1_SIZES,
            "max_batched_tokens": 8192,
            "max_running_requests": 128,
            "model_weights_bytes": 12.8,
            "kv_cache_bytes": 20.87,
        },
        {"load": 32.018109, "weights": 25.61, "compile": 34.26, "graphs": 25, "init": 114.19},
    ),
    ("0.33.0", 7, "aggregated"): ({}, {**V1_SIZES, "max_running_requests": 128}, {}),
}

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
    labels, sizes, seconds = STARTS[release, start, engine]
    snapshot = states(release)[start - 1]
    (found,) = [each for each in snapshot.engines if each.key.engine == engine]
    bytes_of = {name: round(size * GIB) if name.endswith("_bytes") else size for name, size in sizes.items()}
    checked = {*V0_SIZES, "max_batched_tokens", "max_running_requests", "model_weights_bytes", "kv_cache_bytes"}

    assert {**dict.fromkeys(CONFIG_LABELS, ""), **LABELS, **labels} == snapshot.configuration.labels
    assert bytes_of == {name: value for name, value in found.facts.items() if name in checked}
    assert seconds == found.startup_seconds


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
