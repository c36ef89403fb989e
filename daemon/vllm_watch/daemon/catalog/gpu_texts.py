# SPDX-License-Identifier: Apache-2.0
"""What the codes of GPUs mean, in sentences and in the few words of a table's cell."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.catalog.event_texts import xid_text
from vllm_watch_parsers.kernel_messages import BY_CODE, SWITCH_CODES, XID_ACTIONS, XidClass


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
