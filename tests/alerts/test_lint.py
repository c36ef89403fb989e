# SPDX-License-Identifier: Apache-2.0
"""The linter catches each fault that it is for, and the shipped rules have none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.lint import KNOWN, lint
from tests.alerts.shapes import REQUEST_BOUNDS
from tests.support.recordings import bodies_of
from tests.support.yaml_files import load_yaml


ROOT = Path(__file__).parents[2]
RULES = ROOT / "alerts" / "rules"

GOOD = "vllm_watch_requests_running > 5"


def shipped():
    """Return the shipped rule files."""
    return {path.name: load_yaml(path.read_text(encoding="utf-8")) for path in sorted(RULES.glob("*.yml"))}


def faults(expr, description="", before=(), after=()):
    """Return the faults of one alert, with rules recorded before and after it."""
    alert = {"alert": "A", "expr": expr, "labels": {"severity": "info"}, "annotations": {"description": description}}
    recorded = [[{"record": name, "expr": text} for name, text in rules] for rules in (before, after)]
    group = {"name": "g", "rules": [*recorded[0], alert, *recorded[1]]}
    return [finding.fault for finding in lint({"rules.yml": {"groups": [group]}})]


BAD = {
    "a counter's name without _total": (
        "rate(vllm_watch_preemptions[5m]) > 0",
        "there is no series vllm_watch_preemptions",
    ),
    "an invented series": ("vllm_watch_request_errors_total > 0", "there is no series vllm_watch_request_errors_total"),
    "vLLM's own name": ("vllm:num_requests_waiting > 5", "there is no series vllm:num_requests_waiting"),
    "an invented label": (
        'rate(vllm_watch_requests_finished_total{finish_reason="abort"}[5m]) > 0',
        "vllm_watch_requests_finished_total has no label finish_reason",
    ),
    "a state that is none": (
        'vllm_watch_engine_state{state="wedged"} == 1',
        "state of vllm_watch_engine_state is never wedged",
    ),
    "an event that is none": (
        'increase(vllm_watch_log_events_total{event=~"engine_dead|oom"}[5m]) > 0',
        "event of vllm_watch_log_events_total is never oom",
    ),
    "a bare counter": ("vllm_watch_preemptions_total > 5", "vllm_watch_preemptions_total is a counter and is compared"),
    "a bare counter above nothing": (
        "vllm_watch_preemptions_total > 0",
        "vllm_watch_preemptions_total is a counter and stands bare",
    ),
    "a counter's average": (
        "avg_over_time(vllm_watch_preemptions_total[5m]) > 5",
        "avg_over_time() of the counter vllm_watch_preemptions_total",
    ),
    "a gauge's rate": (
        "rate(vllm_watch_requests_waiting[5m]) > 1",
        "rate() of the gauge vllm_watch_requests_waiting",
    ),
    "milliseconds against seconds": (
        "histogram_quantile(0.95, rate(vllm_watch_time_to_first_token_seconds_bucket[5m])) > 2000",
        "2000.0 s is so long that milliseconds may be meant",
    ),
    "a percentage against a ratio": ("vllm_watch_kv_cache_usage_ratio > 90", "90.0 is no ratio from 0 to 1"),
    "a state that is more than 1": (
        'vllm_watch_engine_state{state="down"} > 0.5',
        "0.5 is neither 0 nor 1",
    ),
    "a threshold between the buckets' bounds": (
        "histogram_quantile(0.95, rate(vllm_watch_queue_time_seconds_bucket[5m])) > 0.1",
        "0.1 s is no bound of the histogram: the quantile there is a guess",
    ),
    "buckets without a rate": (
        "histogram_quantile(0.95, vllm_watch_queue_time_seconds_bucket) > 1",
        "histogram_quantile() wants rated buckets with their le",
    ),
    "buckets without their bounds": (
        "histogram_quantile(0.95, sum without (le) (rate(vllm_watch_queue_time_seconds_bucket[5m]))) > 1",
        "histogram_quantile() wants rated buckets with their le",
    ),
    "an average over the fleet": (
        "avg(vllm_watch_requests_waiting) > 5",
        "avg drops labels of the server: (configured), instance, job, server",
    ),
    "a sum that loses the configured labels": (
        "sum by (server, job, instance) (vllm_watch_requests_waiting) > 5",
        "sum drops labels of the server: (configured)",
    ),
    "ratios added up": ("sum without (engine) (vllm_watch_kv_cache_usage_ratio) > 0.9", "ratios are added up"),
    "a server's engine lost": ("max without (engine) (vllm_watch_requests_waiting) > 5", "loses engine"),
    "a zero that vanishes": (
        "vllm_watch_source_up == 0",
        "vllm_watch_source_up == 0 says nothing once vllm_watch_source_up is gone, and nothing else does",
    ),
    "a clamped rate": (
        "clamp_min(rate(vllm_watch_preemptions_total[5m]), 1) > 2",
        "clamp_min on a rate: what is below it is never seen",
    ),
    "what is missing read as nothing": (
        "vllm_watch_requests_waiting or vector(0)",
        "or vector(): what is missing is read as a number",
    ),
    "a join on a label that one side has not": (
        "vllm_watch_requests_running > on (engine) group_left vllm_watch_slo_time_to_first_token_seconds",
        "on () names engine, which one side has not",
    ),
    "a join that two daemons break": (
        "vllm_watch_requests_running * on (server) group_left vllm_watch_source_up > 5",
        "many-to-many at *: samples may differ in (configured), instance, job, source",
    ),
    "a join that one engine more breaks": (
        "vllm_watch_requests_running / ignoring (engine) vllm_watch_max_running_requests > 1",
        "many-to-many at /: samples may differ in engine",
    ),
    "sides that never match": (
        "vllm_watch_requests_running and vllm_watch_source_up == 1",
        "nothing ever matches: only one side has engine, model_name, source",
    ),
    "an ignored label that is not there": (
        "vllm_watch_requests_running and ignoring (rank) vllm_watch_requests_waiting",
        "ignoring () names rank, which no side has",
    ),
    "a good engine taken for its neighbour": (
        "vllm_watch_requests_running > 5 and on (server) vllm_watch_requests_waiting > 5",
        "and matches samples that differ in (configured), engine, instance, job, model_name",
    ),
    "units that do not fit": (
        "vllm_watch_requests_running > vllm_watch_kv_cache_usage_ratio",
        "> of different units: requests and ratio",
    ),
    "a group by a label that is not there": (
        "max without (rank) (vllm_watch_requests_running) > 5",
        "max names a label that is not there: rank",
    ),
    "a function that is not judged": ("stddev_over_time(vllm_watch_requests_running[5m]) > 5", "stddev_over_time() is"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_expressions_are_caught(case):
    """Every fault of an expression is found, in a rule that has it."""
    expr, fault = BAD[case]
    assert [found for found in faults(expr) if found.startswith(fault)]


BAD_TEXTS = {
    "a function that there is not": (
        GOOD,
        "{{ $value | humanizePercent }}",
        "there is no template function humanizePercent",
    ),
    "a label that there is not": (GOOD, "{{ $labels.pod }}", "$labels.pod is never there"),
    "a percentage of requests": (GOOD, "{{ $value | humanizePercentage }}", "humanizePercentage of what is no ratio"),
    "a duration of a ratio": (
        "vllm_watch_kv_cache_usage_ratio > 0.9",
        "{{ $value | humanizeDuration }}",
        "humanizeDuration of what is no seconds",
    ),
    "the value of the wrong side": (
        'vllm_watch_engine_state{state="serving"} == 1 and ignoring (state) vllm_watch_requests_waiting > 5',
        "{{ $value }} requests wait",
        "$value is always the same: the other side was meant",
    ),
    "a value of two things": (
        "vllm_watch_requests_waiting > 5 or vllm_watch_kv_cache_usage_ratio > 0.9",
        "{{ $value }}",
        "$value has several units: ratio, requests",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_bad_texts_are_caught(case):
    """Every fault of an annotation is found, in one that has it."""
    expr, text, fault = BAD_TEXTS[case]
    assert faults(expr, text) == [fault]


def test_good_rules_have_no_faults():
    """What is right is not complained of: filters, a new counter, a join by all labels, a quantile, marked units."""
    assert not faults(
        GOOD, '{{ $labels.server }}: {{ $value | printf "%.0f" }}{{ with $labels.engine }} {{ . }}{{ end }}'
    )
    assert not faults(
        "vllm_watch_admission_rejections_total > 0 unless vllm_watch_admission_rejections_total offset 5m"
    )
    assert not faults(
        "vllm_watch_requests_running / vllm_watch_max_running_requests > 0.9", "{{ $value | humanizePercentage }}"
    )
    assert not faults(
        "histogram_quantile(0.95, rate(vllm_watch_time_to_first_token_seconds_bucket[5m]))"
        " > ignoring (model_name, engine) group_left vllm_watch_slo_time_to_first_token_seconds",
        "{{ $value | humanizeDuration }}",
    )
    assert not faults(
        'label_replace(vllm_watch_requests_waiting > 5, "what", "requests", "", "")'
        ' or label_replace(vllm_watch_kv_cache_usage_ratio > 0.9, "what", "of the KV cache", "", "")',
        "{{ $value }} {{ $labels.what }}",
    )


def test_recording_comes_before_use():
    """What a group records is recorded before another of its rules records from it, and nothing from itself."""
    record = ("engine:double", "engine:single * 2")
    single = ("engine:single", "vllm_watch_requests_running")
    assert not faults("engine:double > 5", before=[single, record])
    assert "engine:single is recorded after it is used" in faults("engine:double > 5", before=[record, single])
    assert "is recorded from itself" in faults(GOOD, before=[("engine:a", "engine:b"), ("engine:b", "engine:a")])


def test_alerts_use_what_their_group_has_recorded():
    """An alert before the rule that records what it needs would come an evaluation later."""
    record = ("engine:single", "vllm_watch_requests_running")
    assert faults("engine:single > 5", after=[record]) == ["engine:single is recorded after it is used"]
    assert not faults("engine:single > 5", before=[record])


def test_a_zero_is_paired_with_an_absence():
    """A rule on zero is enough where another asks whether the series is still there."""
    rules = [
        {"alert": "Down", "expr": "vllm_watch_source_up == 0"},
        {
            "alert": "Gone",
            "expr": "vllm_watch_source_up offset 10m unless vllm_watch_source_up",
        },
    ]
    assert not lint({"rules.yml": {"groups": [{"name": "g", "rules": rules}]}})


def test_the_shipped_rules_have_no_faults():
    """No shipped rule has any fault that the linter knows, but for those that are meant."""
    assert not lint(shipped())


def test_every_fault_that_is_meant_is_there():
    """What is excused is found without the excuse: an excuse for nothing would hide the next fault."""
    assert {(finding.rule, finding.fault) for finding in lint(shipped(), known={})} == set(KNOWN)


def test_the_bounds_are_those_of_vllm():
    """The linter's bounds of the histograms of requests are those of a recorded page."""
    text = max(bodies_of("stall"), key=len).decode()
    bounds = {
        float(line.split('le="')[1].split('"')[0])
        for line in text.splitlines()
        if line.startswith("vllm:request_queue_time_seconds_bucket") and "+Inf" not in line
    }
    assert bounds == REQUEST_BOUNDS
