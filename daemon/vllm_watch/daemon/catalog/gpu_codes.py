# SPDX-License-Identifier: Apache-2.0
"""
Closed lists of what a GPU's driver and the kernel report: states, reasons of throttling, actions, kinds of errors.

They are label values. NVIDIA's names of the same are in `gpu/` (the driver's library); the kernel's messages,
with the values of the labels `xid` and `class`, are in `vllm_watch_parsers.kernel_messages`.
"""

from __future__ import annotations

from typing import Literal, get_args


GpuState = Literal["ok", "lost", "reset_required"]
"""What the driver says of a GPU as a whole."""

GpuThrottling = Literal[
    "power_cap", "thermal", "hw_thermal", "power_brake", "sync_boost", "board", "reliability",
]  # fmt: skip
"""Why clocks are lowered. Under `power_cap` a GPU runs at its power limit, which is normal during a prefill."""

GpuAction = Literal[
    "none", "reset", "reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset", "system_reboot",
    "other",
]  # fmt: skip
"""What the driver itself recommends."""

GpuLinkError = Literal["replay", "recovery", "crc", "recovery_failed"]
GpuPcieError = Literal["replay", "fatal", "nonfatal", "correctable"]

GPU_STATES: tuple[GpuState, ...] = get_args(GpuState)
GPU_THROTTLING: tuple[GpuThrottling, ...] = get_args(GpuThrottling)
GPU_ACTIONS: tuple[GpuAction, ...] = get_args(GpuAction)
GPU_LINK_ERRORS: tuple[GpuLinkError, ...] = get_args(GpuLinkError)
GPU_PCIE_ERRORS: tuple[GpuPcieError, ...] = get_args(GpuPcieError)
