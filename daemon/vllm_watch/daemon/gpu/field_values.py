# SPDX-License-Identifier: Apache-2.0
"""The value of a field as NVML gives it: a union, and a number that says which part of it counts."""

from __future__ import annotations

from typing import Protocol

from vllm_watch.daemon.gpu.codes import NOT_SUPPORTED, SUCCESS
from vllm_watch.daemon.gpu.quantities import Field


_PARTS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""The part of nvmlValue_t by nvmlValueType_t."""

_NOT_AVAILABLE = frozenset({0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, -1})
"""All bits set: NVML's way to say that it does not know."""

_WIDE = frozenset({2, 3, 4})


class FieldValue(Protocol):
    """nvmlFieldValue_t."""

    nvmlReturn: int  # noqa: N815  # NVML's name.
    valueType: int  # noqa: N815  # NVML's name.
    value: object


def number_of(field: Field, given: FieldValue) -> tuple[int, float]:
    """Return the code of a field, and its value if the code is that of success, else 0."""
    if given.nvmlReturn != SUCCESS:
        return given.nvmlReturn, 0.0
    part = _PARTS.get(given.valueType)
    if part is None or (field.wide and given.valueType not in _WIDE):
        return NOT_SUPPORTED, 0.0
    number = getattr(given.value, part)
    if number in _NOT_AVAILABLE or (field.positive and number <= 0):
        return NOT_SUPPORTED, 0.0
    return SUCCESS, number * field.times / field.per
