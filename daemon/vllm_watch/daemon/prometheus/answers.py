# SPDX-License-Identifier: Apache-2.0
"""What Prometheus' HTTP API answers (``/api/v1``), also in VictoriaMetrics, Thanos and Mimir: JSON to series."""

from __future__ import annotations

import math

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec

from vllm_watch.daemon.support.printable import printable


_LONGEST_ERROR = 300

T = TypeVar("T")


class PromSeries(NamedTuple):
    """One series of a range: its labels (the name as ``__name__``), and values by the moment of the query's step."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


class PromAlert(msgspec.Struct, rename="camel"):
    """One alert of a rule; `active_at` is when its condition began to hold."""

    labels: dict[str, str]
    state: Literal["pending", "firing"]
    annotations: dict[str, str] = {}
    active_at: datetime | None = None


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Alerts(msgspec.Struct):
    alerts: list[PromAlert]


class _Answer(msgspec.Struct, Generic[T]):
    data: T
    status: Literal["success"] = "success"


class _Rejection(msgspec.Struct):
    error: str = ""


_DECODE_MATRIX = msgspec.json.Decoder(_Answer[_Matrix]).decode
_DECODE_ALERTS = msgspec.json.Decoder(_Answer[_Alerts]).decode
_DECODE_NAMES = msgspec.json.Decoder(_Answer[list[str]]).decode
_DECODE_REJECTION = msgspec.json.Decoder(_Rejection).decode


def parse_matrix(body: bytes) -> tuple[PromSeries, ...]:
    """
    Parse the answer to a range query; values that are no number (``NaN``) are left out.

    Raises:
        ValueError: It is no such answer.
    """
    return _decoded(_read_matrix, body)


def parse_alerts(body: bytes) -> tuple[PromAlert, ...]:
    """
    Parse the alerts that are pending or firing.

    Raises:
        ValueError: It is no such answer.
    """
    return tuple(_decoded(_DECODE_ALERTS, body).data.alerts)


def parse_names(body: bytes) -> tuple[str, ...]:
    """
    Parse the values of a label.

    Raises:
        ValueError: It is no such answer.
    """
    return tuple(_decoded(_DECODE_NAMES, body).data)


def parse_rejection(body: bytes) -> str | None:
    """Return why a query was rejected, in the words of the answer; `None` if it has none."""
    try:
        return printable(_DECODE_REJECTION(body).error[:_LONGEST_ERROR]) or None
    except msgspec.DecodeError:
        return None


def _read_matrix(body: bytes) -> tuple[PromSeries, ...]:
    return tuple(PromSeries(each.metric, _numbers(each.values)) for each in _DECODE_MATRIX(body).data.result)


def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    try:
        return decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ValueError(f"the answer is not that of a Prometheus: {printable(str(error))}") from error


def _numbers(values: list[tuple[float, str]]) -> tuple[tuple[float, float], ...]:
    return tuple([(at, value) for at, text in values if math.isfinite(value := float(text))])
