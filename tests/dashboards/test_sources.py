# SPDX-License-Identifier: Apache-2.0
"""Whether the data can be trusted: the worst source first, with why and what to do in words, and all doubts counted."""

from __future__ import annotations

import pytest

from tests.dashboards.api import Api
from tests.dashboards.loaded import RECORDINGS, TESTED, Span
from tests.dashboards.panels import ALL
from tests.dashboards.replayed import given
from tests.dashboards.shipped import dashboard
from tests.dashboards.shown import shown, words

from vllm_watch.daemon.catalog.reasons import BY_SOURCE


pytestmark = pytest.mark.needs_tool("prometheus", "promtool")

UID = "vllm-watch-sources"
TABLE = "Sources of all servers, the worst first"
COUNTS = "Sources of all servers, by verdict"
DOUBTS = "Doubts about the selected servers, all 0 if well"
OVER_TIME = "What each source said"
WORST, BEST = "server in trouble", "trusted"
STEPS = 12 * 20
TARGET = 'instance="a:1",job="vllm-watch"'


def rows(found):
    """Return the table's rows as they are sorted: server, source, verdict, why and what to do."""
    verdicts = sorted(
        (each for each in found[TABLE] if each.name == "Verdict"),
        key=lambda each: (-each.value, each.labels["server"], each.labels["source"]),
    )
    names = words(UID, TABLE, "Verdict")
    why, todo = words(UID, TABLE, "Why"), words(UID, TABLE, "What to do")
    return [
        (
            each.labels["server"],
            each.labels["source"],
            names[f"{each.value:g}"],
            why[each.labels["why"]],
            todo[each.labels["todo"]],
        )
        for each in verdicts
    ]


def colors(title):
    """Return the colours of a timeline's values by their words."""
    (panel,) = (panel for panel in dashboard(UID)["panels"] if panel["title"] == title)
    return {
        result["text"]: result["color"]
        for mapping in panel["fieldConfig"]["defaults"]["mappings"]
        for result in mapping["options"].values()
    }


def test_a_stalled_engine_stands_first_and_looks_like_it(prometheus):
    """While the log has fallen silent with requests it is the first row, an alarm, and it is said what to do."""
    start, _ = prometheus.spans["stall"]
    found = shown(prometheus, UID, "stall", Span(start, start + 170))
    (first, *others) = rows(found)

    assert first == (
        "stall",
        "log",
        WORST,
        "the last line had requests and no tokens, then silence",
        "open the server: see its state and alerts",
    )
    assert [(source, verdict, todo) for _, source, verdict, _, todo in others] == [("metrics", BEST, "nothing")]
    assert colors(OVER_TIME)[first[3]] == "#D55E00"


def test_over_a_fleet_the_worst_is_first_whichever_server_is_chosen(prometheus):
    """All servers' sources are listed, those that need somebody first, and counted by their verdicts."""
    found = shown(prometheus, UID, "day", prometheus.spans["fleet"])
    listed = rows(found)
    order = list(words(UID, TABLE, "Verdict").values())
    counts = {each.name: each.value for each in found[COUNTS]}

    assert {server for server, *_ in listed} == set(RECORDINGS)
    assert [order.index(verdict) for _, _, verdict, *_ in listed] == sorted(
        (order.index(verdict) for _, _, verdict, *_ in listed), reverse=True
    )
    assert ("dead", "metrics", "cannot be read") in {
        (server, source, verdict) for server, source, verdict, *_ in listed
    }
    assert counts == {name: sum(verdict == name for _, _, verdict, *_ in listed) for name in order}


def test_a_healthy_server_leaves_no_doubt(prometheus):
    """Where all is well every source is trusted or has nothing to report, and no doubt is above 0."""
    found = shown(prometheus, UID, "busy", prometheus.spans["busy"])

    assert {verdict for _, _, verdict, *_ in rows(found)} <= {BEST, "nothing to report"}
    assert {each.name: each.value for each in found[DOUBTS]} == {
        "not understood": 0,
        "disagreements": 0,
        "missing": 0,
        "vllm-watch unwell": 0,
    }


@pytest.mark.parametrize("name", TESTED)
def test_each_source_says_what_it_is_in_words(prometheus, name):
    """Over a recording there is one line for each source, and words for each of its values."""
    (panel,) = (panel for panel in dashboard(UID)["panels"] if panel["title"] == OVER_TIME)
    start, end = prometheus.spans[name]
    expr = panel["targets"][0]["expr"].replace("$server", name).replace("$daemon", ".*")
    found = Api(prometheus.url).range(expr, start, end, 15)

    assert sorted(series.labels["source"] for series in found) == ["log", "metrics"]
    assert {f"{value:g}" for series in found for value in series.values.values()} <= set(words(UID, OVER_TIME))


def test_every_reason_has_words():
    """Each reason of each source has its own words in the table and over time, in its verdict's colour."""
    reasons = {f"{source}:{code}" for source, of_source in BY_SOURCE.items() for code in of_source}
    assert set(words(UID, TABLE, "Why")) == reasons
    assert len(words(UID, OVER_TIME)) == len(reasons)
    assert sorted(words(UID, OVER_TIME).values()) == sorted(words(UID, TABLE, "Why").values())


def info(server, source, reason, since=0):
    """Return a reason of a source, from a step on."""
    labels = f'{TARGET},server="{server}",source="{source}",reason="{reason}"'
    return {f"vllm_watch_source_info{{{labels}}}": ["_"] * since + ["1"] * (STEPS - since)}


def at_end(title, name, series):
    """Return what a query gives at the end: labels and a value."""
    found = list(given(UID, title, name, series, STEPS).values())[-1]
    return [(dict(labels), value) for labels, value in found.items()]


def test_of_two_reasons_the_worse_is_shown():
    """While an old reason is still there beside a new one a source has one row, that of the worse."""
    both = {**info("s", "log", "ok"), **info("s", "log", "stalled", since=10), **info("t", "metrics", "refused")}
    found = {labels["server"]: labels["why"] for labels, _ in at_end(TABLE, "Verdict", both)}
    over_time = {
        labels["server"]: words(UID, OVER_TIME)[f"{value:g}"] for labels, value in at_end(OVER_TIME, "{{_row}}", both)
    }

    assert found == {"s": "log:stalled", "t": "metrics:refused"}
    assert over_time == {
        "s": "the last line had requests and no tokens, then silence",
        "t": "nothing listens at this address",
    }


@pytest.mark.parametrize(("before", "after", "count"), [(None, 3, 3), (2, 2, 0), (2, 5, 3)])
def test_what_is_not_understood_counts_in_the_range(before, after, count):
    """What was counted before the time range is no doubt about it; a counter that begins in it counts from 0."""
    values = ["_" if before is None else str(before)] * (STEPS - 30) + [str(after)] * 30
    series = {f'vllm_watch_refused_values_total{{{TARGET},server="s",source="log",quantity="x"}}': values}
    assert [value for _, value in at_end(DOUBTS, "not understood", series)] == [count]


WELL = {
    f'vllm_watch_build_info{{{TARGET},version="1"}}': ["1"] * STEPS,
    f"up{{{TARGET}}}": ["1"] * STEPS,
    f"vllm_watch_config_last_reload_successful{{{TARGET}}}": ["1"] * STEPS,
    f'vllm_watch_heartbeat_timestamp_seconds{{{TARGET},thread="main"}}': [str(5 * step) for step in range(STEPS)],
}


@pytest.mark.parametrize(
    ("wrong", "count"),
    [
        ({}, 0),
        ({f"up{{{TARGET}}}": ["1"] * (STEPS - 30) + ["0"] * 30}, 1),
        ({f"vllm_watch_config_last_reload_successful{{{TARGET}}}": ["0"] * STEPS}, 1),
        ({f'vllm_watch_heartbeat_timestamp_seconds{{{TARGET},thread="main"}}': ["0"] * STEPS}, 1),
    ],
)
def test_a_daemon_that_is_not_well_is_a_doubt(wrong, count):
    """One that is gone, that rejected its configuration, or that hangs is counted; one that is well is not."""
    assert [value for _, value in at_end(DOUBTS, "vllm-watch unwell", {**WELL, **wrong})] == [count]


def test_where_nothing_is_watched_no_doubt_is_denied(prometheus):
    """When no daemon has been there neither verdicts nor doubts are counted: 0 would say that all is well."""
    end = max(span.end for span in prometheus.spans.values()) + 3600
    found = shown(prometheus, UID, "day", Span(end - 300, end))
    assert found[COUNTS] == found[DOUBTS] == []


def test_all_of_the_fleet_can_be_chosen(prometheus):
    """With all servers chosen every query of the first row is answered, too."""
    found = shown(prometheus, UID, ALL, prometheus.spans["fleet"])
    assert found[TABLE]
    assert len(found[DOUBTS]) == 4
