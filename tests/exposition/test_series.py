# SPDX-License-Identifier: Apache-2.0
"""What is shown agrees with its documentation and with Prometheus' conventions."""

from __future__ import annotations

import re
import subprocess

from pathlib import Path

import pytest

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.support.exposition import exported
from tests.support.pages import page_of_further_families
from tests.support.recordings import RECORDINGS, snapshots
from tests.support.waiting import SECONDS

from vllm_watch.daemon.catalog.series import GROUPS, SERIES
from vllm_watch.daemon.exposition.samples import server_samples


ROOT = Path(__file__).parents[2]


def at_second(name, second):
    """Return what is known at a second of a recording."""
    return next(snapshot for moment, snapshot in snapshots(name) if moment >= second)


def page(*shown, for_openmetrics=False):
    """Return the daemon's page with these snapshots."""
    return exported(*shown, for_openmetrics=for_openmetrics).decode()


def test_names_and_families_are_unique():
    """E1: no two series have the same name, nor in OpenMetrics a counter's without its _total that of another."""
    assert len(SERIES) == sum(len(group.series) for group in GROUPS)
    assert len(SERIES) == len({series.family for series in SERIES.values()})


@pytest.mark.parametrize("series", SERIES.values(), ids=lambda series: series.name)
def test_series_follow_the_conventions(series):
    """E1: counters and only counters end in _total, names are plain, every series says what it is."""
    assert re.fullmatch(r"[a-z][a-z0-9_]*", series.name)
    assert (series.type == "counter") == series.name.endswith("_total")
    assert series.help.endswith(".")
    assert series.sources
    assert "type" not in series.labels
    assert not series.name.endswith(("_count", "_sum", "_bucket", "_ms", "_percent"))


@pytest.mark.parametrize("name", RECORDINGS)
def test_everything_shown_is_documented(name):
    """No recording ever shows a series, or a label, that the table does not have."""
    for _, snapshot in snapshots(name, step=10):
        for sample in server_samples(snapshot):
            assert len(sample.labels) == len(SERIES[sample.name].labels)


NOT_RECORDED = {"gpu", "cost", "kubernetes", "kv connector", "otlp"}
"""What is configured or used in none of the recordings that are read here."""


def test_nearly_everything_documented_is_shown():
    """The recordings show every series but those that need what they do not have."""
    recorded = [snapshot for name in (*RECORDINGS, "adapters") for _, snapshot in snapshots(name, step=10)]
    shown = {sample.name for snapshot in (*recorded, page_of_further_families()) for sample in server_samples(snapshot)}
    needs_more = {
        "external_prefix_cache_hit_ratio",  # A KV connector.
        "refused_values_total",  # Absurd values.
        "unknown_field_total",  # A release of the future.
        "flops_utilization_ratio",  # A configured peak.
        "requests_swapped",  # V0.
        "cpu_kv_cache_usage_ratio",
        "cpu_prefix_cache_hit_ratio",
        "spec_decode_system_efficiency_ratio",
        "spec_decode_emitted_tokens_total",
        "request_params_best_of",
        "api_servers",  # Several API servers.
        "lora_active_unknown_info",
        "server_links_info",  # A configuration.
        "slo_time_to_first_token_seconds",
        "slo_time_per_output_token_seconds",
        "slo_bound_seconds",
        "slo_requests_total",
        "slo_good_requests_total",
        "model_load_seconds",  # A GPU server.
        "model_weights_bytes",
        "max_batched_tokens",  # A server that prints it or was given it.
        "num_speculative_tokens_least",
        "server_config_change_timestamp_seconds",  # Two starts with other flags.
        "log_watch_info",  # A log that grows.
        "probe_success",  # A probe.
        "probe_time_to_first_token_seconds",
        "build_info",  # The daemon's own.
        "config_last_reload_successful",
        "config_last_reload_success_timestamp_seconds",
        "config_reload_failures_total",
        "checkpoint_info",
        "checkpoint_failures_total",
        "collect_errors_total",
        "internal_errors_total",
        "discovery_hanging_processes",
        "heartbeat_timestamp_seconds",
        *(name for name, series in SERIES.items() if series.feature in NOT_RECORDED),
    }

    assert set(SERIES) - needs_more == shown


@pytest.mark.parametrize(("name", "second"), [("day", 250), ("day", 515), ("stall", 130), ("dp1", 90), ("vl", 70)])
def test_pages_are_as_they_were(name, second, request):
    """E2: the page at a chosen second of each recording is, to the letter, the one that was looked at and kept."""
    kept = ROOT / "tests" / "golden" / f"{name}-{second}.prom"
    found = page(at_second(name, second))
    if request.config.getoption("--update-golden"):
        kept.write_text(found, encoding="utf-8")

    assert kept.read_text(encoding="utf-8") == found


@pytest.mark.needs_tool("promtool")
@pytest.mark.parametrize("kept", sorted((ROOT / "tests" / "golden").glob("*.prom")), ids=lambda path: path.stem)
def test_promtool_finds_nothing_wrong(kept):
    """E1: Prometheus' own linter complains of one thing only: a label of a gauge that users know from summaries."""
    command = ["promtool", "check", "metrics"]
    result = subprocess.run(command, input=kept.read_bytes(), capture_output=True, check=False, timeout=SECONDS)
    accepted = 'vllm_watch_latency_quantile_seconds non-summary metrics should not have "quantile" label'

    assert {accepted} >= set((result.stdout + result.stderr).decode().splitlines())


@pytest.mark.parametrize("name", RECORDINGS)
def test_openmetrics_is_strictly_valid(name):
    """E1: the page in OpenMetrics is read by a strict parser, and says the same as the text format."""
    snapshot = at_second(name, 70)

    def values(families):
        return {
            (sample.name, frozenset((k, float(v) if k == "le" else v) for k, v in sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    strict = values(parse_openmetrics(page(snapshot, for_openmetrics=True)))

    assert values(parse_text(page(snapshot))) == strict


def test_configured_labels_stand_on_every_series_of_their_server():
    """A server's own labels are on all its series; another server's have the name with no value."""
    labelled = at_second("vl", 70)._replace(name="a", labels={"team": "search"})
    other = at_second("vl", 70)._replace(name="b")
    families = list(parse_text(page(labelled, other)))

    teams = {(s.labels["server"], s.labels["team"]) for family in families for s in family.samples}
    assert {("a", "search"), ("b", "")} == teams
