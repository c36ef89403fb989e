# SPDX-License-Identifier: Apache-2.0
"""
What a GPU's driver and the kernel report, as closed lists of label values, and the words for each on all screens.

NVIDIA's names of the same are in `gpu/` (the driver's library); the kernel's messages, with the values of the labels
`xid` and `class`, are in `vllm_watch_parsers.kernel_messages`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

from vllm_watch_parsers.kernel_messages import BY_CODE, SWITCH_CODES, XID_ACTIONS, XidClass


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

GRAVE_XIDS: frozenset[XidClass] = frozenset({"reset", "reboot", "link"})
"""The classes of errors after which a GPU needs somebody, for which the alert GpuXid fires."""

STATE_PROBLEMS: Mapping[str, str] = {
    "lost": "the driver does not reach it. Look for Xid messages in the kernel's log.",
    "reset_required": "it needs a reset.",
}
"""What is wrong with a GPU that is not ok."""

ACTION_PROBLEMS: Mapping[str, str] = {
    "reset": "the driver recommends a reset.",
    "reboot": "the driver recommends to boot the machine again.",
    "drain_p2p": "the driver recommends to end what uses it together with other GPUs.",
    "drain_and_reset": "the driver recommends to end what uses it, and a reset.",
    "recover_imex_domain": "the driver recommends to recover its IMEX domain, which links GPUs of several machines.",
    "bus_reset": "the driver recommends a reset of its PCIe bus.",
    "system_reboot": "the driver recommends to boot this machine again, and those that it is linked to.",
    "other": "the driver recommends an action: nvidia-smi -q shows which.",
}
"""What the driver recommends, if it does."""

REMAP_FAILED = "failing memory could not be replaced by spare memory. Replace the GPU."
REMAP_PENDING = "failing memory is replaced by spare memory at the next reset."
NOT_SHOWN = "the driver does not show it."

STATE_WORDS: Mapping[str, str] = {"lost": "LOST", "reset_required": "RESET"}
ACTION_WORDS: Mapping[str, str] = {
    "reset": "RESET",
    "reboot": "REBOOT",
    "drain_p2p": "DRAIN P2P",
    "drain_and_reset": "DRAIN",
    "recover_imex_domain": "IMEX",
    "bus_reset": "BUS RESET",
    "system_reboot": "REBOOT",
    "other": "ACTION",
}
REMAP_FAILED_WORD = "REPLACE"
OK_WORD = "ok"
NOT_READ_WORD = "not read"
"""A table's cell says what is wrong with a GPU in capital letters: its state, else what to do."""

THROTTLING_WORDS: Mapping[str, str] = {
    "power_cap": "power cap",
    "thermal": "heat",
    "hw_thermal": "HW heat",
    "power_brake": "power brake",
    "sync_boost": "sync boost",
    "board": "board limit",
    "reliability": "reliability",
}
"""Why clocks are lowered."""

NORMAL_THROTTLING = "power_cap"
"""A GPU runs at its power limit during a prefill; any other reason deserves a look."""

GPU_CHANGES: Mapping[GpuState, str] = {
    "ok": "{} is back",
    "lost": "{} is lost: the driver does not reach it",
    "reset_required": "{} needs a reset",
}
"""The states of a GPU, as changes; what is in braces is the GPU."""


def gpu_text(state: str, place: str) -> str:
    """Return a change of the state of a GPU at a place in words."""
    return next(text for known, text in GPU_CHANGES.items() if known == state).format(f"GPU {place}")


def xid_text(code: str, place: str) -> str:
    """Return an error of a GPU at a place, by its code, in words."""
    name = f"Xid {code}" if code.isdigit() else "SXid" if code in SWITCH_CODES else "GPU error"
    return f"{name} of {place}: {BY_CODE[code].meaning}"


def gpu_name(number: float | None, place: str | None, uuid: str) -> str:
    """Return how a GPU is called: by its number and place, or by its UUID where these are not known."""
    if number is None or not place:
        return uuid
    return f"{'MIG instance of ' if uuid.startswith('MIG-') else ''}GPU {number:.0f} ({place})"


def xid_problem(code: str, place: str) -> str:
    """Return a sentence on an error of the last hour that the kernel has reported of the GPU at a place."""
    whose = "NVSwitch" if code in SWITCH_CODES else "GPU"
    what = xid_text(code, f"{whose} {place}" if place else "a GPU")
    return f"in the last hour the kernel reported {what}. {XID_ACTIONS[BY_CODE[code].group]}"
