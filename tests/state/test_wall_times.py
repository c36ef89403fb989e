# SPDX-License-Identifier: Apache-2.0
"""A snapshot's times are the wall clock's, however far that is ahead of the time that the state is kept by (T30)."""

from __future__ import annotations

import pytest

from tests.state.test_sources_together import Server
from tests.support.recordings import bodies_of, log_of

from vllm_watch.daemon.exposition.samples import server_samples


DAY = 86_400.0
BY_OUR_CLOCK = {"last_token_timestamp_seconds", "source_last_reading_timestamp_seconds"}


@pytest.mark.parametrize(("has_log", "has_metrics"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("ahead", [DAY, -DAY])
def test_every_time_of_a_snapshot_is_ahead(has_log, has_metrics, ahead):
    """Each sample's time, and each value that is a time by our clock, is ahead; everything else is the same."""
    server = Server(has_log, has_metrics, slo={"slo_time_to_first_token_seconds": 0.5}, probe_every=60.0)
    server.log(*log_of("acceptance").splitlines())
    for page in bodies_of("acceptance")[55:65]:  # While it drafts.
        server.scrape(page, after=5.0)
    before = list(server_samples(server.state.snapshot(server.now)))
    after = list(server_samples(server.state.snapshot(server.now, ahead)))
    clocked = BY_OUR_CLOCK | (set() if has_metrics else {"server_start_timestamp_seconds"})

    assert len(before) > 40
    assert [each._replace(at=each.at + ahead) for each in before if each.name not in clocked] == [
        each for each in after if each.name not in clocked
    ]
    assert [each.value + ahead for each in before if each.name in clocked] == [
        each.value for each in after if each.name in clocked
    ]
    assert clocked & {each.name for each in before}
