# SPDX-License-Identifier: Apache-2.0
"""The fleet's table has every server, also one that nothing is heard of any more, in the order of what to do first."""

from __future__ import annotations

import pytest

from tests.alerts.replay import STEP
from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, RECORDINGS, SECOND_ADDRESS, WATCHED_TWICE, Span
from tests.dashboards.panels import ALL, WIDTH, opened, panels_of, sent_by
from tests.dashboards.proof import failures
from tests.dashboards.shipped import dashboard
from tests.dashboards.shown import words

from vllm_watch.daemon.catalog.states import BEST_TO_WORST


FLEET = dashboard("vllm-watch-fleet")
TABLE = "Servers, the worst first"


def answers(prometheus, span, title):
    """Return what each of a panel's targets gives at the end of a time range, for all servers."""
    api = Api(prometheus.url)
    view = opened(FLEET, api, span, {"server": ALL})
    (panel,) = (panel for panel in panels_of(FLEET) if panel["title"] == title)
    return [api.instant(sent.expr, sent.end) for sent in sent_by(panel, view)]


def states(prometheus, span):
    """Return the state that the table shows of each server and address."""
    named = words("vllm-watch-fleet", TABLE, "State")
    return {server: named[f"{place:g}"] for server, place in column(prometheus, span, "State").items()}


def column(prometheus, span, name):
    """Return what a column of the table has for each server and address."""
    (panel,) = (panel for panel in panels_of(FLEET) if panel["title"] == TABLE)
    (target,) = (at for at, each in enumerate(panel["targets"]) if each["legendFormat"] == name)
    return {
        (series.labels["server"], series.labels["instance"]): value
        for series in answers(prometheus, span, TABLE)[target]
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
    assert "serving" == shown["dp1", DAEMON_ADDRESS]


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


@pytest.mark.parametrize("seconds", [550, 625, 700])
def test_a_critical_alert_lifts_a_server(prometheus, seconds):
    """A server with a firing critical alert stands above all that are better than saturated, whatever its state."""
    start, _ = prometheus.spans["fleet"]
    span = Span(start, start + seconds)
    place, critical = column(prometheus, span, "State"), column(prometheus, span, "Critical")
    states_then, saturated = states(prometheus, span), BEST_TO_WORST.index("saturated")
    better = {server for server, state in states_then.items() if BEST_TO_WORST.index(state) < saturated}
    assert better & set(critical)
    assert better - set(critical)
    assert min(place[server] for server in critical) > max(place[server] for server in better - set(critical))
    assert min(place[server] for server in set(place) - better) > max(place[server] for server in better)


@pytest.mark.parametrize("seconds", [320, 550, 700])
def test_for_is_since_the_state_changed(prometheus, seconds):
    """The column "For" is the time since the last sample with another state, to a step; "> range" if there is none."""
    start, _ = prometheus.spans["fleet"]
    span = Span(start, start + seconds)
    found = column(prometheus, span, "For")
    # One is idle, and one that is just there starts, at every scrape so far: since when is not known.
    unknown = {320: {"prefill"}, 550: {"prefill", "adapters"}, 700: set()}[seconds]
    assert set(found) == {key for key in states(prometheus, span) if key[0] not in unknown}
    short = column(prometheus, Span(span.end - 4 * STEP, span.end), "For")
    for (name, address), shown in found.items():
        since = since_other_state(prometheus, name, address, span)
        assert since == pytest.approx(shown, abs=2 * STEP) if since is not None else shown == -1
        assert (short[name, address] == -1) or (since is not None and since < 6 * STEP)
    assert -1 in short.values()
    assert words("vllm-watch-fleet", TABLE, "For") == {"-1": "> range"}


def since_other_state(prometheus, name, address, span):
    """Return the seconds since a server of one engine was last in another state than at the end, if it ever was."""
    chosen = f'vllm_watch_engine_state{{server="{name}",instance="{address}"}} == 1'
    found = {
        at: series.labels["state"]
        for series in Api(prometheus.url).range(chosen, span.start, span.end, STEP)
        for at in series.values
    }
    others = [at for at, state in found.items() if state != found[max(found)]]
    assert others or min(found) == span.start
    return max(found) - max(others) if others else None


def letter_width(letter):
    """Return about how many pixels a letter of a heading has."""
    return 9.5 if letter.isupper() else 4.7 if letter in " -/filrt" else 8.4


def test_the_table_fits_the_window():
    """At 1280 px all columns are there without scrolling, and no heading is cut; some share what others leave."""
    (panel,) = (panel for panel in panels_of(FLEET) if panel["title"] == TABLE)
    properties = {
        each["matcher"]["options"]: {part["id"]: part.get("value") for part in each["properties"]}
        for each in panel["fieldConfig"]["overrides"]
    }
    shown = {name: each.get("custom.width") for name, each in properties.items() if not each.get("custom.hidden")}
    room = WIDTH - 50 - sum(filter(None, shown.values()))  # Margins of the page and of the panel.
    share = room / list(shown.values()).count(None)
    sorted_by = {each["displayName"] for each in panel["options"]["sortBy"]}
    for name, width in shown.items():
        arrow = 18 if name in sorted_by else 0
        assert sum(map(letter_width, name)) + 8 + arrow <= (width or share), name
