# SPDX-License-Identifier: Apache-2.0
"""The section of the machine's GPUs, and the names by which a server's GPUs are given."""

from __future__ import annotations

import re

from vllm_watch.daemon.config.model import GpuConfig
from vllm_watch.daemon.config.quoting import quote
from vllm_watch.daemon.config.section import Key, Section, duration_key, read_each, read_section
from vllm_watch.daemon.config.yaml_node import ConfigNode


MAX_COST_PER_HOUR = 1e6

MIN_PEAK_FLOPS, MAX_PEAK_FLOPS = 1e9, 1e18
"""A number below is one of tera operations, or a mistake."""

_OFF = GpuConfig(read="never", kernel_log="never")
_READ = ("auto", "always", "never")
_KERNEL_LOGS = ("journal", "/dev/kmsg", "never")
_HEX = "[0-9a-f]"
_UUID = re.compile(rf"(?:(gpu|mig)-)?({_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})")
_OLD_MIG = re.compile(rf"mig-gpu-({_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})((?:/\d{{1,3}}){{2}})")
_SERIAL = re.compile(r"amd-([0-9a-z][0-9a-z-]{3,39})", re.ASCII | re.IGNORECASE)
_PCI = re.compile(rf"(?:({_HEX}{{1,8}}):)?({_HEX}{{2}}):({_HEX}{{2}})(?:\.{_HEX})?")
_INDEX = re.compile(r"\d{1,3}", re.ASCII)
_PEAK = re.compile(r"\d{1,19}(\.\d{1,9})?(e\+?\d{1,2})?", re.ASCII | re.IGNORECASE)
_COST = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def parse_gpu(text: str) -> str:
    """
    Return a GPU as its driver names it: ``GPU-…`` or ``MIG-…``, ``0000:9b:00``, or a number.

    One of AMD's is named as the rules for AMD's exporter name it: ``AMD-`` and its serial number.

    Raises:
        ValueError: It is none of these.
    """
    lower, serial = text.strip().lower(), _SERIAL.fullmatch(text.strip())
    uuid, mig, pci = _UUID.fullmatch(lower), _OLD_MIG.fullmatch(lower), _PCI.fullmatch(lower)
    if uuid is not None:
        return f"{(uuid[1] or 'gpu').upper()}-{uuid[2]}"
    if mig is not None:
        return f"MIG-GPU-{mig[1]}{mig[2]}"
    if serial is not None:
        return f"AMD-{serial[1]}"
    if pci is not None:
        return f"{int(pci[1] or '0', 16):04x}:{pci[2]}:{pci[3]}"
    if _INDEX.fullmatch(lower) is not None:
        return str(int(lower))
    raise ValueError(
        "expected a GPU's UUID such as GPU-…, its number, its PCI address or AMD- and a serial number, got "
        + quote(text)
    )


def read_gpu(node: ConfigNode) -> GpuConfig:
    """Read a mapping, or the word ``off``."""
    if node.is_mapping:
        return read_section(node, GpuConfig, _GPU)
    if node.written() != "off":
        raise node.error(f"expected off or a mapping, got {quote(node.written())}")
    return _OFF


def read_gpus(node: ConfigNode) -> tuple[str, ...]:
    """Read the GPUs of a server."""
    gpus = read_each(node.items(), lambda each: each.parsed(each.written(), parse_gpu))
    if not gpus:
        raise node.error("needs at least one GPU; without this key the server's processes tell")
    for gpu in gpus:
        if gpus.count(gpu) > 1:
            raise node.error(f"{gpu} is there twice")
    return tuple(gpus)


def read_cost(node: ConfigNode) -> float:
    """Read what a server costs in an hour."""
    text = node.written()
    if _COST.fullmatch(text) is None or not 0 < float(text) <= MAX_COST_PER_HOUR:
        raise node.error(f"expected a number above 0, up to {MAX_COST_PER_HOUR:,.0f}, got {quote(text)}")
    return float(text)


def read_peak_flops(node: ConfigNode) -> float:
    """Read a number of operations per second."""
    text = node.written()
    if _PEAK.fullmatch(text) is None or not MIN_PEAK_FLOPS <= float(text) <= MAX_PEAK_FLOPS:
        raise node.error(f"expected operations per second from 1e9 to 1e18, such as 989e12, got {quote(text)}")
    return float(text)


def _one_of(words: tuple[str, ...], meaning: str) -> Key:
    """Return a key whose value is one of some words."""

    def read(node: ConfigNode) -> str:
        text = node.written()
        if text not in words:
            raise node.error(f"expected {', '.join(words[:-1])} or {words[-1]}, got {quote(text)}")
        return text

    return Key(read, ", ".join(f"`{word}`" for word in words), meaning, words[0])


_GPU = {
    "read": _one_of(
        _READ,
        "Whether the driver's library is read: `auto`, if the extra `gpu` is installed; `always`, so that its absence "
        "is reported; `never`.",
    ),
    "interval": duration_key("1s", "60s", "The time from one reading of all GPUs to the next.", "5s"),
    "kernel_log": _one_of(
        _KERNEL_LOGS, "Where the kernel's messages about GPUs (Xid) are read: the journal, `/dev/kmsg` or nowhere."
    ),
}

GPU = Key(
    read_gpu,
    "`off` or mapping",
    "How this machine's GPUs are read: see [GPUs](#gpus). `off` reads neither the driver nor the kernel's messages.",
    "{interval: 10s}",
    Section(GpuConfig, _GPU),
)
GPUS = Key(
    read_gpus,
    "list of UUIDs, numbers or PCI addresses",
    "The GPUs that the server uses, where its processes do not tell: see [GPUs](#gpus). Numbers are those of "
    "`nvidia-smi`; a UUID needs no driver here.",
    "[GPU-5ac2e1b4-0c7e-4d3a-9f1b-2a3b4c5d6e7f]",
)
PEAK_FLOPS = Key(
    read_peak_flops,
    "number",
    "How many floating point operations per second a device of the server does at most, at the precision that the "
    "model runs in, without sparsity. With `--enable-mfu-metrics` `flops_utilization_ratio` is computed from it.",
    "989e12",
)
COST_PER_HOUR = Key(
    read_cost,
    "number",
    "What the server costs in an hour, in any currency. The cost of a million tokens is computed from it.",
    "12.50",
)
