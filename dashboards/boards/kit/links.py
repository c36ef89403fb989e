# SPDX-License-Identifier: Apache-2.0
"""Where the dashboards lead: to each other, to vLLM's own, and to the runbooks of alerts."""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import dashboard as builders

from boards.kit.texts import Texts
from boards.kit.thresholds import runbook


TAG = "vllm-watch"
VLLM_TAG = "vllm"
"""vLLM's own dashboards link to each other by this tag."""

_KEPT = "${__url_time_range}&${datasource:queryparam}"


def runbooks(texts: Texts, *alerts: str) -> list[builders.DashboardLink]:
    """Return a panel's links to what to do when its quantity is wrong."""
    return [
        builders.DashboardLink(f"{texts.name('runbook')} {alert}").url(runbook(alert)).target_blank(True)
        for alert in alerts
    ]


def to_board(title: str, uid: str, **variables: str) -> Mapping[str, object]:
    """
    Return a link from a table's cell to a dashboard, at the same time and data source.

    variables: values for the other dashboard's variables, such as ``${__data.fields.Server}``.
    """
    chosen = "".join(f"&var-{name}={value}" for name, value in variables.items())
    return {"title": title, "url": f"/d/{uid}?{_KEPT}{chosen}", "targetBlank": False}


def to_dashboard(title: str, uid: str) -> builders.DashboardLink:
    """Return a panel's link to another dashboard, at the same time and with the same values of all variables."""
    return builders.DashboardLink(title).url(f"/d/{uid}?${{__url_time_range}}&${{__all_variables}}")


def to_page(title: str, url: str) -> Mapping[str, object]:
    """Return a link from a table's cell to a page outside of Grafana, in a window of its own."""
    return {"title": title, "url": url, "targetBlank": True}
