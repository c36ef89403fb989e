# SPDX-License-Identifier: Apache-2.0
"""A small dashboard without faults, to be spoiled by tests."""

from __future__ import annotations

from typing import Any


DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLOR = "#56B4E9"
CHOSEN = 'instance=~"$daemon",server=~"$server",model_name=~"$model",engine=~"$engine"'


def target(expr: str, legend: str, ref: str = "A") -> dict[str, Any]:
    """Return a query over time."""
    return {
        "datasource": DATASOURCE,
        "expr": expr,
        "instant": False,
        "legendFormat": legend,
        "range": True,
        "refId": ref,
    }


def lines(number: int, title: str, *targets: dict[str, Any], **place: int) -> dict[str, Any]:
    """Return a panel with a time axis."""
    return {
        "datasource": DATASOURCE,
        "description": "What somebody should know about it.",
        "fieldConfig": {
            "defaults": {
                "custom": {"axisLabel": "req"},
                "min": 0,
                "noValue": "No data",
                "thresholds": {"mode": "absolute", "steps": [{"color": COLOR, "value": None}]},
                "unit": "short",
            },
            "overrides": [],
        },
        "gridPos": {"h": 8, "w": 12, "x": 0, "y": 1, **place},
        "id": number,
        "links": [],
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True}},
        "targets": list(targets),
        "title": title,
        "type": "timeseries",
    }


def figure(number: int, title: str, expr: str, **place: int) -> dict[str, Any]:
    """Return a panel with one number, of the end of the time range."""
    panel = lines(number, title, {**target(expr, "now"), "instant": True, "range": False}, **{"h": 4, "w": 3, **place})
    return {**panel, "type": "stat", "options": {"reduceOptions": {"calcs": ["last"]}}}


def query_variable(name: str, query: str) -> dict[str, Any]:
    """Return a variable that asks for a label's values."""
    return {
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "datasource": DATASOURCE,
        "includeAll": True,
        "label": name,
        "multi": True,
        "name": name,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "type": "query",
    }


def small() -> dict[str, Any]:
    """Return a new dashboard."""
    prompt, waiting = (f"vllm_watch_{name}{{{CHOSEN}}}" for name in ("prompt_tokens_total", "requests_waiting"))
    inner = 'instance=~"$daemon",server=~"$server"'
    return {
        "annotations": {
            "list": [
                {
                    "datasource": DATASOURCE,
                    "enable": True,
                    "expr": f'ALERTS{{alertstate="firing",{inner}}}',
                    "iconColor": COLOR,
                    "name": "Alerts",
                    "step": "15s",
                    "titleFormat": "{{alertname}}",
                },
                {
                    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
                    "enable": True,
                    "iconColor": COLOR,
                    "name": "Load tests",
                    "target": {"limit": 200, "matchAny": False, "tags": ["vllm-watch"], "type": "tags"},
                },
            ]
        },
        "description": "Two quantities.",
        "editable": True,
        "links": [{"tags": ["vllm-watch"], "title": "vllm-watch", "type": "dashboards"}],
        "panels": [
            {
                "collapsed": False,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": 0},
                "id": 1,
                "panels": [],
                "title": "All",
                "type": "row",
            },
            lines(2, "Prompt", target(f"rate({prompt}[$__rate_interval])", "{{server}} {{engine}}")),
            lines(3, "Waiting", target(waiting, "{{server}} {{engine}}"), x=12),
            {
                "collapsed": True,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": 9},
                "id": 4,
                "panels": [figure(5, "Waiting now", f"sum({waiting})", w=24, y=10)],
                "title": "More",
                "type": "row",
            },
        ],
        "schemaVersion": 41,
        "tags": ["vllm-watch"],
        "templating": {
            "list": [
                {"name": "datasource", "query": "prometheus", "type": "datasource", "label": "Data source"},
                query_variable("daemon", "label_values(vllm_watch_build_info, instance)"),
                query_variable("server", 'label_values(vllm_watch_source_up{instance=~"$daemon"}, server)'),
                query_variable("model", f"label_values(vllm_watch_engine_state{{{inner}}}, model_name)"),
                query_variable("engine", f"label_values(vllm_watch_engine_state{{{inner}}}, engine)"),
            ]
        },
        "title": "Small",
        "uid": "vllm-watch-small",
    }
