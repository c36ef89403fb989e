# SPDX-License-Identifier: Apache-2.0
"""The runbook's tables of the kernel's messages about GPUs, made of the parsers' table of codes."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from vllm_watch_parsers.kernel_messages import XID_ACTIONS, XID_CODES, KernelCode, XidClass


RUNBOOK = Path(__file__).parent / "runbooks" / "GpuXid.md"
_BEGIN, _END = "<!-- codes -->\n", "<!-- end of codes -->\n"

_ORDER: tuple[XidClass, ...] = (
    "unknown", "follow", "verdict", "check", "update", "vm", "app", "link", "reset", "reboot",
)  # fmt: skip
"""From what needs the least to what needs the most."""


def with_tables(text: str) -> str:
    """Return the runbook's text with the tables as they are now."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{_classes()}\n{_codes()}\n{_END}{after}"


def _classes() -> str:
    rows = [f"| `{group}` | {XID_ACTIONS[group]} |\n" for group in _ORDER]
    return "".join(["| class | what to do |\n", "|---|---|\n", *rows])


def _codes() -> str:
    """Return a row for the codes beside each other that mean the same."""
    rows = []
    for (group, meaning), codes in groupby(XID_CODES, lambda each: (each.group, each.meaning)):
        rows.append(f"| {_names(list(codes))} | `{group}` | {meaning} |\n")
    return "".join(["| code | class | what the kernel reports |\n", "|---|---|---|\n", *rows])


def _names(codes: list[KernelCode]) -> str:
    return ", ".join(each.code if each.code.isdigit() else f"`{each.code}`" for each in codes)
