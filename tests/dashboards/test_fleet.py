# SPDX-License-Identifier: Apache-2.0
"""The fleet's table has every server, also one that nothing is heard of any more."""

from __future__ import annotations

from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, RECORDINGS, SECOND_ADDRESS, WATCHED_TWICE, Span
from tests.dashboards.panels import ALL, opened, panels_of, sent_by
from tests.dashboards.proof import failures
from tests.dashboards.shipped import dashboard

from vllm_watch.catalog.states import BEST_TO_WORST


FLEET = dashboard("vllm-watch-fleet")


def answers(prometheus, span, title):
    """Return what each of a panel's targets gives at the end of a time range, for all servers."""
    api = Api(prometheus.url)
    view = opened(FLEET, api, span, {"server": ALL})
    (panel,) = (panel for panel in panels_of(FLEET) if panel["title"] == title)
    return [api.instant(sent.expr, sent.end) for sent in sent_by(panel, view)]


def states(prometheus, span):
    """Return the state that the table shows of each server and address."""
    found, *_ = answers(prometheus, span, "Servers, the worst first")
    return {
        (series.labels["server"], series.labels["instance"]): BEST_TO_WORST[int(value) - 1]
        for series in found
        for value in series.values.values()
    }


def test_every_server_has_a_row(prometheus):
    """Each server of each daemon stands in the table once, two of one name by their addresses."""
    everywhere = {*((name, DAEMON_ADDRESS) for name in RECORDINGS), (WATCHED_TWICE, SECOND_ADDRESS)}
    assert everywhere == set(states(prometheus, prometheus.spans["fleet"]))


def test_a_server_that_vanished_is_unknown(prometheus):
    """A server that its daemon, still a target, showed within the hour and does not any more is in the table."""
    shown = states(prometheus, prometheus.spans["dp1"])
    assert "unknown" == shown["day", DAEMON_ADDRESS]
    assert "idle" == shown["dp1", DAEMON_ADDRESS]


def test_every_server_is_counted_by_one_state(prometheus):
    """The figures above the table add up to its rows."""
    span = prometheus.spans["fleet"]
    counts = [value for (series,) in answers(prometheus, span, "Servers by state") for value in series.values.values()]
    assert len(BEST_TO_WORST) == len(counts)
    assert len(states(prometheus, span)) == sum(counts)


def test_the_engines_stand_in_the_order_of_the_table(prometheus):
    """The timeline's first line is that of the engine that is worst at the end, and what is not shown then is last."""
    end = next(each.at for each in failures(prometheus) if each.state == "stalled")
    api = Api(prometheus.url)
    view = opened(FLEET, api, Span(prometheus.spans["fleet"].start, end), {"server": ALL, "daemon": DAEMON_ADDRESS})
    (panel,) = (panel for panel in panels_of(FLEET) if panel["title"] == "State of each engine")
    (sent,) = sent_by(panel, view)
    rows = api.range(sent.expr, sent.start, sent.end, sent.step)
    at_end = [row.values.get(max(row.values)) if max(row.values) == sent.end else 0 for row in rows]
    assert BEST_TO_WORST[int(at_end[0]) - 1] in {"stalled", "down"}
    assert sorted(at_end, reverse=True) == at_end
