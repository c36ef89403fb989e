# SPDX-License-Identifier: Apache-2.0
"""
Where the dashboards lead: to each other, to vLLM's own, to the runbooks of alerts, and to a server's logs and GPUs.

The last are labels of ``server_links_info``, as vllm-watch is configured. Grafana fills the variables of a link, and
none in what it has filled in; so a query writes the time into the URL. A link whose whole URL is a label's value is
there only where the label is: Grafana leaves a link without a URL out.
"""

from __future__ import annotations

from collections.abc import Mapping

from grafana_foundation_sdk.builders import dashboard as builders

from boards.kit import promql
from boards.kit.panels import Key
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


URLS = {"logs": "logs_url", "gpu": "gpu_url"}
"""The labels with URLs, by what they lead to."""

_LINKS = promql.of_server("server_links_info")
_SERVER = "instance, server"


def timed(times: str, *labels: str) -> str:
    """
    Return a series with the URLs for each of `times`, which have the labels ``_from`` and ``_to``.

    times: of servers; their labels are in milliseconds since the epoch, and the URLs are of this time.
    labels: those that are kept beside ``instance`` and ``server``.
    """
    urls = ", ".join(URLS.values())
    found = f"{times} * on ({_SERVER}) group_left ({urls}) max by ({_SERVER}, {urls}) ({_LINKS})"
    for label in URLS.values():
        found = _with_time(found, label)
    return promql.only(found, "instance", "server", *labels, *URLS.values())


def over_range() -> str:
    """Return a series with the URLs for each server that has some, of the dashboard's time range."""
    times = f"max by ({_SERVER}) ({_LINKS})"
    for label in ("from", "to"):
        times = f'label_replace({times}, "_{label}", "${{__{label}}}", "", "")'
    return timed(times)


def pages(t: Texts) -> list[Mapping[str, object]]:
    """Return links from a cell to the logs and GPUs of its row, whose table has the columns of `hidden`."""
    return [to_page(t.name(f"open_{kind}"), f"${{__data.fields.{label}:raw}}") for kind, label in URLS.items()]


def hidden(t: Texts) -> list[Key]:
    """Return the columns that `pages` reads."""
    return [Key(label, t.name(kind), hidden=True) for kind, label in URLS.items()]


def url_cell(label: str, word: str, title: str) -> Key:
    """Return a column of a label with URLs that shows a word, which leads there."""
    return Key(label, word, [to_page(title, "${__value.raw:raw}")], width=75, word=word)


def cells(t: Texts) -> list[Key]:
    """Return the columns with links to logs and GPUs."""
    return [url_cell(label, t.name(kind), t.name(f"open_{kind}")) for kind, label in URLS.items()]


def _with_time(expr: str, label: str) -> str:
    """Return series in whose URL the time stands in place of ``{from}`` and ``{to}``, or of their seconds."""
    joined = f'label_join({expr}, "_timed", " ", "{label}", "_from", "_to")'
    for form, millis in (("", ""), ("_seconds", "[0-9]{3}")):
        url, time = f"(.*)\\\\{{from{form}\\\\}}(.*)\\\\{{to{form}\\\\}}(.*)", f"([0-9]+){millis}"
        joined = f'label_replace({joined}, "{label}", "$1$4$2$5$3", "_timed", "{url} {time} {time}")'
    return joined
