# SPDX-License-Identifier: Apache-2.0
"""The linter catches each fault that it is for, and the shipped rules have none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alerts.lint import KNOWN, lint
from tests.support.yaml_files import load_yaml


RULES = Path(__file__).parents[2] / "alerts" / "rules"


def shipped():
    """Return the shipped rule files."""
    return {path.name: load_yaml(path.read_text(encoding="utf-8")) for path in sorted(RULES.glob("*.yml"))}


def faults(expr, **recorded):
    """Return the faults of one alert, beside rules that record something."""
    rules = [{"record": name.replace("_", ":", 1), "expr": text} for name, text in recorded.items()]
    group = {"name": "g", "rules": [*rules, {"alert": "A", "expr": expr, "labels": {"severity": "info"}}]}
    return [finding.fault for finding in lint({"rules.yml": {"groups": [group]}})]


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("rate(vllm_watch_preemptions[5m]) > 0", "there is no series vllm_watch_preemptions"),
        ("vllm:num_requests_waiting > 5", "there is no series vllm:num_requests_waiting"),
        (
            'rate(vllm_watch_requests_finished_total{finish_reason="abort"}[5m]) > 0',
            "vllm_watch_requests_finished_total has no label finish_reason",
        ),
        ('vllm_watch_engine_state{state="wedged"} == 1', "state of vllm_watch_engine_state is never wedged"),
        (
            'increase(vllm_watch_log_events_total{event=~"engine_dead|oom"}[5m]) > 0',
            "event of vllm_watch_log_events_total is never oom",
        ),
        ("vllm_watch_preemptions_total > 5", "vllm_watch_preemptions_total is a counter and stands bare"),
        ("avg_over_time(vllm_watch_preemptions_total[5m]) > 5", "avg_over_time() of the counter vllm_watch_preempt"),
        ("rate(vllm_watch_requests_waiting[5m]) > 1", "rate() of the gauge vllm_watch_requests_waiting"),
        ("avg(vllm_watch_requests_waiting) > 5", "avg drops labels of the server: (configured), instance, job, server"),
        (
            "sum by (server, job, instance) (vllm_watch_requests_waiting) > 5",
            "sum drops labels of the server: (configured)",
        ),
        ("max without (rank) (vllm_watch_requests_running) > 5", "max names a label that is not there: rank"),
        (
            "vllm_watch_requests_running and ignoring (rank) vllm_watch_requests_waiting",
            "and matches by a label that is not there: rank",
        ),
    ],
)
def test_a_fault_is_found(expr, fault):
    """Series, labels and values that there are not, functions of the wrong kind, and labels of a server that go."""
    assert [found for found in faults(expr) if found.startswith(fault)]


@pytest.mark.parametrize(
    "expr",
    [
        "vllm_watch_requests_running > 5",
        "vllm_watch_admission_rejections_total > 0 unless vllm_watch_admission_rejections_total offset 5m",
        "histogram_quantile(0.9, rate(vllm_watch_queue_time_seconds_bucket[5m])) > on (server) group_left up",
        'label_replace(vllm_watch_requests_waiting > 5, "what", "requests", "", "") and on (what) up',
    ],
)
def test_what_is_right_is_no_fault(expr):
    """Filters, a new counter, a quantile, a label that the rule makes."""
    assert not faults(expr)


def test_what_is_recorded_is_known():
    """A rule may use what another one records, and no rule records from itself."""
    assert not faults(
        "engine:double > 5", engine_double="engine:single * 2", engine_single="vllm_watch_requests_running"
    )
    assert "is recorded from itself" in faults("up == 1", engine_a="engine:b", engine_b="engine:a")


def test_the_shipped_rules_have_no_faults_but_those_that_are_meant():
    """No shipped rule has a fault that the linter knows, and no excuse is left that excuses nothing."""
    assert {tuple(finding) for finding in lint(shipped(), known={})} == set(KNOWN)
