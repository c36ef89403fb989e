# SPDX-License-Identifier: Apache-2.0
"""
What vLLM's KV connectors show, in one shape, on pages and in lines that vLLM's own classes have made.

`expected.json` beside them has what each of them was fed with.
"""

from __future__ import annotations

import json

import pytest

from tests.support.corpus import CORPUS, bodies

from vllm_watch_parsers.events import KvTransfers, Notice
from vllm_watch_parsers.kv_transfer import (
    KV_FETCH_STAGES,
)
from vllm_watch_parsers.kv_transfer_line import parse_kv_transfers
from vllm_watch_parsers.line import parse_line
from vllm_watch_parsers.scrape import MetricsReading, Unreadable, read_metrics


CASES = json.loads((CORPUS / "kv_connectors" / "expected.json").read_text())
BODIES = bodies("kv_connectors")
OF_PAGES = [name for name in CASES if f"metrics_{name}_0.txt" in BODIES]
LABELS = 'model_name="m",engine="0"'


def kv_of(body):
    """Return what a page with one engine has of its connectors."""
    reading = read_metrics(body if isinstance(body, bytes) else body.encode())
    assert isinstance(reading, MetricsReading)
    (engine,) = reading.engines.values()
    return engine.kv, reading.out_of_range


def flat(values):
    """Return values by the words of their series and labels."""
    return {" ".join((key.series, *key.labels)): value for key, value in dict(values).items()}


def page(*lines):
    """Return a page of one engine with some lines of its connectors."""
    return "".join(f"{line}\n" for line in (f"vllm:num_requests_running{{{LABELS}}} 1", *lines))


def both_pages(name):
    """Return what the two pages of a case have."""
    return [kv_of(BODIES[f"metrics_{name}_{at}.txt"])[0] for at in (0, 1)]


@pytest.mark.parametrize("name", OF_PAGES)
def test_a_page_counts_what_was_fed(name):
    """Each counter has on the first page what was fed once, and on the second what was fed twice; gauges the last."""
    first, second = both_pages(name)
    fed = CASES[name]["counters"]

    for series, value in fed.items():
        assert [flat(page.counters).get(series) for page in (first, second)] == pytest.approx([value, 2 * value]), (
            series
        )
    assert {series for series, value in flat(second.counters).items() if value} <= set(fed)
    for series, value in CASES[name]["gauges"].items():
        assert flat(second.gauges)[series] == value


@pytest.mark.parametrize("name", CASES)
def test_a_line_counts_what_was_fed(name):
    """A line has the same counts for its interval as the pages around it, as exactly as it is printed."""
    (event,) = parse_kv_transfers(CASES[name]["line"])
    fed = CASES[name]["counters"]
    # The line of 0.20.2 has no failures, and no number of transfers for the offloading connector.
    silent = {"nixl-0.20.2": "failures expired", "kv_offload-0.20.2": "transfers_total"}.get(name, "").split()

    assert isinstance(event, KvTransfers)
    assert not event.unknown_fields
    counted = flat(event.counts)
    for series, value in fed.items():
        if not any(word in series for word in silent):
            assert counted[series] == pytest.approx(value, rel=1e-3), series
    assert {series for series, value in counted.items() if value} <= set(fed)
    # No line has the size of the simple connector's pool.
    hidden = ("usage_ratio simple",)
    gauges = {series: value for series, value in CASES[name]["gauges"].items() if not any(s in series for s in hidden)}
    assert flat(event.gauges) == gauges


def test_a_whole_line_of_a_log_is_read():
    """The line is read from the call site that prints it, and from no other."""
    text = CASES["nixl-0.32.0"]["line"]
    head = "(APIServer pid=1) INFO 11-21 05:10:28 [{}:106] "

    (event,) = parse_line((head.format("metrics.py") + text).encode()).events
    assert isinstance(event, KvTransfers)
    assert not parse_line((head.format("logger.py") + text).encode()).events


OLDER_LINES = {
    "0.11.0": ("num_successful_transfers=7", {"kv_transfers_total nixl in": 7}),
    "0.12.0": (
        (
            "Num successful transfers=396, Avg xfer time (ms)=1.636, P90 xfer time (ms)=14.424, "
            "Avg post time (ms)=1.143, P90 post time (ms)=3.358, Avg MB per transfer=77.335, "
            "Throughput (MB/s)=4402.389, Avg number of descriptors=426.3"
        ),
        {
            "kv_transfers_total nixl in": 396,
            "kv_transfer_seconds_total nixl in": 396 * 0.001636,
            "kv_transfer_bytes_total nixl in": round(396 * 77.335 * 2**20),
        },
    ),
    "several before 0.31": (
        (
            "NixlConnector={'Num successful transfers': 2, 'Avg xfer time (ms)': np.float64(1.5), "
            "'Avg post time (ms)': np.float64(nan), 'Avg MB per transfer': np.float64(4.0)}"
        ),
        {
            "kv_transfers_total nixl in": 2,
            "kv_transfer_seconds_total nixl in": 0.003,
            "kv_transfer_bytes_total nixl in": 8 * 2**20,
        },
    ),
}


def test_two_connectors_of_one_shape_are_added_up():
    """A server that pulls from some and pushes to others by NIXL prints both alike, and neither hides the other."""
    one = (
        "{'Num successful transfers': 2, 'Avg xfer time (ms)': 1.5, 'Avg post time (ms)': 1, 'Num failed transfers': 3}"
    )
    (event,) = parse_kv_transfers(f"KV Transfer metrics: NixlConnector={one}, NixlPushConnector={one}")

    counted = flat(event.counts)
    assert counted["kv_transfers_total nixl in"] == 4
    assert counted["kv_transfer_failures_total nixl transfer"] == 6


@pytest.mark.parametrize(("text", "counted"), OLDER_LINES.values(), ids=OLDER_LINES)
def test_lines_of_older_releases(text, counted):
    """NIXL's first line was a number alone, and several connectors printed numpy's numbers."""
    (event,) = parse_kv_transfers(f"KV Transfer metrics: {text}")

    assert flat(event.counts) == pytest.approx(counted)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("", ["stats_unparsed"]),
        ("no pairs here", ["stats_unparsed"]),
        ("load_submitted=5, load_completed=-3", ["value_out_of_range", "stats_unparsed"]),
        ("HiSparse host KV cache usage %=150.0", ["value_out_of_range", "stats_unparsed"]),
    ],
)
def test_lines_that_cannot_be_read_are_counted(text, kinds):
    """A line without values, and one out of range, is no event."""
    found = parse_kv_transfers(f"KV Transfer metrics: {text}")

    assert [event.kind for event in found if isinstance(event, Notice)] == kinds
    assert len(found) == len(kinds)


def test_keys_of_a_later_connector_are_named():
    """A key that no connector is known to print is named if it looks like a name, and the others are read."""
    (event,) = parse_kv_transfers("KV Transfer metrics: Num later things=5, <b>=6, load_submitted=5, load_completed=4")

    assert flat(event.counts) == {"kv_transfers_total umbp in": 4}
    assert event.unknown_fields == ("Num later things", "unnamed")


def test_deprecated_names_are_not_counted_twice():
    """Where a page has a family's new and its deprecated name, the new one counts; else the deprecated, of all pids."""
    kv, _ = kv_of(
        page(
            f'vllm:kv_offload_total_bytes_total{{{LABELS},transfer_type="CPU_to_GPU",pid="1"}} 5',
            f'vllm:kv_offload_total_bytes_total{{{LABELS},transfer_type="CPU_to_GPU",pid="2"}} 6',
            f'vllm:kv_offload_total_bytes_total{{{LABELS},transfer_type="GPU_to_CPU"}} 7',
            f"vllm:kv_offload_store_bytes_total{{{LABELS}}} 7",
        )
    )

    assert flat(kv.counters) == {
        "kv_transfer_bytes_total kv_offload in": 11,
        "kv_transfer_bytes_total kv_offload out": 7,
    }


def test_a_new_release_has_both_names():
    """The recorded page of 0.32.0 has the deprecated families beside the new ones: the case above is real."""
    body = BODIES["metrics_kv_offload-0.32.0_1.txt"]

    assert b"vllm:kv_offload_total_bytes_total{" in body
    assert b"vllm:kv_offload_load_bytes_total{" in body


def test_lmcache_belongs_to_the_only_engine():
    """LMCache names no engine, and the model by another name: its values are those of the only engine, or of none."""
    lines = (
        'lmcache:num_lookup_tokens_total{model_name="/models/m",worker_id="0"} 8',
        'lmcache:local_cache_usage{model_name="/models/m"} 64',
    )
    lone, _ = kv_of(page(*lines))
    two = read_metrics(page(*lines, 'vllm:num_requests_running{model_name="m",engine="1"} 1').encode())

    assert flat(lone.counters) == {"kv_tier_queries_total lmcache lmcache": 8}
    assert flat(lone.gauges) == {"kv_offload_used_bytes lmcache cpu": 64}
    assert len(two.engines) == 2
    assert not any(engine.kv.counters for engine in two.engines.values())


def test_a_page_of_lmcache_alone_is_no_servers():
    """The own page of LMCache is another program's, although some of its names are read on vLLM's."""
    assert read_metrics(b'lmcache:num_lookup_tokens_total{model_name="m"} 8\n') == Unreadable("lmcache")


def test_values_out_of_range_are_left_out_and_counted():
    """A share above 1 and a negative count are no values."""
    kv, wrong = kv_of(
        page(
            f"vllm:kv_offload_cpu_cache_usage_perc{{{LABELS}}} 50",
            f"vllm:nixl_num_kv_expired_reqs_total{{{LABELS}}} -1",
            f"vllm:nixl_num_failed_transfers_total{{{LABELS}}} NaN",
        )
    )

    assert not kv.counters
    assert not kv.gauges
    assert wrong == {"kv_offload_usage_ratio": 1, "kv_expired_requests_total": 1, "kv_transfer_failures_total": 1}


def test_a_sum_with_a_part_that_is_no_value_is_none():
    """Misses alone are not what was looked for, and the jobs of one tier not those of all."""
    kv, _ = kv_of(
        page(
            f"vllm:hisparse_cache_hits_total{{{LABELS}}} NaN",
            f"vllm:hisparse_cache_misses_total{{{LABELS}}} 3",
            f'vllm:kv_offload_tiering_active_promotion_jobs{{{LABELS},tier="1:fs"}} -3',
            f'vllm:kv_offload_tiering_active_promotion_jobs{{{LABELS},tier="2:obj"}} 2',
        )
    )

    assert not kv.counters
    assert not kv.gauges


def test_unknown_tiers_and_outcomes_make_no_labels():
    """A tier of a plug-in is `other`, and an operation that is not known is left out."""
    kv, _ = kv_of(
        page(
            f'vllm:kv_offload_tiering_chunk_hits_total{{{LABELS},tier="3:/home/me"}} 4',
            f'vllm:umbp_transfer_bytes_total{{{LABELS},operation="/home/me"}} 4',
        )
    )

    assert flat(kv.counters) == {"kv_tier_hits_total kv_offload other": 4}


def test_requests_that_fetch_are_counted_by_stage():
    """The stages of vLLM 0.32 and later."""
    kv, _ = kv_of(
        page(
            *(
                f'vllm:num_requests_kv_fetch_by_stage{{{LABELS},stage="{stage}"}} {at}'
                for at, stage in enumerate(KV_FETCH_STAGES)
            )
        )
    )

    assert flat(kv.gauges) == {f"kv_fetch_requests {stage}": at for at, stage in enumerate(KV_FETCH_STAGES)}


@pytest.mark.parametrize("value", ["nan", "inf", "1e400"])
def test_a_mean_that_is_no_number_is_left_out(value):
    """A mean of nothing, which vLLM prints as it is, costs neither the other values of its line nor the lines after."""
    text = f"Num successful transfers=2, Avg MB per transfer={value}, Avg xfer time (ms)=250.0, Avg post time (ms)=1.0"
    event = parse_line(f"INFO 11-21 02:35:10 [metrics.py:106] KV Transfer metrics: {text}".encode()).events[0]

    counted = flat(event.counts)
    assert counted["kv_transfers_total nixl in"] == 2
    assert counted["kv_transfer_seconds_total nixl in"] == 0.5
    assert "kv_transfer_bytes_total nixl in" not in counted
