# SPDX-License-Identifier: Apache-2.0
"""Rules for a fast replay see of it what the shipped ones see of the recording."""

from __future__ import annotations

import pytest

from deploy.stack.faster import faster, faster_duration, faster_expression
from tests.alerts.replay import EVALUATION, STEP, groups_at_worst, replayed

from vllm_watch.analysis.backtest.promtool import Evaluation, evaluate, promtool
from vllm_watch.analysis.replay.recording import BUNDLED


SPEED = 5
"""All times of the rules are whole milliseconds then, and those of evaluations whole seconds."""

EVERYTHING = '{__name__=~"ALERTS|engine:.+"}'


@pytest.mark.parametrize(
    ("duration", "speed", "expected"),
    [
        ("1m", 10, "6s"),
        ("15s", 10, "1500ms"),
        ("1h30m", 3, "1800s"),
        ("7d", 50, "12096s"),
        ("1s", 3, "333ms"),
        ("1ms", 50, "1ms"),
        ("0s", 10, "0s"),
        ("5s", 0.5, "10s"),
    ],
)
def test_a_duration_is_divided(duration, speed, expected):
    """To the millisecond, and what is not nothing stays more than nothing."""
    assert faster_duration(duration, speed) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("avg_over_time(x[1m]) > 5", "avg_over_time(x[6s]) > 5"),
        ("x offset 10m - x offset -5m", "x offset 60s - x offset -30s"),
        ("max_over_time(x[1h:5m] offset 1d) @ end()", "max_over_time(x[360s:30s] offset 8640s) @ end()"),
        ("rate(x[5m])", "(rate(x[30s]) / 10)"),
        ("sum by (rate) (irate (x[1m]))", "sum by (rate) ((irate (x[6s]) / 10))"),
        ("-deriv(x[2m]) ^ 2", "-(deriv(x[12s]) / 10) ^ 2"),
        ("max_over_time(rate(x[1m])[1h:])", "max_over_time((rate(x[6s]) / 10)[360s:])"),
        ("predict_linear(x[10m], 900) > 1", "predict_linear(x[60s], ( 900) / 10) > 1"),
        ("predict_linear(x[1m], 2 * (a + b))", "predict_linear(x[6s], ( 2 * (a + b)) / 10)"),
        ("increase(x[5m]) + changes(x[5m])", "increase(x[30s]) + changes(x[30s])"),
        ("x:rate5m:5m + rate_5m + avg5m > 5", "x:rate5m:5m + rate_5m + avg5m > 5"),
        ("""x{a="rate(y[5m])",b='[1m]'} # rate([1m]""", """x{a="rate(y[5m])",b='[1m]'} # rate([1m]"""),
        ("0x1d + 1e3 + 15", "0x1d + 1e3 + 15"),
    ],
)
def test_an_expression_has_all_its_times_divided(expression, expected):
    """Ranges, offsets and steps; what is counted per second is divided; names, numbers and texts stay."""
    assert faster_expression(expression, 10) == expected


def test_a_document_keeps_everything_else():
    """Labels and texts are not times, whatever they are called, and with speed 1 nothing changes."""
    rule = {"alert": "A", "expr": "x > 5", "for": "1m", "labels": {"for": "1m"}, "annotations": {"interval": "1m"}}
    document = {"groups": [{"interval": "15s", "rules": [rule]}]}

    assert faster(document, 1) == document
    assert faster(document, 10) == {"groups": [{"interval": "1500ms", "rules": [{**rule, "for": "6s"}]}]}


@pytest.mark.slow
@pytest.mark.needs_tool("promtool")
def test_the_rules_see_the_same_in_a_fifth_of_the_time():
    """Over the recorded overload, each alert and each recorded series is the same at the same moment of it."""
    series, steps = replayed(BUNDLED, has_slo=True, has_log=True, has_metrics=True)
    groups = groups_at_worst()
    as_it_was = Evaluation(series, steps, STEP, EVALUATION, groups, (EVERYTHING,))
    fast = Evaluation(series, steps, STEP / SPEED, EVALUATION // SPEED, faster(groups, SPEED), (EVERYTHING,))
    with promtool() as tool:
        expected, found = (each[EVERYTHING] for each in evaluate(tool, (as_it_was, fast)))

    assert {"VllmCapacityExhausted", "VllmEngineCrashed"} <= {
        dict(labels).get("alertname") for samples in expected.values() for labels in samples
    }
    assert [moment * SPEED for moment in found] == list(expected)
    for moment, samples in expected.items():
        assert found[moment // SPEED] == pytest.approx(samples, nan_ok=True), moment
