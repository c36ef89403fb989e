# SPDX-License-Identifier: Apache-2.0
"""The Prometheus in which the dashboards are proved holds what a real one would."""

from __future__ import annotations

import pytest

from tests.alerts.replay import fired
from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, RECORDINGS, SECOND_ADDRESS, TESTED, WATCHED_TWICE, DataError, fill

from vllm_watch.daemon.catalog.series import DAEMON


AFTER = 20
"""Seconds after which nothing of a series is shown any more, a little more than the look back."""


@pytest.mark.parametrize("name", TESTED)
def test_a_recording_is_in_its_span_and_nowhere_else(prometheus, name):
    """Between its start and its end a server is watched, before and after that it is not."""
    api, span = Api(prometheus.url), prometheus.spans[name]
    for at, is_watched in ((span.start - 1, 0), (span.start, 1), (span.end, 1), (span.end + AFTER, 0)):
        assert is_watched == len(api.instant(f'vllm_watch_source_up{{server="{name}",source="log"}}', at))


@pytest.mark.parametrize("name", ["day", "stall", "rejections"])
def test_alerts_are_those_of_the_replay(prometheus, name):
    """ALERTS says of a recording what the replay of its incident says, but of GPUs, which are made up here."""
    span = prometheus.spans[name]
    expr = f'ALERTS{{alertstate="firing",server="{name}"}}'
    names = {series.labels["alertname"] for series in Api(prometheus.url).range(expr, span.start, span.end, 15)}
    shown = {alert for alert in names if not alert.startswith("Gpu")}
    assert {alert.alertname for alert in fired([RECORDINGS[name]], has_slo=True)[name]} == shown


def test_the_daemon_tells_of_itself(prometheus):
    """All that a daemon of configured servers says of itself is there, and the scrape and its process, too."""
    found = Api(prometheus.url).instant(f'{{instance="{DAEMON_ADDRESS}",server=~"|day"}}', prometheus.spans["day"].end)
    names = {series.labels["__name__"] for series in found}
    beside = {"up", "scrape_duration_seconds", "scrape_samples_scraped", "process_resident_memory_bytes"}
    of_discovery = {"vllm_watch_discovery_hanging_processes"}
    own = {series.full_name for series in DAEMON.series if series.feature is None}
    assert own - of_discovery | beside <= names


def test_the_fleet_is_all_servers_at_once(prometheus):
    """At the fleet's end every recording's server is there, one of them at two daemons, and has started before."""
    api, end = Api(prometheus.url), prometheus.spans["fleet"].end
    watched = [(each.labels["server"], each.labels["instance"]) for each in api.instant("vllm_watch_server_info", end)]
    assert sorted([*((name, DAEMON_ADDRESS) for name in RECORDINGS), (WATCHED_TWICE, SECOND_ADDRESS)]) == sorted(
        watched
    )
    ages = api.instant("time() - vllm_watch_server_start_timestamp_seconds", end)
    assert all(0 < age < 3600 for series in ages for age in series.values.values())


def test_recorded_series_are_there(prometheus):
    """What the rules record is there, also what is recorded from recorded series."""
    span = prometheus.spans["queue"]
    found = Api(prometheus.url).range('{__name__=~"engine:.+"}', span.start, span.end, 15)
    names = {series.labels["__name__"] for series in found}
    assert {"engine:vllm_watch_batch_full_ratio:max1m", "engine:vllm_watch_queue_time_seconds:p95_2m"} <= names


def test_a_folder_with_something_else_is_refused(tmp_path):
    """Data are written into an empty folder only, and taken for what they are."""
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataError, match="is not empty"):
        fill(tmp_path, ["day"])
    (tmp_path / "spans.yml").write_text("day: [0, 1]")
    assert {"day": (0, 1)} == fill(tmp_path, ["day"])
    with pytest.raises(DataError, match="has day, and not what is asked for"):
        fill(tmp_path, ["stall"])
