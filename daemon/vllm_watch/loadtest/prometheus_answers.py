# SPDX-License-Identifier: Apache-2.0
"""What Prometheus' HTTP API answers (``/api/v1``), also in VictoriaMetrics, Thanos and Mimir: JSON to series."""

from __future__ import annotations

import math

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

import msgspec

from vllm_watch.support.printable import printable


_LONGEST_ERROR = 300

T = TypeVar("T")


class PromSeries(NamedTuple):
    """One series of a range: its labels (the name as ``__name__``), and values by the moment of the query's step."""

    labels: Mapping[str, str]
    values: tuple[tuple[float, float], ...]


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct, Generic[T]):
    data: T


class _Rejection(msgspec.Struct):
    error: str = ""


_DECODE_MATRIX = msgspec.json.Decoder(_Answer[_Matrix]).decode
_DECODE_NAMES = msgspec.json.Decoder(_Answer[list[str]]).decode
_DECODE_REJECTION = msgspec.json.Decoder(_Rejection).decode


def parse_matrix(body: bytes) -> tuple[PromSeries, ...]:
    """
    Parse the answer to a range query; values that are no number (``NaN``) are left out.

    Raises:
        ValueError: It is no such answer.
    """
    try:
        answer = _DECODE_MATRIX(body)
        return tuple(PromSeries(each.metric, _numbers(each.values)) for each in answer.data.result)
    except (msgspec.DecodeError, ValueError) as error:
        raise ValueError(f"the answer is not that of a Prometheus: {printable(str(error))}") from error


def parse_names(body: bytes) -> tuple[str, ...]:
    """
    Parse the values of a label.

    Raises:
        ValueError: It is no such answer.
    """
    try:
        return tuple(_DECODE_NAMES(body).data)
    except msgspec.DecodeError as error:
        raise ValueError(f"the answer is not that of a Prometheus: {printable(str(error))}") from error


def parse_rejection(body: bytes) -> str | None:
    """Return why a query was rejected, in the words of the answer; `None` if it has none."""
    try:
        return printable(_DECODE_REJECTION(body).error[:_LONGEST_ERROR]) or None
    except msgspec.DecodeError:
        return None


def _numbers(values: list[tuple[float, str]]) -> tuple[tuple[float, float], ...]:
    return tuple([(at, value) for at, text in values if math.isfinite(value := float(text))])
