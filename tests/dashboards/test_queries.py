# SPDX-License-Identifier: Apache-2.0
"""Every query of every dashboard against a real Prometheus over the recordings; and that a bad one is caught."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.dashboards.api import Api
from tests.dashboards.loaded import DAEMON_ADDRESS, TESTED, Span
from tests.dashboards.panels import ALL, annotations_of, opened, panels_of, sent_by
from tests.dashboards.proof import asked, confused, crowded, empty, errors, failures, reassuring, unreal, wordy
from tests.dashboards.shipped import UIDS, dashboard
from tests.dashboards.small import CHOSEN, small, target
from tests.support.samples import sample
from tests.support.yaml_files import load_yaml

from boards.kit.palette import GOOD


EXCEPTIONS = load_yaml((Path(__file__).parent / "exceptions.yml").read_text(encoding="utf-8"))
RECORDINGS = sample(("day", "vl", "sustained", "rejections"), TESTED)
"""Those that a board is tried on, beside the fleet: each of its targets has data in one of them."""

ALL_NAMED: dict[str, str] = {
    "vllm-watch-fleet": "it is of all servers, and names each also while one is chosen",
    "vllm-watch-sources": "its lines of states are named by their order, server first",
}
"""Boards whose legends name the server though one is chosen, and why."""

NOT_OF_SERVING: dict[str, str] = {
    "vllm-watch-sources": "it tells whether sources are read and vllm-watch is well; a stalled server's log is read",
    "vllm-watch-spec-decode": "it advises by the whole time range",
}
"""Boards that have something green to say while a server serves nobody, and why."""

TWO = ("day", "stall")
EVERY_DASHBOARD = pytest.mark.parametrize("uid", UIDS)


@pytest.fixture(scope="module")
def answers(prometheus):
    """Give what comes of all that a shipped dashboard asks, asked once."""
    return cache(lambda uid: asked(dashboard(uid), prometheus, RECORDINGS))


@EVERY_DASHBOARD
def test_every_query_is_answered(answers, uid):
    """Panels, variables and annotations get answers without an error or a warning over recordings."""
    assert [] == errors(answers(uid))


@EVERY_DASHBOARD
def test_every_target_has_data(prometheus, answers, uid):
    """Every target of every panel has data in some recording, but for those of which it is known why not."""
    assert [] == empty(answers(uid), prometheus, EXCEPTIONS.get(uid, {}))


@EVERY_DASHBOARD
def test_series_can_be_told_apart(answers, uid):
    """In every panel each series has a name of its own, each row of a table keys of its own, and they are not many."""
    assert [] == confused(answers(uid)) + crowded(answers(uid))


@EVERY_DASHBOARD
def test_values_are_numbers_that_the_axis_shows(answers, uid):
    """No panel gets NaN or infinity, and none a value that its axis cuts off."""
    assert [] == unreal(answers(uid))


@EVERY_DASHBOARD
def test_legends_name_a_server_only_where_there_are_several(answers, uid):
    """With one server and one daemon chosen, no legend has the name of either, but where each line has to be named."""
    assert (uid in ALL_NAMED) == bool(wordy(answers(uid)))


@EVERY_DASHBOARD
def test_nothing_is_green_while_a_server_serves_nobody(prometheus, uid):
    """While a server is stalled or down no figure and no cell says in green that all is well."""
    failed = failures(prometheus)
    assert {"stalled", "down"} == {each.state for each in failed}
    assert (uid in NOT_OF_SERVING) == bool(reassuring(dashboard(uid), prometheus, failed, {GOOD}))


def test_exceptions_are_of_dashboards():
    """No exception is left over from a dashboard that is gone."""
    assert set(EXCEPTIONS) <= set(UIDS)


def spoiled(prometheus, expr, legend="{{server}} {{engine}}", **defaults):
    """Return what comes of a small dashboard with one more target in its second panel."""
    made = small()
    panel = made["panels"][2]
    panel["targets"].append(target(expr, legend, "B"))
    panel["fieldConfig"]["defaults"].update(defaults)
    return asked(made, prometheus, TWO)


def test_a_good_dashboard_has_no_faults(prometheus):
    """Nothing is said against a dashboard that is as it should be."""
    found = asked(small(), prometheus, TWO)
    assert [] == errors(found) + empty(found, prometheus, {}) + confused(found) + crowded(found) + unreal(found)


def test_a_query_that_fails_is_caught(prometheus):
    """What Prometheus refuses is told with its own words."""
    found = errors(spoiled(prometheus, f"vllm_watch_requests_running{{{CHOSEN}}} +"))
    assert "day: Waiting: B: 1:108: parse error: unexpected end of input" in found


def test_a_match_that_fails_where_there_are_several_servers_is_caught(prometheus):
    """A query that works for one server and not for several fails over all recordings at once."""
    found = errors(spoiled(prometheus, f"vllm_watch_requests_running{{{CHOSEN}}} / on (job) vllm_watch_build_info"))
    assert any(fault.startswith("fleet: Waiting: B:") and "many-to-" in fault for fault in found)
    assert not any(fault.startswith("day:") for fault in found)


def test_a_legend_with_the_only_server_is_caught(prometheus):
    """A legend that names the server where one is chosen is a fault, and so is one that names the only daemon."""
    made = small()
    made["panels"][2]["targets"][0]["legendFormat"] = "{{instance}} {{engine}}"
    found = wordy(asked(made, prometheus, ["day"]))
    assert ["day: Prompt: A: a legend names day", f"day: Waiting: A: a legend names {DAEMON_ADDRESS}"] == found


def test_a_legend_names_a_server_where_several_are_chosen(prometheus):
    """A hidden variable is a part of a legend where several servers are chosen, and nothing where there is one."""
    made = small()
    variables = dashboard("vllm-watch-server")["templating"]["list"]
    made["templating"]["list"] += [each for each in variables if each["name"] in {"of", "at"}]
    for panel in made["panels"][1:3]:
        panel["targets"][0]["legendFormat"] = "${of}{{engine}}${at}"
    view = {
        place: opened(made, Api(prometheus.url), prometheus.spans["fleet"], {"server": ALL, "daemon": daemon})
        for place, daemon in (("one", DAEMON_ADDRESS), ("all", ALL))
    }
    legends = {place: [sent.legend for sent in sent_by(made["panels"][1], each)] for place, each in view.items()}
    assert {"one": ["{{server}} {{engine}}"], "all": ["{{server}} {{engine}} {{instance}}"]} == legends
    found = asked(made, prometheus, ["day"])
    assert [] == wordy(found) + errors(found) + confused(found)


GREEN = [{"color": "#000000", "value": None}, {"color": GOOD, "value": 0}]


@pytest.mark.parametrize(
    ("kind", "properties"),
    [
        ("stat", [{"id": "thresholds", "value": {"steps": GREEN}}]),
        ("stat", [{"id": "mappings", "value": [{"type": "value", "options": {"1": {"color": GOOD}}}]}]),
        (
            "table",
            [
                {"id": "thresholds", "value": {"steps": GREEN}},
                {"id": "custom.cellOptions", "value": {"type": "color-background"}},
            ],
        ),
    ],
)
def test_green_of_a_server_that_serves_nobody_is_caught(prometheus, kind, properties):
    """A figure or a cell that is green by a threshold or a mapping while a server is stalled or down is a fault."""
    made = small()
    figure = made["panels"][3]["panels"][0]
    figure["targets"][0]["expr"] = f"count(vllm_watch_engine_state{{{CHOSEN}}} == 1)"
    figure["type"] = kind
    found = failures(prometheus)
    assert [] == reassuring(made, prometheus, found, {GOOD})
    figure["fieldConfig"]["overrides"] = [{"matcher": {"id": "byFrameRefID", "options": "A"}, "properties": properties}]
    assert ["down: Waiting now: A is green", "stalled: Waiting now: A is green"] == sorted(
        reassuring(made, prometheus, found, {GOOD})
    )


def test_an_unknown_variable_is_caught(prometheus):
    """A query cannot be asked that refers to a variable that is not there."""
    found = errors(spoiled(prometheus, 'vllm_watch_requests_running{server="$host"}'))
    assert "day: Waiting: ?: there is no variable host" in found


def test_a_variable_without_values_is_caught(prometheus):
    """A variable that has nothing to choose is a fault."""
    made = small()
    made["templating"]["list"][3]["query"]["query"] = "label_values(vllm_watch_engine_state, model)"
    assert "day: variable model: offers no value" in errors(asked(made, prometheus, TWO))


def test_a_target_without_data_is_caught(prometheus):
    """A target that no recording fills is a fault, unless it is known; then it is one if it is filled."""
    found = spoiled(prometheus, f'vllm_watch_engine_state{{{CHOSEN},state="wedged"}}')
    assert ["Waiting: B: no data anywhere"] == empty(found, prometheus, {})
    assert [] == empty(found, prometheus, {"Waiting": {"B": "there is no such state"}})
    assert ["Waiting: A: has data, and is an exception", "Waiting: B: no data anywhere"] == empty(
        found, prometheus, {"Waiting": {"A": "why not"}}
    )
    assert "there is no target Gone: A" in empty(found, prometheus, {"Gone": {"A": "it is gone"}})


def test_what_is_over_before_the_end_counts_as_data(prometheus):
    """A figure of the range's end has data if it has some at any time: a range may end there."""
    made = small()
    expr = f'vllm_watch_engine_state{{{CHOSEN},state="stalled"}} == 1'
    made["panels"][3]["panels"][0]["targets"][0]["expr"] = expr
    assert [] == empty(asked(made, prometheus, TWO), prometheus, {})


def test_series_of_one_name_are_caught(prometheus):
    """Two series with the same name in a panel are a fault, also of two targets, and so is one without a name."""
    found = confused(spoiled(prometheus, f"vllm_watch_requests_running{{{CHOSEN}}}"))
    assert "day: Waiting: two series are named day 0" in found
    found = confused(spoiled(prometheus, f"vllm_watch_requests_running{{{CHOSEN}}}", "{{reason}}"))
    assert "day: Waiting: a series has no name" in found


def table(kept):
    """Return a small dashboard with a table of sources, of whose labels some are kept."""
    made = small()
    panel = made["panels"][2]
    expr = 'vllm_watch_source_up{instance=~"$daemon",server=~"$server"}'
    panel["targets"] = [{**target(expr, ""), "format": "table", "instant": True, "range": False}]
    panel["transformations"] = [{"id": "filterFieldsByName", "options": {"include": {"names": kept}}}]
    return made


def test_rows_with_the_same_keys_are_caught(prometheus):
    """A table whose rows cannot be told apart is a fault."""
    assert [] == confused(asked(table(["server", "source", "Value"]), prometheus, TWO))
    found = confused(asked(table(["server", "Value"]), prometheus, TWO))
    assert "day: Waiting: A: two series are named server=day" in found


def test_too_many_series_are_caught(prometheus):
    """More series of one server than can be told apart are a fault."""
    expr = (
        f"vllm_watch_time_to_first_token_seconds_bucket{{{CHOSEN}}} or vllm_watch_iteration_tokens_bucket{{{CHOSEN}}}"
    )
    assert any(fault.startswith("day: Waiting: ") for fault in crowded(spoiled(prometheus, expr, "{{le}}")))


def test_what_is_no_number_is_caught(prometheus):
    """NaN is a fault, and so is a value that the axis cuts off."""
    empty_rate = f"rate(vllm_watch_preemptions_total{{{CHOSEN}}}[$__rate_interval])"
    assert "day: Waiting: B: nan" in unreal(spoiled(prometheus, f"{empty_rate} / {empty_rate}", "{{engine}}"))
    found = unreal(spoiled(prometheus, f"vllm_watch_requests_running{{{CHOSEN}}}", "{{engine}}", max=1))
    assert "day: Waiting: B: a value is not from 0 to 1" in found


def test_queries_are_as_grafana_sends_them(prometheus):
    """Variables, intervals and the steps of a range are filled in as Grafana's data source does it."""
    made = small()
    made["templating"]["list"][2].update(allValue="", current={})
    panel = made["panels"][1]
    panel["targets"][0]["expr"] = "$server $model ${engine:regex} [[daemon]] $__rate_interval $__interval $__range_s"
    panel["targets"].append({**target("$__range", "", "B"), "interval": "1m"})
    span = prometheus.spans["dp1"]
    view = opened(made, Api(prometheus.url), Span(span.start, span.start + 100.2), {"model": "Qwen3.6-27B"})
    first, second = sent_by(panel, view)
    assert r"(day|dp1|stall|vl) Qwen3\\.6-27B .* .* 20s 5s 100" == first.expr
    assert (first.start % 5, first.end % 5, first.step) == (0, 0, 5)
    assert (second.expr, second.start % 60, second.step) == ("100s", 0, 60)
    (alerts,) = annotations_of(made, view)
    assert (alerts.step, alerts.ref) == (15, "annotation Alerts")
    assert ["Prompt", "Waiting", "Waiting now"] == [panel["title"] for panel in panels_of(made)]


def test_long_ranges_have_long_steps(prometheus):
    """Over a week a panel asks for a point for each of its pixels or fewer, and for rates over longer windows."""
    made = small()
    end = prometheus.spans["day"].end
    view = opened(made, Api(prometheus.url), Span(end - 7 * 86400, end), {})
    (sent,) = sent_by(made["panels"][1], view)
    assert sent.step == 900
    assert "[905s]" in sent.expr
