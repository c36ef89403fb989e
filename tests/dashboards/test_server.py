# SPDX-License-Identifier: Apache-2.0
"""What the dashboard of one server shows of its requests, and whether its users wait longer than usual."""

from __future__ import annotations

import re

import pytest

from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, FLEET, Span
from tests.dashboards.panels import opened, panels_of, sent_by
from tests.dashboards.proof import color_of
from tests.dashboards.replayed import given
from tests.dashboards.shipped import dashboard
from tests.dashboards.shown import shown

from boards.kit.palette import BAD, WARNING


pytestmark = pytest.mark.needs_tool("promtool")

UID = "vllm-watch-server"
BOARD = dashboard(UID)
(RATIO,) = (panel for panel in panels_of(BOARD) if panel["title"] == "TTFT ratio")
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


def times_usual(prometheus, server):
    """Return by time how many times its usual TTFT a server's is, as if it had no objective, with its state."""
    api, span = Api(prometheus.url), prometheus.spans[FLEET]
    view = opened(BOARD, api, span, {"server": server, "daemon": DAEMON_ADDRESS})
    _, usual = sent_by(RATIO, view)
    assert "vllm_watch_slo_time_to_first_token_seconds" in usual.expr
    assert [] == api.instant(usual.expr, span.end)
    alone = usual.expr.replace("vllm_watch_slo_time_to_first_token_seconds", "vllm_watch_nothing")
    states = api.range(f'vllm_watch_engine_state{{server="{server}",instance="{DAEMON_ADDRESS}"}} == 1', *span, 15)
    state_at = {at: series.labels["state"] for series in states for at in series.values}
    return [(state_at.get(at), value) for series in api.range(alone, *span, 15) for at, value in series.values.items()]


def steps_of(color):
    """Return from which multiple of its usual TTFT a server's is shown in a colour."""
    return next(times for times in range(1, 100) if color_of(RATIO, RATIO["targets"][1], times) == color)


@pytest.mark.parametrize("server", ["acceptance", "busy"])
def test_a_healthy_server_is_as_fast_as_usual(prometheus, server):
    """A server without an objective has no colour while nothing is wrong with it: its TTFT is that of its past."""
    found = times_usual(prometheus, server)
    assert len(found) > 4
    assert max(value for _, value in found) < steps_of(WARNING)


@pytest.mark.parametrize("server", ["fullstall", "sustained"])
def test_a_saturated_server_is_slower_than_usual(prometheus, server):
    """A server without an objective is red once requests wait: its past says what is normal."""
    found = [value for state, value in times_usual(prometheus, server) if state == "saturated"]
    assert len(found) > 4
    assert min(found) >= steps_of(BAD)


def test_figures_are_of_now_in_every_time_range(prometheus):
    """Users who wait since a minute are seen as well in a range of a day or a week as in one of five minutes."""
    end = prometheus.spans["day"].start + 260
    titles = ("TTFT", "TTFT ratio", "QPS", "Success", "Rejected", "TPOT", "E2EL")
    figures = []
    for seconds in (300, 86400, 7 * 86400):
        found = shown(prometheus, UID, "day", Span(end - seconds, end))
        figures.append({title: [each.value for each in found[title]] for title in titles})

    assert figures[0]["TTFT"][1] > 40
    assert figures[0] == figures[1] == figures[2]


@pytest.mark.parametrize(("known", "limits"), [("01", [32]), ("0", [])])
def test_part_of_the_limits_is_no_limit(known, limits):
    """How many requests may run is told where the limit of each engine is known, and not of one of them alone."""
    engines = {engine: f'{SERVER},model_name="m",engine="{engine}"' for engine in "01"}
    series = {f"vllm_watch_requests_running{{{labels}}}": ["16"] * STEPS for labels in engines.values()}
    series |= {f"vllm_watch_max_running_requests{{{engines[engine]}}}": ["16"] * STEPS for engine in known}

    assert last("Running requests", "limit", series) == limits


@pytest.mark.parametrize(("language", "said"), [("en", "answers"), ("zh", "应答")])
def test_an_objective_that_is_not_shown_is_not_called_missing(prometheus, language, said):
    """A stalled server with an objective has blank figures of it, which do not say that none is configured."""
    start, _ = prometheus.spans["stall"]
    board, api, span = dashboard(UID, language), Api(prometheus.url), Span(start, start + 170)
    view = opened(board, api, span, {"server": "stall", "daemon": DAEMON_ADDRESS})
    ids = {panel["id"] for panel in panels_of(BOARD) if panel["title"] in {"Within SLO", "Burn 1 h"}}
    blank = [panel for panel in panels_of(board) if panel["id"] in ids]

    assert api.instant('vllm_watch_slo_time_to_first_token_seconds{server="stall"}', span.end)
    assert [] == [
        series for panel in blank for sent in sent_by(panel, view) for series in api.instant(sent.expr, sent.end)
    ]
    assert len(blank) == 2
    assert all(said in panel["fieldConfig"]["defaults"]["noValue"] for panel in blank)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_description_says_from_when_on_a_server_is_slow(language):
    """What the figure's colours mean stands in its description, in both languages."""
    (panel,) = (panel for panel in panels_of(dashboard(UID, language)) if panel["id"] == RATIO["id"])
    numbers = re.findall(r"\b(\d+) ?(?:x|倍)", panel["description"])
    assert {str(steps_of(color)) for color in (WARNING, BAD)} <= set(numbers)


def test_alerts_are_marked_in_three_panels():
    """Alerts are drawn where they help to see since when: in the state, in what users wait for, and in the queue."""
    (marked,) = (each for each in BOARD["annotations"]["list"] if each["name"] == "Alerts")
    titles = [panel["title"] for panel in panels_of(BOARD) if panel["id"] in marked["filter"]["ids"]]
    assert marked["enable"]
    assert not marked["filter"]["exclude"]
    assert ["State of each engine", "Time to first token (TTFT)", "Waiting requests"] == titles


def strip_of(prometheus, server, seconds):
    """Return the figures that tell since when, by their headings, so many seconds after the fleet began, and all."""
    start, _ = prometheus.spans[FLEET]
    found = shown(prometheus, UID, server, Span(start, start + seconds))
    return {each.name: each.value for each in found["Since when, model, version and limits"]}, found


@pytest.mark.parametrize(("server", "seconds"), [("dead", 620), ("fullstall", 650), ("day", 550)])
def test_it_says_since_when(prometheus, server, seconds):
    """The strip says for how long the state lasts and when the last token was, also of a server that is down."""
    strip, _ = strip_of(prometheus, server, seconds)
    before, _ = strip_of(prometheus, server, seconds - 15)
    assert strip["In state for"] == before["In state for"] + 15
    assert before["In state for"] > 0
    assert 0 <= strip["Last token"] < strip["Since start"]


def test_a_full_server_has_no_room(prometheus):
    """Beside what runs stands how many more requests fit, and that is none while requests wait for the KV cache."""
    _, found = strip_of(prometheus, "day", 550)
    running, room = found["Running"]
    assert (running.name, room.name) == ("running", "room")
    assert running.value > 0
    (waiting,) = found["Waiting"]
    assert waiting.value > 0
    start, _ = prometheus.spans[FLEET]
    (places,) = shown(prometheus, "vllm-watch-capacity", "day", Span(start, start + 550))["Free places"]
    assert room.value == places.value == 0


def test_what_a_dead_server_does_not_do_is_nothing_in_one_word(prometheus):
    """A server that is down has no number where nothing is known, and all those tiles say the same."""
    _, found = strip_of(prometheus, "dead", 620)
    titles = ["Waiting", "Running", "KV cache", "Tokens/s", "TTFT", "TTFT ratio", "Success", "TPOT", "E2EL"]
    assert {title: [] for title in titles} == {title: found[title] for title in titles}
    tiles = [panel for panel in panels_of(BOARD) if panel["title"] in titles and panel["type"] == "stat"]
    assert len(tiles) == len(titles)
    assert {"No data"} == {panel["fieldConfig"]["defaults"]["noValue"] for panel in tiles}


@pytest.mark.parametrize(("server", "engine"), [("dp1", " engine {{engine}}"), ("day", "")])
def test_legends_name_an_engine_where_there_are_several(prometheus, server, engine):
    """A legend says which engine it is of where the server has several, in a word, and nothing where it has one."""
    view = opened(BOARD, Api(prometheus.url), prometheus.spans[server], {"server": server, "daemon": DAEMON_ADDRESS})
    (panel,) = (panel for panel in panels_of(BOARD) if panel["title"] == "Cache hit ratios")
    first, *_ = sent_by(panel, view)
    assert first.legend == f"prefix{engine}"
