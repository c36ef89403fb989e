# SPDX-License-Identifier: Apache-2.0
"""What the dashboard of one server shows of its requests, with a page and without one."""

from __future__ import annotations

import pytest

from tests.dashboards.replayed import given


pytestmark = pytest.mark.needs_tool("promtool")

UID = "vllm-watch-server"
STEPS = 60
SERVER = 'instance="a:1",job="vllm-watch",server="s"'
BY_LOG = {
    f'vllm_watch_http_requests_total{{{SERVER},method="POST",handler="/v1/completions",code="{code}"}}': [
        str(step * each) for step in range(STEPS)
    ]
    for code, each in (("200", 10), ("400", 5))
}
BY_PAGE = {
    f'vllm_watch_requests_finished_total{{{SERVER},model_name="m",engine="0",reason="stop"}}': [
        str(step * 20) for step in range(STEPS)
    ]
}


def last(title, query, series):
    """Return the values of a panel's query at the end."""
    return list(list(given(UID, title, query, series, STEPS).values())[-1].values())


@pytest.mark.parametrize(("panel", "query"), [("QPS", "finished"), ("Requests", "finished")])
def test_the_access_log_stands_in_for_the_page(panel, query):
    """From the log alone completions answered with 2xx are the requests; where there is a page it alone counts."""
    (alone,) = last(panel, query, BY_LOG)
    (both,) = last(panel, query, {**BY_LOG, **BY_PAGE})
    (page,) = last(panel, query, BY_PAGE)

    assert alone > 0
    assert both == page == pytest.approx(2 * alone)
