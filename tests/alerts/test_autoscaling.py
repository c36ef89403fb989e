# SPDX-License-Identifier: Apache-2.0
"""What the examples of autoscalers ask for, over recorded servers: one number for each model, and no false one."""

from __future__ import annotations

import re

from pathlib import Path

import pytest

from tests.alerts.replay import EVALUATION, evaluated_together, replayed
from tests.support.recordings import recording_path
from tests.support.yaml_files import load_yaml

from vllm_watch.analysis.replay.recording import BUNDLED


pytestmark = [pytest.mark.slow, pytest.mark.needs_tool("promtool")]

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes" / "autoscaling"
MODEL = "Qwen3.6-27B"
RUNNING, QUEUED = "vllm_watch_requests_running", "engine:vllm_watch_requests_queued"
LOADED, KILLED, BACK = 270, 540, 585
"""Seconds of the bundled recording: under overload; without an engine; with its successor."""


def of_keda():
    """Return the query of the ScaledObject."""
    (trigger,) = load_yaml((FOLDER / "keda-scaledobject.yaml").read_text(encoding="utf-8"))["spec"]["triggers"]
    assert "false" == trigger["metadata"]["ignoreNullValues"]
    return re.sub(r'model_name="[^"]*"', f'model_name="{MODEL}"', trigger["metadata"]["query"])


def of_the_adapter():
    """Return the query that prometheus-adapter makes for the HorizontalPodAutoscaler."""
    (metric,) = load_yaml((FOLDER / "hpa.yaml").read_text(encoding="utf-8"))["spec"]["metrics"]
    (rule,) = load_yaml((FOLDER / "prometheus-adapter.yml").read_text(encoding="utf-8"))["externalRules"]
    assert rule["name"]["as"] == metric["external"]["metric"]["name"]
    assert ["model_name"] == list(metric["external"]["metric"]["selector"]["matchLabels"])
    return rule["metricsQuery"].replace("<<.LabelMatchers>>", f'namespace="vllm",model_name="{MODEL}"')


@pytest.fixture(scope="module")
def answers():
    """What each query gives over one server that is overloaded and killed, and beside another one of its model."""
    day, steps = replayed(BUNDLED, has_slo=False, has_log=True, has_metrics=True)
    other, _ = replayed(recording_path("dp1"), has_slo=False, has_log=True, has_metrics=True)
    alone = {_of_the_namespace(name): values for name, values in day.items()}
    beside = {_of_the_namespace(name): (values + ["_"] * steps)[:steps] for name, values in other.items()}
    queries = (of_keda(), of_the_adapter(), RUNNING, QUEUED)
    return evaluated_together(alone, steps, queries), evaluated_together({**alone, **beside}, steps, queries)


def _of_the_namespace(series):
    return series.replace("{", '{namespace="vllm",', 1)


@pytest.mark.parametrize("query", [of_keda(), of_the_adapter()], ids=["keda", "adapter"])
def test_a_model_has_one_number_while_a_server_of_it_is_up(answers, query):
    """It is what runs and what waits for capacity, also while that is 0, and is nothing while no engine is up."""
    found, running, queued = (answers[0][each] for each in (query, RUNNING, QUEUED))

    for moment, now in found.items():
        known = bool(running.get(moment) and queued.get(moment))
        assert len(now) <= 1
        assert now or not known or moment < 2 * EVALUATION, moment
    assert total(found[LOADED]) > 100
    assert {} == found[KILLED]
    assert 1 == len(found[BACK])
    assert 0 in {total(now) for now in found.values() if now}


@pytest.mark.parametrize("query", [of_keda(), of_the_adapter()], ids=["keda", "adapter"])
def test_servers_of_a_model_are_added_up(answers, query):
    """Of two servers, one of which has two engines, there is one number, and it is what runs and waits at both."""
    both = answers[1]
    moments = [moment for moment, now in both[RUNNING].items() if len(now) == 3 and moment >= 3 * EVALUATION]

    assert len(moments) > 5
    for moment in moments:
        assert 1 == len(both[query][moment])
        near = (moment, moment - EVALUATION)  # Recorded an evaluation ago at most.
        least, most = (
            sum(pick(total(both[each][then]) for then in near) for each in (RUNNING, QUEUED)) for pick in (min, max)
        )
        assert least <= total(both[query][moment]) <= most


def total(now):
    """Return the sum of all samples of a moment."""
    return sum(now.values())
