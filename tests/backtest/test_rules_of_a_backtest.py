# SPDX-License-Identifier: Apache-2.0
"""The rules and thresholds of a backtest: what a user's files may say, and what is wrong in one."""

from __future__ import annotations

import promql_parser as promql
import pytest

from tests.alerts.needed import needed
from tests.alerts.shapes import selectors

from vllm_watch.analysis.backtest.expressions import (
    ANY_NAME,
    duration_seconds,
    offset_back,
    reads_calendar,
    selected_names,
)
from vllm_watch.analysis.backtest.judgement import not_judged
from vllm_watch.analysis.backtest.promtool import check_rules, promtool
from vllm_watch.analysis.backtest.rule_set import (
    read_thresholds,
    rendered,
    rule_set,
    shipped_rules,
    shipped_thresholds,
    users_rules,
)
from vllm_watch.analysis.backtest.series_grid import SeriesGrid, Subject
from vllm_watch.daemon.catalog.alert_needs import alert_needs
from vllm_watch.daemon.support.errors import ConfigError


SHIPPED = shipped_thresholds()
RULE = "groups:\n- name: g\n  rules:\n  - {}\n"


def messages(action, *arguments):
    """Return what is wrong, a sentence for each mistake."""
    with pytest.raises(ConfigError) as caught:
        action(*arguments)
    return str(caught.value).split("\n")


class TestThresholds:
    """A file of thresholds."""

    def test_a_file_needs_only_what_is_different(self, tmp_path):
        """What a file does not name is as in the package, and its values stay as they are written."""
        file = tmp_path / "mine.yml"
        file.write_text("kv_full_ratio: 0.80\nstalled_for: 1m30s\ngrafana: https://grafana.example\n")

        assert read_thresholds(str(file)) == {
            **SHIPPED,
            "kv_full_ratio": "0.80",
            "stalled_for": "1m30s",
            "grafana": "https://grafana.example",
        }

    def test_each_mistake_is_named_with_its_line_and_key(self, tmp_path):
        """Unknown names and values of another kind are rejected, all of them at once."""
        file = tmp_path / "mine.yml"
        file.write_text("stalled_for: soon\ncrash_windw: 1m\nkv_full_ratio: [1]\nloop_starts: 3s\n")

        assert messages(read_thresholds, str(file)) == [
            f'{file}:1: stalled_for: expected a duration such as 30s or 5m, got "soon"',
            f"{file}:2: crash_windw: there is no such threshold: the names are those of alerts/thresholds.yml",
            f"{file}:3: kv_full_ratio: expected one value, got a list",
            f'{file}:4: loop_starts: expected a number such as 0.9, got "3s"',
        ]

    def test_a_source_names_thresholds_that_there_are(self):
        """A name without a value is an error with its line; in a comment it is none."""
        assert rendered("# %{this}\nfor: %{stalled_for}\n", SHIPPED, "r.yml").endswith("for: 15s\n")
        assert messages(rendered, "a:\nfor: %{other}\n", SHIPPED, "r.yml") == ["r.yml:2: there is no threshold other"]


class TestExpressions:
    """What is read of expressions without parsing them."""

    def test_the_names_are_those_that_a_parser_finds(self):
        """Of each shipped expression the series are found that a parser of PromQL finds."""
        expressions = [rule["expr"] for rule in shipped_rules(SHIPPED).rules]

        assert len(expressions) > 50
        for each in expressions:
            assert selected_names(each) == {selector.name for selector in selectors(promql.parse(each))}

    @pytest.mark.parametrize(
        ("expression", "names"),
        [
            ('sum by (server) (rate(a_total{job="b", x=~"{c}"}[5m] offset 1h)) # d', {"a_total"}),
            ("a and on (x) b unless ignoring (y) group_left c or d * bool e", {"a", "b", "c", "d", "e"}),
            ("up == inf or 1e3 > bool time()", {"up"}),
            ('{__name__=~"a:.*"} > 1', {ANY_NAME}),
            ("level:metric:op / (other > 0.5)", {"level:metric:op", "other"}),
        ],
    )
    def test_names(self, expression, names):
        """Labels, functions, keywords, numbers, texts and comments are no series."""
        assert selected_names(expression) == names

    def test_how_far_an_expression_looks_back(self):
        """The longest offset counts, also that of what is recorded."""
        recorded = {"r": "avg_over_time(x[1h])", "s": "r + max_over_time(r[1d:1m] offset 30m)", "t": "t"}

        assert offset_back("s > 1 unless x offset 2m", recorded) == 1800 + 120
        assert offset_back("rate(x[5m])", recorded) == 0
        assert duration_seconds("1d2h3m4s500ms") == 93_784.5

    @pytest.mark.parametrize(
        ("expression", "expected"),
        [
            ("x > 1 and on () hour() > 8", True),
            ("x @ 1609746000", True),
            ("x > time() - 5", False),
            ("x @ end()", False),
        ],
    )
    def test_what_depends_on_the_calendar(self, expression, expected):
        """The hour of the day and a fixed moment are not those of an evaluation that begins in 1970."""
        assert reads_calendar(expression) is expected


class TestUsersRules:
    """A user's own files of rules."""

    def test_what_they_select_is_recorded(self, tmp_path):
        """Rules of the package record what a user's rules select, and no other ones are there."""
        file = tmp_path / "mine.yml"
        file.write_text(RULE.format("{alert: A, expr: 'engine:vllm_watch_demand_ratio > 0.5', for: '%{stalled_for}'}"))
        rules = users_rules([str(file)], SHIPPED)

        assert [rule["alert"] for rule in rules.alerts] == ["A"]
        assert rules.alerts[0]["for"] == "15s"
        parsed = needed(shipped_rules(SHIPPED).groups, [rules.alerts[0]["expr"]])
        assert set(rules.recorded) == {rule["record"] for group in parsed for rule in group["rules"]}
        assert len(rules.recorded) > 3

    def test_their_own_recording_wins(self, tmp_path):
        """A series that a user's file records is not recorded by the package, too."""
        file = tmp_path / "mine.yml"
        record = "{record: 'engine:vllm_watch_requests_queued', expr: vllm_watch_requests_waiting}"
        file.write_text(RULE.format(f"{record}\n  - {{alert: A, expr: 'engine:vllm_watch_requests_queued > 5'}}"))

        assert users_rules([str(file)], SHIPPED).recorded == {
            "engine:vllm_watch_requests_queued": "vllm_watch_requests_waiting"
        }

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("- a\n", ": no rules as Prometheus reads them: groups of rules, each with expr"),
            (RULE.format("{alert: A}"), ": no rules as Prometheus reads them: groups of rules, each with expr"),
            ("groups:\n- [\n", ": not YAML: while parsing a flow node"),
        ],
    )
    def test_no_file_of_rules(self, tmp_path, text, message):
        """What is no file of rules is rejected."""
        file = tmp_path / "mine.yml"
        file.write_text(text)

        (found,) = messages(users_rules, [str(file)], SHIPPED)[:1]
        assert found.startswith(f"{file}{message}")

    def test_a_file_that_is_not_there(self, tmp_path):
        """A file that cannot be read is an error of the configuration."""
        assert messages(users_rules, [f"{tmp_path}/none"], SHIPPED) == [
            f"{tmp_path}/none: cannot be read: no such file or directory"
        ]

    @pytest.mark.needs_tool("promtool")
    def test_what_prometheus_rejects_is_said_with_the_users_file(self):
        """The faults that Prometheus finds name the user's file, the group and the rule, not those of a copy."""
        text = RULE.format(
            "alert: A\n    expr: sum(x[5m]\n  - {alert: B, expr: up, annotations: {description: '{{ nofunc }}'}}"
        )
        with promtool() as tool:
            check_rules(tool, shipped_rules(SHIPPED))
            found = messages(check_rules, tool, rule_set({"mine.yml": text}, SHIPPED))
            late = messages(
                check_rules, tool, rule_set({"m.yml": RULE.format("{alert: A, expr: up, for: 1q}")}, SHIPPED)
            )

        assert len(found) == 2
        assert all(each.startswith("mine.yml: ") for each in found)
        assert 'group "g", rule 1, "A": could not parse expression: ' in found[0]
        assert found[1].endswith('function "nofunc" not defined')
        assert "1q" in late[0]


class TestJudgement:
    """What of a backtest says that an alert did not fire."""

    @pytest.mark.parametrize("has_gpus", [False, True])
    def test_alerts_of_gpus_have_one_reason_where_none_was_read(self, has_gpus):
        """Without GPUs all their alerts lack the same; with them each lacks what its GPU does not report."""
        names = ['vllm_watch_source_up{source="metrics"}', "vllm_watch_engine_state"]
        names += ["vllm_watch_server_gpu_info", "vllm_watch_gpu_busy_ratio"] if has_gpus else []
        subject = Subject("day", SeriesGrid(0.0, 100, {name: ["1"] * 100 for name in names}), 15.0)
        found = not_judged(shipped_rules(SHIPPED), subject, (), is_shipped=True)
        reasons = {each.alertname: each.reason for each in found if each.alertname.startswith("Gpu")}

        if has_gpus:
            assert reasons["GpuMissing"] == "there is no series vllm_watch_gpu_info"
        else:
            assert all("no GPUs were read" in reason and "vllm_watch_gpu" not in reason for reason in reasons.values())
            assert reasons.keys() == {each for each in alert_needs() if each.startswith("Gpu")}
