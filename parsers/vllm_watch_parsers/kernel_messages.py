# SPDX-License-Identifier: Apache-2.0
"""
What the kernel's log says of GPUs: NVIDIA's Xid and SXid errors, GPUs that fell off the bus, and AMD's equivalents.

The classes follow NVIDIA's catalog of Xid errors (https://docs.nvidia.com/deploy/xid-errors/, "Analyzing the Xid
catalog", for Ampere and later); the numbers are those of the driver's ``nverror.h``. The lines of AMD are those of the
Linux kernel's ``drivers/gpu/drm/amd``. Only messages of the kernel itself may be given to this module: any program can
write such a text to the system's log.
"""

from __future__ import annotations

import re

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args


XidClass = Literal["app", "follow", "reset", "reboot", "link", "vm", "update", "check", "verdict", "unknown"]
"""What is to be done, in groups."""

XID_CLASSES: tuple[XidClass, ...] = get_args(XidClass)

XID_ACTIONS: Mapping[XidClass, str] = {
    "app": (
        "Restart the server: its process on this GPU has ended, or cannot use the GPU any more. If one GPU alone "
        "reports it again and again, test that GPU."
    ),
    "follow": "Nothing by itself: look for the error that caused it, and check that tokens still flow.",
    "reset": "Stop what uses the GPU, then reset it (all GPUs together in a system with NVSwitches). Else reboot.",
    "reboot": "Reboot the machine. If it happens again, check power, cables, risers and firmware; else replace it.",
    "link": "Reset the GPUs that are linked. If it happens again, reseat or replace the one that reports it.",
    "vm": "Restart the virtual machine.",
    "update": "Install a driver that fits: that of the virtual machine and that of its host belong together.",
    "check": "Check the power cables and the platform's settings.",
    "verdict": "Do what the line says: it is the driver's own advice.",
    "unknown": "Look the number up in NVIDIA's catalog of Xid errors.",
}
"""What to do, by class."""


class KernelCode(NamedTuple):
    """
    A kind of message.

    Args:
        code: The label `xid`: the number of an Xid, or a name.
        group: What is to be done.
        meaning: What it says, in a few words that stand after a colon.
    """

    code: str
    group: XidClass
    meaning: str


OTHER = "other"
"""The code of an Xid that the table does not have."""

GPU_XID = "gpu_xid"
"""The label `event` of all these messages in `log_events_total`."""


def _xids(group: XidClass, meaning: str, *numbers: int) -> tuple[KernelCode, ...]:
    return tuple(KernelCode(str(number), group, meaning) for number in numbers)


XID_CODES: tuple[KernelCode, ...] = (
    *_xids("app", "a GPU that stopped processing", 8),
    *_xids("app", "invalid commands in a push buffer", 11, 25, 32),
    *_xids("app", "an exception in a kernel, often of a program error", 13),
    *_xids("follow", "an error that the driver made up for a test", 14),
    *_xids("app", "a page fault on the GPU, often of a program error", 31),
    *_xids("follow", "an error of the driver's firmware", 37, 38),
    *_xids("app", "an error of a copy engine", 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
    *_xids("follow", "a channel that was stopped after an error", 43),
    *_xids("follow", "a fault during a context switch", 44),
    *_xids("follow", "the clean-up after an earlier error", 45),
    *_xids("reset", "a GPU that stopped processing", 46),
    *_xids("reset", "an uncorrectable memory error (ECC)", 48),
    *_xids("check", "a power cable that is not connected", 54),
    *_xids("app", "an error of the security engine", 60),
    *_xids("reset", "the controller of power management stopped", 62),
    *_xids("follow", "memory that will be replaced by spare memory at the next reset", 63),
    *_xids("reset", "memory that could not be marked for replacement", 64),
    *_xids("follow", "an illegal access by the driver", 66, 67),
    *_xids("app", "an error of a video or JPEG engine", 68, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 142),
    *_xids("app", "an invalid command to the graphics engine", 69),
    *_xids("link", "an NVLink error", 74),
    *_xids("update", "a virtual GPU that cannot be started", 78),
    *_xids("reboot", "the GPU has fallen off the bus", 79),
    *_xids("app", "corrupted commands", 80),
    *_xids("follow", "a high rate of corrected memory errors", 92),
    *_xids("follow", "its settings were written too often", 93),
    *_xids("app", "an uncorrectable memory error that one process was stopped for", 94),
    *_xids("reset", "an uncorrectable memory error that may concern every process", 95),
    *_xids("follow", "a test message of the management bus", 106, 107),
    *_xids("follow", "an error of NVLink that followed another one", 108, 137),
    *_xids("reset", "a context switch that took too long", 109),
    *_xids("reset", "a security fault", 110),
    *_xids("reset", "its system processor (GSP) does not answer", 119),
    *_xids("reset", "an error of its system processor (GSP)", 120),
    *_xids("follow", "an error of the link between chips (C2C)", 121),
    *_xids("reset", "a link could not be trained", 136),
    *_xids("reset", "an unrecovered memory error (ECC)", 140),
    *_xids("follow", "an error of CUDA's fast path", 141),
    *_xids("reset", "the GPU could not be initialized", 143),
    *_xids("link", "a fatal error of NVLink 5", *range(144, 151)),
    *_xids("vm", "an error of a key's rotation", 151),
    *_xids("follow", "an error of a deep learning accelerator (DLA)", 152, 153),
    *_xids("verdict", "another recovery action", 154),
    KernelCode("154_reset", "reset", "the recovery action is now a reset"),
    KernelCode("154_reboot", "reboot", "the recovery action is now a reboot"),
    *_xids("reset", "an NVLink error that the software found", 155),
    *_xids("reset", "a resource that is retired at the next reset", 156),
    *_xids("follow", "a resource that could not be retired", 157),
    *_xids("reset", "a timeout that ends the GPU's work", 158),
    *_xids("check", "an error of the link to the processor", 159),
    *_xids("follow", "a memory channel that is retired", 160, 161),
    *_xids("check", "a change in power smoothing", 162, 163, 164, 165),
    *_xids("check", "traffic or an interrupt that confidential computing does not allow", 166, 170),
    *_xids("reboot", "a fatal timeout of PCIe", 167),
    *_xids("check", "errors in memory that is set aside, which needs ECC to be on", 168),
    *_xids("unknown", "its security controller (SEC2) has halted", 169),
    *_xids("follow", "the place of an uncorrectable memory error", 171, 172),
    KernelCode(OTHER, "unknown", "an Xid that this release does not know"),
    KernelCode("nvlink_nonfatal", "follow", "an error of NVLink 5 that is not fatal"),
    KernelCode("sxid_fatal", "link", "a fatal error of an NVSwitch"),
    KernelCode("sxid", "follow", "an error of an NVSwitch that is not fatal"),
    KernelCode("amd_hang", "app", "a queue of the GPU that hangs"),
    KernelCode("amd_reset", "app", "a reset of the GPU, which succeeded"),
    KernelCode("amd_reset_failed", "reboot", "a reset of the GPU, which failed"),
    KernelCode("amd_scheduler", "reboot", "the firmware of the scheduler (MES) does not answer"),
    KernelCode("amd_uncorrectable", "reset", "an uncorrectable memory error"),
)
"""All kinds of messages, each with what it means. Labels, texts and the runbook's table are made of it."""

BY_CODE: Mapping[str, KernelCode] = {each.code: each for each in XID_CODES}


SWITCH_CODES = frozenset({"sxid_fatal", "sxid"})
"""Those of an NVSwitch, which links all GPUs of a machine."""


class GpuError(NamedTuple):
    """
    A line about an error.

    Args:
        pci: The place of the GPU or switch, as `pci_address` writes it; empty if the line has none.
        code: What it is: a code of `XID_CODES`.
        number: The number in the line, of an Xid or SXid.
    """

    pci: str
    code: str
    number: int | None = None


class GpuUuid(NamedTuple):
    """A line about which GPU is at a place; the driver prints it before the first error."""

    pci: str
    uuid: str


KernelEvent = GpuError | GpuUuid

_PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.[0-7])?"

_ADDRESS = re.compile(_PCI)
# A MIG instance stands in the parentheses or after them.
_XID = re.compile(rf"NVRM: Xid \({_PCI}(?: [^)]{{0,60}})?\)(?: [^,]{{0,60}}?)?: (\d{{1,4}})(?=[, ]|$)")
# The units of NVLink 5 print how severe it is; the driver's names of units are `MSE_WATCHDOG` and `MSE degraded`.
_NONFATAL = re.compile(r", [A-Z]\w{1,30}(?: \w{1,30})? Nonfatal ", re.ASCII)
_NVLINK_5 = range(144, 151)
_NVLINK_NONFATAL = "nvlink_nonfatal"
_ACTION = re.compile(r", GPU recovery action changed from 0x[0-9a-f]{1,4} \([^)]{0,60}\) to 0x([0-9a-f]{1,4})\b")
_ACTIONS = {"1": "154_reset", "2": "154_reboot"}
"""What the driver recommends at once; with the other actions the GPU still works."""
_NO_ACTION = "0"
_FALLEN = re.compile(rf"NVRM: GPU (?:at )?{_PCI}:? (?:GPU )?has fallen off the bus")
_FALLEN_NAMELESS = re.compile(r"NVRM: GPU has fallen off the bus")
_NAMED = re.compile(rf"NVRM: The NVIDIA GPU {_PCI}")
_FALLEN_END = re.compile(r"(?:NVRM: )?fallen off the bus and is not responding to commands")
_UUID = re.compile(rf"NVRM: GPU at {_PCI}: (GPU-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})")
_SXID = re.compile(rf"nvidia-nvswitch\d{{1,3}}: SXid \({_PCI}\): (\d{{1,6}}), (Fatal|Non-fatal|Severity \d)")
_AMD = re.compile(rf"amdgpu {_PCI}: (?:amdgpu: )?(.*)")
_AMD_OLD_HANG = re.compile(r"\[drm:amdgpu_job_timedout \[amdgpu\]\] \*ERROR\* ring \S{1,32} timeout")
_AMD_CODES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"ring \S{1,32} timeout"), "amd_hang"),
    (re.compile(r"GPU reset\(\d{1,6}\) succeeded"), "amd_reset"),
    (re.compile(r"GPU reset\(\d{1,6}\) failed|GPU reset end with ret = -"), "amd_reset_failed"),
    (re.compile(r"MES failed to respon(?:d to|se) msg=|MES might be in unrecoverable state"), "amd_scheduler"),
)
_AMD_PART = r"(?:\{\d{1,20}\} ?)?(?:socket: (\d{1,4}),? )?(?:die: (\d{1,4}),? )?"
_AMD_ERRORS = re.compile(
    _AMD_PART + r"(\d{1,18}) (new )?uncorrectable hardware errors detected in (?:total in )?(\w{1,32}) block"
)
_AMD_FALSE_STEP = 1_048_560
"""A total that is a multiple of this is an error of the query, not of the memory."""

_LINES_OF_FALLEN = 3
_MAX_TOTALS = 1024


def pci_address(text: str) -> str:
    """
    Return a PCI address as ``domain:bus:device``, with the fewest digits that the kernel writes; empty if it is none.

    ``PCI:0000:9b:00``, ``00000000:9B:00.0`` and ``0000:9b:00.0`` are one place.
    """
    found = _ADDRESS.fullmatch(text.strip())
    return _canonical(found[1]) if found else ""


def code_of(number: int) -> str:
    """Return the code of an Xid's number: itself, or `OTHER`."""
    return str(number) if str(number) in BY_CODE else OTHER


class KernelMessages:
    """
    Reads the kernel's messages about GPUs, in order.

    Some say something only with those before them: a line that is broken in three, and totals that are printed again
    whenever somebody asks for them.
    """

    def __init__(self) -> None:
        self._named: tuple[str, int] = ("", 0)
        """The GPU that a line has named that was not ended, and for how many more lines it may be."""
        self._totals: dict[tuple[str, ...], int] = {}
        """The uncorrectable errors of a part of an AMD GPU that were printed last."""

    def parse(self, message: str) -> KernelEvent | None:
        """
        Return what a message of the kernel reports about a GPU; most often nothing.

        Args:
            message: The text without level and time; it may have several lines.
        """
        if message.startswith("NVRM: "):
            return self._parse_nvidia(message)
        if message.startswith("nvidia-nvswitch"):
            return _parse_switch(message)
        if message.startswith(("amdgpu ", "[drm:amdgpu")):
            return self._parse_amd(message)
        return None

    def _parse_nvidia(self, message: str) -> KernelEvent | None:
        pci, lines = self._named
        self._named = (pci, lines - 1) if lines > 1 else ("", 0)
        if found := _XID.match(message):
            number = int(found[2])
            code = _xid_code(number, message, found.end())
            return None if code is None else GpuError(_canonical(found[1]), code, number)
        if found := _UUID.match(message):
            return GpuUuid(_canonical(found[1]), found[2])
        if found := _FALLEN.match(message):
            return GpuError(_canonical(found[1]), "79")
        if _FALLEN_NAMELESS.match(message):
            return GpuError("", "79")
        if found := _NAMED.match(message):
            pci, lines = _canonical(found[1]), _LINES_OF_FALLEN
            self._named = pci, lines - 1
        if lines and any(_FALLEN_END.search(line) for line in message.split("\n", _LINES_OF_FALLEN)):
            self._named = ("", 0)
            return GpuError(pci, "79")
        return None

    def _parse_amd(self, message: str) -> KernelEvent | None:
        if _AMD_OLD_HANG.match(message):
            return GpuError("", "amd_hang")
        found = _AMD.match(message)
        if found is None:
            return None
        pci, text = _canonical(found[1]), found[2]
        for pattern, code in _AMD_CODES:
            if pattern.match(text):
                return GpuError(pci, code)
        errors = _AMD_ERRORS.match(text)
        if errors is None:
            return None
        socket, die, number, is_new, block = errors.groups("")
        if is_new:
            return GpuError(pci, "amd_uncorrectable") if int(number) else None
        return self._note_total((pci, socket, die, block), int(number))

    def _note_total(self, part: tuple[str, ...], total: int) -> KernelEvent | None:
        """Take in how many errors a part has had; it is news only if they have become more."""
        if total % _AMD_FALSE_STEP == 0:
            return None
        before = self._totals.get(part, 0)
        if part in self._totals or len(self._totals) < _MAX_TOTALS:
            self._totals[part] = total
        return GpuError(part[0], "amd_uncorrectable") if total > before else None


def _xid_code(number: int, message: str, end: int) -> str | None:
    """Return the code of an Xid whose number ends there; `None` if it reports that nothing is to be done any more."""
    if number in _NVLINK_5 and _NONFATAL.match(message, end):
        return _NVLINK_NONFATAL
    action = _ACTION.match(message, end)
    if action is None:
        return code_of(number)
    return None if action[1] == _NO_ACTION else _ACTIONS.get(action[1], code_of(number))


def _parse_switch(message: str) -> KernelEvent | None:
    found = _SXID.match(message)
    if found is None:
        return None
    is_fatal = found[3] not in {"Non-fatal", "Severity 0"}
    return GpuError(_canonical(found[1]), "sxid_fatal" if is_fatal else "sxid", int(found[2]))


def _canonical(address: str) -> str:
    domain, bus, device = (int(part, 16) for part in address.split(":"))
    return f"{domain:04x}:{bus:02x}:{device:02x}"
