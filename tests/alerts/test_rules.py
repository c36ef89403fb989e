# SPDX-License-Identifier: Apache-2.0
"""The shipped rules: made from their sources, tested one by one, and saying who, what and where to look."""

from __future__ import annotations

import json
import re

from itertools import groupby
from pathlib import Path

import promql_parser as promql
import pytest
import render

from tests.alerts.needed import alert_query, needed
from tests.alerts.replay import groups_at_worst
from tests.alerts.shapes import selectors
from tests.support.exposition import exported
from tests.support.monitoring import promtool
from tests.support.recordings import RECORDINGS, snapshots
from tests.support.yaml_files import load_yaml

from vllm_watch.analysis.backtest.rule_set import shipped_thresholds, with_lists
from vllm_watch.daemon.catalog.reasons import NOT_JUDGED


ALERTS = Path(__file__).parents[2] / "alerts"
RULES = sorted((ALERTS / "rules").glob("*.yml"))
TESTS = sorted((ALERTS / "tests").glob("*.yml"))

ENGINES = 200
SEVERITIES = {"critical", "warning", "info", "none"}
TIERS = {"core", "advisory"}
DASHBOARDS = {"fleet", "server", "spec-decode", "capacity", "sources", "kv-transfer"}
AS_SHIPPED = {"energy.yml", "latency.yml"}
"""Files of cases that promtool gets as they are, with all rules: so users run them."""

ALWAYS_FIRING = "Watchdog"
OF_THE_DAEMON = {"VllmWatchGone", "VllmWatchUnwell", ALWAYS_FIRING}
"""Alerts that speak of no server."""

needs_promtool = pytest.mark.needs_tool("promtool")


GROUPS = [group for path in RULES for group in load_yaml(path.read_text(encoding="utf-8"))["groups"]]
EVERY_RULE = [rule for group in GROUPS for rule in group["rules"] if "alert" in rule]
ALERT_RULES = {rule["alert"]: rule for rule in EVERY_RULE}
"""By name; two severities of one alert are two rules."""
CASES = {path.name: load_yaml(path.read_text(encoding="utf-8")) for path in TESTS}


def asked():
    """Yield of each case which alert it asks for, and whether it expects it to fire."""
    for document in CASES.values():
        for test in document["tests"]:
            for case in test.get("alert_rule_test", ()):
                yield case["alertname"], bool(case["exp_alerts"])
            for case in test.get("promql_expr_test", ()):
                for alert in re.findall(r'alertname="(\w+)"', case["expr"]):
                    yield alert, bool(case["exp_samples"])


@needs_promtool
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_prometheus_takes_the_rules(path):
    """Promtool check rules: expressions and templates are what Prometheus understands."""
    well, printed = promtool("check", "rules", path)
    assert well, printed


@needs_promtool
@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_rules_fire_when_they_should(path, tmp_path):
    """
    Promtool test rules: every case of alerts/tests holds.

    Over the series of a case only those rules are evaluated that it asks for: all of them would take ten times as long.
    """
    files = [path] if path.name in AS_SHIPPED else smaller_cases(path.name, tmp_path)
    well, printed = promtool("test", "rules", *files)
    assert well, printed


def smaller_cases(name, folder):
    """Write each case of a file into one of its own, with the rules that it depends on; yield their paths."""
    for number, test in enumerate(CASES[name]["tests"]):
        queries = [alert_query(case["alertname"]) for case in test.get("alert_rule_test", ())]
        queries += [case["expr"] for case in test.get("promql_expr_test", ())]
        groups = needed(groups_at_worst(), queries)
        rules, cases = folder / f"rules{number}.json", folder / f"{number}.json"
        rules.write_text(json.dumps({"groups": groups}))
        order = [group["name"] for group in groups]
        cases.write_text(
            json.dumps({**CASES[name], "rule_files": [str(rules)], "group_eval_order": order, "tests": [test]})
        )
        yield cases


def test_every_threshold_is_used():
    """No threshold is there that neither a rule nor a dashboard knows."""
    paths = (path for suffix in ("py", "yml") for path in (ALERTS.parent / "dashboards").glob(f"*/**/*.{suffix}"))
    boards = "".join(path.read_text(encoding="utf-8") for path in paths)
    drawn = {name for name in shipped_thresholds() if re.search(rf"""number\(['"]{name}['"]\)|%{{{name}\b""", boards)}

    assert render.used() | drawn == set(with_lists(shipped_thresholds()))


@pytest.mark.parametrize("path", sorted((ALERTS / "source").glob("*.yml")), ids=lambda path: path.name)
def test_every_threshold_has_a_name(path):
    """What an expression compares with is a name of thresholds.yml; but for 0 and 1, none and all."""
    source = re.sub(r"%\{(\w+)\}", r"\1", path.read_text(encoding="utf-8"))
    rules = [rule for group in load_yaml(source)["groups"] for rule in group["rules"]]
    for rule in rules:
        for number in re.findall(r"[<>=]=?\s*([\d.]+)\b", rule["expr"]):
            assert float(number) in {0, 1}, rule["expr"]


@pytest.mark.parametrize("path", sorted((ALERTS / "source").glob("*.yml")), ids=lambda path: path.name)
def test_how_long_a_rule_waits_is_a_threshold(path):
    """Whoever wants an alert later or sooner changes one line of thresholds.yml."""
    waits = re.findall(r"(?m)^ +(?:keep_firing_)?for: (.+)$", path.read_text(encoding="utf-8"))

    assert [] == [wait for wait in waits if not re.fullmatch(r"%\{\w+_for\}", wait)]


def test_names_are_unique():
    """
    No two recorded series, no two groups and no two alerts of one severity have one name.

    A test names a group to order it. The severities of one alert stand beside each other.
    """
    recorded = [rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule]
    assert len(EVERY_RULE) == len({(rule["alert"], rule["labels"]["severity"]) for rule in EVERY_RULE})
    assert list(ALERT_RULES) == [name for name, _ in groupby(rule["alert"] for rule in EVERY_RULE)]
    assert len(recorded) == len(set(recorded))
    assert len(GROUPS) == len({group["name"] for group in GROUPS})


@pytest.mark.parametrize("alert", ALERT_RULES)
def test_every_alert_is_tested(alert):
    """Every alert has a case in which it fires and, but for the one that always does, one in which it does not."""
    expected = {is_firing for name, is_firing in asked() if name == alert}
    assert expected == ({True} if alert == ALWAYS_FIRING else {True, False})


@pytest.mark.parametrize("alert", ALERT_RULES)
def test_every_alert_is_tested_to_the_letter(alert):
    """Every alert has a case that holds all its labels and annotations, for each of its severities."""
    assert {rule["labels"]["severity"] for rule in EVERY_RULE if rule["alert"] == alert} == {
        each["exp_labels"]["severity"]
        for document in CASES.values()
        for test in document["tests"]
        for case in test.get("alert_rule_test", ())
        for each in case["exp_alerts"]
        if case["alertname"] == alert
    }


def test_cases_are_of_alerts_that_there_are():
    """No case asks whether an alert is quiet that does not exist: it would always be."""
    assert {name for name, _ in asked()} - {ALWAYS_FIRING} == set(ALERT_RULES) - {ALWAYS_FIRING}


@pytest.mark.parametrize("name", CASES)
def test_cases_are_of_all_rules_at_worst(name):
    """Every file of cases is of all rules, in the order in which alerts see what is recorded last."""
    document = CASES[name]
    assert sorted((ALERTS / "tests" / path).resolve() for path in document["rule_files"]) == [
        p.resolve() for p in RULES
    ]
    assert document["group_eval_order"] == [group["name"] for group in groups_at_worst()]
    assert len(document["group_eval_order"]) == len(GROUPS)


def test_the_healthy_server_shows_all_that_rules_use():
    """Where nothing may fire, every series is there that a rule looks at, with every label value it names."""
    shown = [promql.parse(item["series"]) for test in CASES["healthy.yml"]["tests"] for item in test["input_series"]]
    labels_of: dict[str, list[dict[str, str]]] = {}
    for series in shown:
        labels_of.setdefault(series.name, []).append({m.name: m.value for m in series.matchers.matchers})
    recorded = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
    for group in GROUPS:
        for rule in group["rules"]:
            for selector in selectors(promql.parse(rule["expr"])):
                if selector.name in recorded:
                    continue
                assert selector.name in labels_of, selector.name
                for matcher in selector.matchers.matchers:
                    if matcher.op == promql.MatchOp.Equal:
                        assert any(labels.get(matcher.name) == matcher.value for labels in labels_of[selector.name])


@pytest.mark.parametrize("rule", EVERY_RULE, ids=lambda rule: f"{rule['alert']}-{rule['labels']['severity']}")
def test_every_alert_says_what_it_is(rule):
    """Severity and tier are of closed lists, the summary is one plain sentence, links lead where the name says."""
    alert, labels, notes = rule["alert"], rule["labels"], rule["annotations"]
    assert set(labels) == {"severity", "tier"}
    assert labels["severity"] in SEVERITIES
    assert labels["tier"] in TIERS
    assert labels["tier"] == "core" or labels["severity"] == "info"
    assert set(notes) == {"summary", "description", "runbook_url", "dashboard_url"}
    assert re.fullmatch(r"(vllm-watch |[A-Z])[^.\n{}]*\.", notes["summary"])
    assert notes["runbook_url"] == f"{shipped_thresholds()['runbooks']}/{alert}.md"
    assert re.match(
        rf"{shipped_thresholds()['grafana']}/d/vllm-watch-({'|'.join(DASHBOARDS)})\b", notes["dashboard_url"]
    )


@pytest.mark.parametrize("alert", sorted(set(ALERT_RULES) - {ALWAYS_FIRING}))
def test_every_alert_says_of_whom(alert):
    """The description names the server, or the daemon's address; a link to a server's dashboard names it too."""
    for notes in (rule["annotations"] for rule in EVERY_RULE if rule["alert"] == alert):
        if alert in OF_THE_DAEMON:
            assert "$labels.instance" in notes["description"] or "$labels.trouble" in notes["description"]
        else:
            assert notes["description"].startswith("{{ $labels.server }}")
            assert "var-server={{ $labels.server }}" in notes["dashboard_url"]


def test_a_probe_that_could_not_judge_pages_nobody():
    """The reasons that page nobody are those that the daemon gives where it could not judge the server."""
    assert f'reason=~"{"|".join(NOT_JUDGED)}"' in ALERT_RULES["VllmProbeFailing"]["expr"]
    assert {"starting", "sleeping", "overdue", "key_unreadable"} < set(NOT_JUDGED)
    assert not {"ok", "timeout", "refused", "failed"} & set(NOT_JUDGED)


@pytest.mark.parametrize("name", sorted(RECORDINGS))
def test_two_hundred_engines_fit_into_a_scrape(name):
    """Two hundred engines like a recorded one stay below both limits that Prometheus has for the daemon's page."""
    (job,) = load_yaml((ALERTS / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    samples = size = 0.0
    for _, snapshot in snapshots(name, step=30.0):
        page = exported(snapshot)
        size = max(size, len(page) / len(snapshot.engines))
        samples = max(samples, sum(not line.startswith(b"#") for line in page.splitlines()) / len(snapshot.engines))

    assert samples > 100
    assert ENGINES * samples <= job["sample_limit"]
    assert ENGINES * size <= int(job["body_size_limit"].removesuffix("MB")) * 1024 * 1024
