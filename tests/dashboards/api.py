# SPDX-License-Identifier: Apache-2.0
"""A Prometheus' HTTP API, as Grafana's data source uses it."""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import NamedTuple

import requests

from tests.support.waiting import SECONDS


class QueryError(Exception):
    """Prometheus refused to answer, or warned about its answer; the message is its own."""


class Series(NamedTuple):
    """One series of an answer: its labels, the name as ``__name__``, and its values by time (seconds)."""

    labels: Mapping[str, str]
    values: Mapping[float, float]


class Api:
    """
    Asks a Prometheus.

    Raises (all methods):
        QueryError: There is no answer without an error or a warning.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False  # Loopback is asked for, whatever proxy there is.
        self._session.headers["Connection"] = "close"  # Nobody has to let go of one that is kept.

    def instant(self, expr: str, at: float) -> list[Series]:
        """Return what an expression is at one time."""
        return _series(self._ask("query", {"query": expr, "time": at}))

    def range(self, expr: str, start: float, end: float, step: float) -> list[Series]:
        """Return what an expression is at every step."""
        return _series(self._ask("query_range", {"query": expr, "start": start, "end": end, "step": step}))

    def label_values(self, label: str, match: str | None, start: float, end: float) -> list[str]:
        """Return a label's values, of the series that match if a selector is given."""
        selected = {"match[]": match} if match else {}
        return self._ask(f"label/{label}/values", {"start": start, "end": end, **selected})

    def _ask(self, endpoint: str, parameters: Mapping[str, object]):
        url = f"{self._url}/api/v1/{endpoint}"
        if endpoint.startswith("label/"):  # This one has no POST.
            answer = self._session.get(url, params=parameters, timeout=SECONDS).json()
        else:
            answer = self._session.post(url, data=parameters, timeout=SECONDS).json()
        if answer["status"] != "success":
            raise QueryError(answer["error"])
        if answer.get("warnings"):
            raise QueryError("; ".join(answer["warnings"]))
        return answer["data"]


def _series(data: Mapping[str, object]) -> list[Series]:
    if data["resultType"] == "scalar":
        at, text = data["result"]
        return [Series({}, {at: float(text)})]
    return [
        Series(each["metric"], {at: float(text) for at, text in each.get("values") or [each["value"]]})
        for each in data["result"]
    ]


def has_data(series: Series) -> bool:
    """Whether any of a series' values is a number."""
    return any(math.isfinite(value) for value in series.values.values())
