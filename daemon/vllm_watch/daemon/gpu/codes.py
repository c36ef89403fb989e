# SPDX-License-Identifier: Apache-2.0
"""
What NVML's return codes mean here.

The codes are those of nvmlReturn_t in nvml.h: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING


if TYPE_CHECKING:  # The child that reads the driver imports this module, and nothing of the daemon's libraries.
    from vllm_watch.daemon.catalog.gpu_texts import GpuAction, GpuState
    from vllm_watch.daemon.catalog.reasons import GpuReason


SUCCESS = 0
INVALID = 2
NOT_SUPPORTED = 3

NEVER = frozenset({INVALID, NOT_SUPPORTED, 13, 25, 26})
"""
This card or driver will never answer: unknown field, not supported, no such function, another version, withdrawn.
"""

BROKEN: Mapping[int, GpuState] = {11: "reset_required", 15: "lost", 16: "reset_required"}
"""What the failure of any call about a GPU says of the GPU as a whole; 11 is trouble with its interrupts."""

ACTIONS: Mapping[int, GpuAction] = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
"""The driver's recommendation by value of field 230; newer drivers have more, which are ``other``."""

_REASONS: Mapping[int, GpuReason] = {
    4: "no_permission",
    9: "no_driver",
    12: "no_library",
    17: "no_permission",
    18: "driver_mismatch",
    28: "no_gpus",
    999: "no_permission",
}
_TAKEN_AWAY = frozenset({4, 17, 999})
"""After a success these mean that the devices were taken away; before it, that there were none to open."""


def reason_of(code: int, *, was_read: bool) -> GpuReason:
    """Return why GPUs cannot be read, by what a call returned that has to succeed, and whether they could be before."""
    if was_read and code in _TAKEN_AWAY:
        return "access_lost"
    return _REASONS.get(code, "access_lost" if was_read else "no_driver")
