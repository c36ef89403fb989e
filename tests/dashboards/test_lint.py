# SPDX-License-Identifier: Apache-2.0
"""The linter catches each fault that it is for, and the shipped dashboards have none of them, in both languages."""

from __future__ import annotations

import re

from collections.abc import Callable

import pytest

from tests.dashboards.lint import KNOWN, lint, twice
from tests.dashboards.shipped import UIDS, dashboard
from tests.dashboards.small import CHOSEN, COLOR, DATASOURCE, figure, lines, small, target

from boards.kit.palette import COLORS, EVERY


LANGUAGES = ("en", "zh")
Spoil = Callable[[dict], object]


def faults(spoil: Spoil) -> list[str]:
    """Return what is said of the small dashboard once something has been done to it."""
    made = small()
    spoil(made)
    return [f"{finding.place}: {finding.fault}" for finding in lint(made, COLORS)]


def panel(spoil: Spoil) -> Spoil:
    """Do something to the panel Waiting."""
    return lambda made: spoil(made["panels"][2])


def defaults(**values: object) -> Spoil:
    """Set defaults of the panel's fields."""
    return panel(lambda it: it["fieldConfig"]["defaults"].update(values))


def place(**values: int) -> Spoil:
    """Move the panel."""
    return panel(lambda it: it["gridPos"].update(values))


def override(matcher: str, options: str, *properties: dict) -> Spoil:
    """Override fields of the panel."""
    made = {"matcher": {"id": matcher, "options": options}, "properties": list(properties)}
    return panel(lambda it: it["fieldConfig"]["overrides"].append(made))


def expr(text: str, legend: str = "{{server}} {{engine}}", **values: object) -> Spoil:
    """Let the panel ask something else; `CHOSEN` stands for what is chosen."""
    asked = {**target(text.replace("CHOSEN", CHOSEN), legend), **values}
    return panel(lambda it: it.update(targets=[asked]))


def link(url: str, *, blank: bool = False) -> Spoil:
    """Let a link of the panel lead somewhere."""
    return panel(lambda it: it["links"].append({"targetBlank": blank, "title": "There", "type": "link", "url": url}))


def variable(number: int, **values: object) -> Spoil:
    """Change a variable."""
    return lambda made: made["templating"]["list"][number].update(values)


def annotation(**values: object) -> Spoil:
    """Change the annotation."""
    return lambda made: made["annotations"]["list"][0].update(values)


def table(**values: object) -> Spoil:
    """Make a table of the panel."""
    asked = {
        **target(f"vllm_watch_requests_waiting{{{CHOSEN}}}", ""),
        "format": "table",
        "instant": True,
        "range": False,
    }
    return panel(lambda it: it.update({"type": "table", "targets": [asked], **values}))


def alerts(*order: tuple[str, bool]) -> Spoil:
    """Make a list of alerts of the panel, in an order of columns, each with whether the largest comes first."""
    names = {"severity": "Severity", "Value": "Active for", "alertname": "Alert"}
    listed = {
        **target('time() - ALERTS_FOR_STATE{server=~"$server|"}', ""),
        "format": "table",
        "instant": True,
        "range": False,
    }
    return table(
        targets=[listed],
        transformations=[{"id": "organize", "options": {"renameByName": names}}],
        options={"sortBy": [{"displayName": name, "desc": is_falling} for name, is_falling in order]},
    )


def hidden(asked: str) -> Spoil:
    """Add a hidden variable that asks for a query's result, and let a legend have it."""

    def spoil(made: dict) -> None:
        query = {"query": f"query_result({asked})"}
        made["templating"]["list"].append(
            {"name": "of", "type": "query", "hide": 2, "regex": '/of="(.+)"/', "query": query, "datasource": DATASOURCE}
        )
        made["panels"][2]["targets"][0]["legendFormat"] = "${of}{{engine}}"

    return spoil


_RUNBOOK = "https://github.com/vllm-watch/vllm-watch/blob/main/alerts/runbooks"
_OTHER = {"type": "prometheus", "uid": "prometheus-1"}
_RATE = "rate(vllm_watch_preemptions_total{CHOSEN}"
_LONG = "Requests that wait for a place in the batch or in the KV cache, by engine of each server"
_WAITING = "vllm_watch_requests_waiting{CHOSEN}"

BAD: dict[str, tuple[Spoil, str]] = {
    "a uid of somebody else": (lambda it: it.update(uid="vLLM_1"), "dashboard: uid is not vllm-watch-…"),
    "no tag": (lambda it: it.update(tags=["llm"]), "dashboard: has no tag vllm-watch"),
    "an old schema": (lambda it: it.update(schemaVersion=16), "dashboard: schemaVersion is not from 39 to 41"),
    "an id": (lambda it: it.update(id=7), "dashboard: has an id"),
    "nothing to edit": (lambda it: it.update(editable=False), "dashboard: is not editable"),
    "no title": (lambda it: it.update(title=""), "dashboard: has no title"),
    "no description": (lambda it: it.pop("description"), "dashboard: has no description"),
    "a data source of its author": (panel(lambda it: it.update(datasource=_OTHER)), "Waiting: a datasource is not"),
    "a target's own data source": (expr(_WAITING, datasource=_OTHER), "Waiting: a datasource is not ${datasource}"),
    "a panel without a data source": (panel(lambda it: it.pop("datasource")), "Waiting: asks without a datasource"),
    "a target without one": (panel(lambda it: it["targets"][0].pop("datasource")), "Waiting: asks without"),
    "a variable without one": (lambda it: it["templating"]["list"][2].pop("datasource"), "server: asks without a"),
    "an annotation's own data source": (annotation(datasource="Prometheus"), "dashboard: a datasource is not"),
    "a colour of a threshold": (
        defaults(thresholds={"mode": "absolute", "steps": [{"color": "red", "value": None}]}),
        "Waiting: colour red is not of the palette",
    ),
    "a colour of a series": (
        override("byFrameRefID", "A", {"id": "color", "value": {"fixedColor": "#ff0000", "mode": "fixed"}}),
        "Waiting: colour #ff0000 is not of the palette",
    ),
    "a colour of an annotation": (annotation(iconColor="blue"), "dashboard: colour blue is not of the palette"),
    "an unknown variable": (expr('vllm_watch_requests_waiting{server="$host"}'), "Waiting: there is no variable host"),
    "one in a title": (panel(lambda it: it.update(title="Of ${node}")), "Of ${node}: there is no variable node"),
    "one in a link": (link("/d/vllm-watch-small?var-server=${rack:queryparam}"), "Waiting: there is no variable rack"),
    "a variable that nobody uses": (
        lambda it: it["templating"]["list"].append({**it["templating"]["list"][2], "name": "slo"}),
        "slo: the variable is not used",
    ),
    "a variable that is there twice": (
        lambda it: it["templating"]["list"].append(it["templating"]["list"][2]),
        "server: there are two variables of this name",
    ),
    "a variable without a label": (variable(2, label=""), "server: the variable has no label"),
    "another data source": (variable(0, query="loki"), "datasource: the data source is no Prometheus"),
    "a variable of something else": (
        variable(2, query={"query": "label_names()"}),
        "server: asks for something else than the values of a label",
    ),
    "a variable of a series that is not there": (
        variable(2, query={"query": "label_values(vllm_watch_servers, server)"}),
        "server: there is no series vllm_watch_servers",
    ),
    "a variable of a label that is not there": (
        variable(3, query={"query": 'label_values(vllm_watch_engine_state{server=~"$server"}, model)'}),
        "model: count names a label that is not there: model",
    ),
    "an annotation of a series that is not there": (
        annotation(expr="vllm_watch_crashes_total"),
        "Alerts: there is no series vllm_watch_crashes_total",
    ),
    "an annotation's label that is not there": (
        annotation(titleFormat="{{alert}}"),
        "Alerts: names a label that the query has not: alert",
    ),
    "no regions of load tests": (
        lambda it: it["annotations"]["list"].pop(),
        "dashboard: does not show 200 load tests by the tag vllm-watch, once",
    ),
    "fewer regions": (
        lambda it: it["annotations"]["list"][1]["target"].update(limit=100),
        "dashboard: does not show 200 load tests",
    ),
    "regions of everybody": (
        lambda it: it["annotations"]["list"][1]["target"].update(tags=[]),
        "dashboard: does not show 200 load tests",
    ),
    "regions without a switch": (
        lambda it: it["annotations"]["list"][1].update(hide=True),
        "Load tests: nobody can switch it off",
    ),
    "two annotations of one name": (
        lambda it: it["annotations"]["list"].append(it["annotations"]["list"][0]),
        "Alerts: there are two annotations of this name",
    ),
    "two panels of one title": (panel(lambda it: it.update(title="Prompt")), "Prompt: there are two panels of"),
    "a panel without a title": (panel(lambda it: it.update(title="")), "?: a panel has no title"),
    "an id that is there twice": (panel(lambda it: it.update(id=5)), "Waiting: the id is no number of its own"),
    "no id": (panel(lambda it: it.pop("id")), "Waiting: the id is no number of its own"),
    "a panel without a description": (panel(lambda it: it.update(description="")), "Waiting: has no description"),
    "a description without a full stop": (
        panel(lambda it: it.update(description="Requests that wait")),
        "Waiting: has no description that ends with a full stop",
    ),
    "a description that says nothing": (
        panel(lambda it: it.update(description="Waiting.")),
        "Waiting: the description repeats the title",
    ),
    "no unit": (defaults(unit=""), "Waiting: has no unit"),
    "a unit that there is not": (defaults(unit="tokens"), "Waiting: there is no unit tokens"),
    "an override's unit that there is not": (
        override("byFrameRefID", "A", {"id": "unit", "value": "seconds"}),
        "Waiting: there is no unit seconds",
    ),
    "a heatmap's unit that there is not": (
        panel(lambda it: it.update(type="heatmap", options={"yAxis": {"unit": "sec"}})),
        "Waiting: there is no unit sec",
    ),
    "a ratio in per cent": (
        defaults(unit="percentunit", thresholds={"steps": [{"color": COLOR, "value": 90}]}),
        "Waiting: a threshold of a ratio is in per cent",
    ),
    "a panel that is silently empty": (defaults(noValue=""), "Waiting: does not say why it is empty"),
    "a panel beyond the grid": (place(w=13), "Waiting: leaves the grid of 24 columns"),
    "a panel on another": (place(x=11), "Waiting: lies on another panel"),
    "a hole": (place(w=11), "Prompt: there is a hole at column 23, line 1, of its row"),
    "a panel that ends above its neighbour": (place(h=7), "Prompt: there is a hole at column 12, line 8, of its row"),
    "a row on panels": (lambda it: it["panels"][3]["gridPos"].update(y=8), "More: a row is 24 by 1"),
    "a row that is too small": (lambda it: it["panels"][0]["gridPos"].update(w=12), "All: a row is 24 by 1"),
    "a panel that is too narrow": (place(w=5), "Waiting: a timeseries of 5 columns is too narrow"),
    "a panel that is too low": (place(h=3), "Waiting: a timeseries of 3 lines is too low"),
    "figures that are too many": (
        lambda it: it["panels"][3]["panels"][0].update(
            targets=[{**target(f"sum(vllm_watch_requests_running{{{CHOSEN}}})", "n", ref)} for ref in "ABC"],
            gridPos={"h": 4, "w": 4, "x": 0, "y": 10},
        ),
        "Waiting now: 3 figures are too many for 4 columns",
    ),
    "a title that is cut": (
        panel(lambda it: it.update(title=_LONG)),
        f"{_LONG}: the title is too long for the panel's width",
    ),
    "no legend": (panel(lambda it: it["options"]["legend"].update(showLegend=False)), "Waiting: shows no legend"),
    "a line over a gap": (defaults(custom={"spanNulls": True}), "Waiting: draws a line where nothing is known"),
    "a figure of a while ago": (
        panel(lambda it: it.update(type="stat", options={"reduceOptions": {"calcs": ["lastNotNull"]}})),
        "Waiting: shows what may be no longer true",
    ),
    "a table of every moment": (
        table(targets=[{**target(f"vllm_watch_requests_waiting{{{CHOSEN}}}", ""), "format": "table"}]),
        "Waiting: a table's targets ask for one moment",
    ),
    "a column of nothing": (
        table(transformations=[{"id": "organize", "options": {"renameByName": {"Value #C": "Waiting"}}}]),
        "Waiting: there is no column Value #C",
    ),
    "an override of no target": (override("byFrameRefID", "C"), "Waiting: an override is of target C"),
    "an override of no column": (override("byName", "Requests"), "Waiting: an override is of Requests"),
    "a panel that asks nothing": (panel(lambda it: it.update(targets=[])), "Waiting: asks nothing"),
    "two targets of one letter": (
        panel(lambda it: it["targets"].append(it["targets"][0])),
        "Waiting: A: there are two targets of this letter",
    ),
    "a hidden target": (expr(_WAITING, hide=True), "Waiting: A: is hidden"),
    "Grafana's own legend": (expr(_WAITING, "__auto"), "Waiting: A: has no legend"),
    "a legend of a label that is gone": (
        expr(f"sum without (engine) ({_WAITING})"),
        "Waiting: A: names a label that the query has not: engine",
    ),
    "no PromQL": (expr(f"{_WAITING} +"), "Waiting: A: is no PromQL"),
    "an invented series": (expr("vllm_watch_queue_length"), "Waiting: A: there is no series vllm_watch_queue_length"),
    "vLLM's own name": (expr("vllm:num_requests_waiting"), "Waiting: A: there is no series vllm:num_requests_waiting"),
    "a recorded series that no rule records": (
        expr("engine:vllm_watch_load_ratio"),
        "Waiting: A: there is no series engine:vllm_watch_load_ratio",
    ),
    "series of two kinds in one selector": (
        expr('{__name__=~"vllm_watch_(preemptions_total|requests_waiting)",CHOSEN}'),
        "Waiting: A: series of one kind are not what vllm_watch_(preemptions_total|requests_waiting) names",
    ),
    "an invented label": (
        expr(_WAITING.replace("}", ',state="idle"}')),
        "Waiting: A: vllm_watch_requests_waiting has no label state",
    ),
    "a value that is none": (
        expr('vllm_watch_engine_state{CHOSEN,state=~"idle|wedged"}'),
        "Waiting: A: state of vllm_watch_engine_state is never wedged",
    ),
    "a sum by a label that is not there": (
        expr(f"sum by (server, rank) ({_WAITING})", "{{server}}"),
        "Waiting: A: sum names a label that is not there: rank",
    ),
    "a sum without a label that is nowhere": (
        expr(f"sum without (rank) ({_WAITING})"),
        "Waiting: A: sum names a label that is not there: rank",
    ),
    "a join on a label that one side has not": (
        expr(f"{_WAITING} * on (engine) group_left vllm_watch_build_info{{instance=~'$daemon'}}"),
        "Waiting: A: on () names a label that is not there: engine",
    ),
    "a bare counter": (
        expr("vllm_watch_preemptions_total{CHOSEN}"),
        "Waiting: A: vllm_watch_preemptions_total is a counter and stands bare",
    ),
    "counters added up": (
        expr("sum by (server) (vllm_watch_preemptions_total{CHOSEN})", "{{server}}"),
        "Waiting: A: vllm_watch_preemptions_total is a counter and stands bare",
    ),
    "a counter's average": (
        expr("avg_over_time(vllm_watch_preemptions_total{CHOSEN}[$__interval])"),
        "Waiting: A: avg_over_time() of the counter vllm_watch_preemptions_total",
    ),
    "another counter's past": (
        expr("vllm_watch_preemptions_total{CHOSEN} - (vllm_watch_generation_tokens_total{CHOSEN} offset $__interval)"),
        "Waiting: A: vllm_watch_preemptions_total is a counter and stands bare",
    ),
    "another counter's first value": (
        expr(
            "last_over_time(vllm_watch_preemptions_total{CHOSEN}[$__range]) - (vllm_watch_preemptions_total{CHOSEN} "
            "offset $__range or min_over_time(vllm_watch_generation_tokens_total{CHOSEN}[$__range]))"
        ),
        "Waiting: A: min_over_time() of the counter vllm_watch_generation_tokens_total",
    ),
    "a gauge's rate": (
        expr(f"rate({_WAITING}[$__rate_interval])"),
        "Waiting: A: rate() of the gauge vllm_watch_requests_waiting",
    ),
    "a fixed window": (
        expr(f"{_RATE}[1m])"),
        "Waiting: A: rate() of vllm_watch_preemptions_total over 1m and not $__rate_interval",
    ),
    "a window as wide as a step": (
        expr(f"{_RATE}[$__interval])"),
        "Waiting: A: rate() of vllm_watch_preemptions_total over $__interval and not $__rate_interval",
    ),
    "the whole range from each moment": (
        expr(f"{_RATE}[$__range])"),
        "Waiting: A: rate() of vllm_watch_preemptions_total over the whole range, from each of its moments",
    ),
    "buckets without a rate": (
        expr("histogram_quantile(0.95, vllm_watch_queue_time_seconds_bucket{CHOSEN})"),
        "Waiting: A: histogram_quantile() wants rated buckets with their le",
    ),
    "buckets without their bounds": (
        expr("histogram_quantile(0.9, sum without (le) (rate(vllm_watch_queue_time_seconds_bucket{CHOSEN}[5m])))"),
        "Waiting: A: histogram_quantile() wants rated buckets with their le",
    ),
    "a function that is not judged": (expr(f"day_of_week({_WAITING})"), "Waiting: A: day_of_week() is nothing that is"),
    "a choice that is not heeded": (
        expr('vllm_watch_requests_waiting{instance=~"$daemon",server=~"$server",model_name=~"$model"}'),
        "Waiting: A: vllm_watch_requests_waiting is not narrowed to $engine",
    ),
    "a description that nobody reads at night": (
        panel(lambda it: it.update(description="It waits. It may be deferred. See the log.")),
        "Waiting: the description has more than 2 sentences",
    ),
    "a long Chinese description": (
        panel(lambda it: it.update(description="队列中的请求。可能延后。请看日志。")),
        "Waiting: the description has more than 2 sentences",
    ),
    "an axis of bare numbers": (
        defaults(custom={}),
        "Waiting: an axis does not say of what its numbers are",
    ),
    "buckets of bare numbers": (
        panel(lambda it: it.update(type="heatmap", options={"yAxis": {"unit": "short"}})),
        "Waiting: an axis does not say of what its numbers are",
    ),
    "a query that is asked twice": (
        lambda it: it["panels"][1]["targets"].append({**it["panels"][2]["targets"][0], "refId": "B"}),
        "Waiting: A: Prompt asks the same",
    ),
    "alerts in the order of their names": (alerts(("Alert", False)), "Waiting: alerts are not ordered by severity"),
    "warnings first": (alerts(("Severity", True), ("Active for", False)), "Waiting: alerts are not ordered"),
    "the oldest first": (alerts(("Severity", False), ("Active for", True)), "Waiting: alerts are not ordered"),
    "a hidden variable of a series that is not there": (
        hidden("count(vllm_watch_servers) > 1"),
        "of: there is no series vllm_watch_servers",
    ),
    "a link to a dashboard that is not there": (link("/d/vllm-watch-gone"), "Waiting: a link leads to vllm-watch-gone"),
    "a link that sets what is not there": (link("/d/vllm-watch-small?var-slo=1"), "Waiting: a link sets slo, which"),
    "a runbook that is not there": (link(f"{_RUNBOOK}/VllmSlow.md"), "Waiting: there is no runbook VllmSlow"),
    "a link to anywhere": (link("https://example.com"), "Waiting: a link leads to https://example.com"),
    "a label's URL that is encoded once more": (link("${__value.raw}"), "Waiting: a link leads to ${__value.raw}"),
    "a label's URL that is always there": (
        link("${__data.fields.logs_url:raw}&now", blank=True),
        "Waiting: a link leads to ${__data.fields.logs_url:raw}&now",
    ),
    "a label's URL in Grafana's own window": (
        link("${__value.raw:raw}"),
        "Waiting: a link out of Grafana opens no window of its own",
    ),
    "a link to a tag that nobody has": (
        lambda it: it["links"].append({"tags": ["llm"], "title": "LLM", "type": "dashboards"}),
        "dashboard: a link leads to the tag llm",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_dashboard_is_caught(case):
    """Every fault is found, in a dashboard that has it."""
    spoil, fault = BAD[case]
    assert [found for found in faults(spoil) if found.startswith(fault)]


GOOD: dict[str, Spoil] = {
    "nothing": lambda _: None,
    "alerts in the order of what to do": alerts(("Severity", False), ("Active for", False)),
    "a figure of what a panel draws": lambda it: it["panels"][3]["panels"][0]["targets"][0].update(
        expr=it["panels"][2]["targets"][0]["expr"]
    ),
    "two sentences with numbers": panel(lambda it: it.update(description="From vLLM 0.32 on 0.3 s. Others: 1.5 s.")),
    "an axis with a unit's own word": defaults(unit="reqps", custom={}),
    "a part of a legend": hidden("count(count by (server) (vllm_watch_source_up)) > 1"),
    "a window of the alerts": expr("rate(vllm_watch_slo_requests_total{CHOSEN}[1h])"),
    "the whole range once": lambda it: it["panels"][3]["panels"][0]["targets"][0].update(
        expr=f"sum(increase(vllm_watch_preemptions_total{{{CHOSEN}}}[$__range]))"
    ),
    "the whole range up to its end": expr(f"{_RATE}[$__range] @ end())"),
    "a counter that only chooses": expr(f"{_WAITING} and vllm_watch_preemptions_total{{CHOSEN}}"),
    "a counter that is only there": expr(f"{_WAITING} or vllm_watch_preemptions_total{{CHOSEN}} * 0"),
    "what has happened since the point before": expr(
        "vllm_watch_preemptions_total{CHOSEN} - (vllm_watch_preemptions_total{CHOSEN} offset $__interval) > 0"
    ),
    "how much a counter grew": expr(
        "last_over_time(vllm_watch_preemptions_total{CHOSEN}[$__range]) - (vllm_watch_preemptions_total{CHOSEN} "
        "offset $__range or min_over_time(vllm_watch_preemptions_total{CHOSEN}[$__range]))"
    ),
    "a quantile of how much buckets grew": expr(
        "histogram_quantile(0.9, vllm_watch_queue_time_seconds_bucket{CHOSEN} - "
        "(vllm_watch_queue_time_seconds_bucket{CHOSEN} offset $__interval))"
    ),
    "counters that are counted": expr("count(vllm_watch_preemptions_total{CHOSEN}) by (server)", "{{server}}"),
    "a choice that another side heeds": expr(f"{_WAITING} and on (job, instance) up"),
    "a label that is made": expr(f'label_join({_WAITING}, "row", " ", "server", "engine")', "{{row}}"),
    "what is taken over from the other side": expr(
        f"{_WAITING} * on (job, instance) group_left (version) vllm_watch_build_info{{instance=~'$daemon'}}",
        "{{server}} {{engine}} {{version}}",
    ),
    "an average over moments": expr(f"avg_over_time(({_WAITING} > 0)[$__range:$__interval])"),
    "the process": expr("process_resident_memory_bytes{instance=~'$daemon'}", "{{instance}}"),
    "a recorded series": expr("engine:vllm_watch_demand_ratio{CHOSEN}"),
    "alerts": expr('ALERTS{alertstate="firing",server=~"$server|"}', "{{server}} {{alertname}}"),
    "a unit of one's own": defaults(unit="suffix: tok/s"),
    "links to a runbook and a dashboard": lambda it: (
        link(f"{_RUNBOOK}/VllmEngineStalled.md")(it),
        link(f"{_RUNBOOK}/${{__value.raw}}.md")(it),
        link("${__data.fields.gpu_url:raw}", blank=True)(it),
        link("/d/vllm-watch-small?${__url_time_range}&${datasource:queryparam}&var-server=day")(it),
    ),
    "a row below collapsed panels": lambda it: it["panels"].extend(
        [
            {**it["panels"][0], "gridPos": {"h": 1, "w": 24, "x": 0, "y": 14}, "id": 6, "title": "Even more"},
            lines(7, "Running", target(f"vllm_watch_requests_running{{{CHOSEN}}}", "{{engine}}"), y=15, w=24),
        ]
    ),
    "a row right below a collapsed one": lambda it: it["panels"].append(
        {**it["panels"][0], "gridPos": {"h": 1, "w": 24, "x": 0, "y": 10}, "id": 6, "title": "Even more"}
    ),
    "figures side by side": lambda it: it["panels"][3].update(
        panels=[
            figure(
                10 + number,
                f"Waiting {number}",
                f"sum(vllm_watch_requests_waiting{{{CHOSEN}}} > {number})",
                x=3 * number,
                y=10,
            )
            for number in range(8)
        ]
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_good_dashboard_has_no_faults(case):
    """What is right is not complained of."""
    assert [] == faults(GOOD[case])


def test_a_variable_is_there_for_another_dashboard():
    """A variable that only another dashboard uses is no fault: links carry it there."""
    made, other = small(), {**small(), "uid": "vllm-watch-other"}
    made["templating"]["list"].append({"name": "slo", "type": "custom", "label": "Objective", "query": "0.9, 0.99"})
    other["panels"][2]["targets"][0]["expr"] += " > $slo"
    assert "the variable is not used" in {finding.fault for finding in lint(made, COLORS)}
    assert [] == lint(made, COLORS, {"vllm-watch-small": made, "vllm-watch-other": other})


def test_names_that_two_dashboards_have_are_caught():
    """Each dashboard has a uid and a title of its own: Grafana would write one over the other."""
    assert [] == twice([small(), {**small(), "uid": "vllm-watch-other", "title": "Other"}])
    assert ["vllm-watch-small", "Small"] == twice([small(), small()])


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("uid", UIDS)
def test_the_shipped_dashboards_have_no_faults(uid, language):
    """No shipped dashboard has any fault that the linter knows, but for those that are meant."""
    boards = {each: dashboard(each, language) for each in UIDS}
    assert [] == lint(boards[uid], EVERY, boards)
    assert uid == boards[uid]["uid"]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_shipped_dashboards_have_names_of_their_own(language):
    """No two dashboards of a language have the same uid or title."""
    assert [] == twice([dashboard(uid, language) for uid in UIDS])


@pytest.mark.parametrize(("uid", "fault"), KNOWN)
def test_every_fault_that_is_meant_is_there(uid, fault):
    """What is excused is found without the excuse: an excuse for nothing would hide the next fault."""
    boards = {each: dashboard(each) for each in UIDS}
    assert any(re.fullmatch(fault, found.fault) for found in lint(boards[uid], EVERY, boards, known={}))
