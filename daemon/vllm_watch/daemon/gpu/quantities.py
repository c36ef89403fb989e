# SPDX-License-Identifier: Apache-2.0
"""
What is read of a GPU: the one table of series, each with where NVML has it and its unit there.

Drivers before 510 lack the functions that are called here for memory and processes, which are absent there.

Fields are the NVML_FI_DEV_… of nvml.h, which one call reads together. A series may have several sources: drivers and
cards differ, and the first that a card has is used. What changes slowly is read seldom, for each field may cost a
question to the card's own processor.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple


ALL_LINKS = 0xFFFF_FFFF
"""The scope of a field that is the sum over all NVLinks."""

LINK_COUNT = 91
ACTION = 230

SM_CLOCK = 1
CORE_SENSOR = 0
MEMORY_V2 = 0x0200_0028
"""The version of `nvmlMemory_v2_t`, in which memory in use is without what the driver reserves."""


class Field(NamedTuple):
    """
    A field.

    Args:
        number: Its id.
        per: So many of its unit are one of the series' unit.
        times: One of its unit is so many of the series' unit.
        scope: What it is of.
        per_link: Whether it is asked of each NVLink, and the sum counts.
        lasts: Whether a link that no longer answers counts with its last value: a counter must not decrease.
        wide: Whether only 64 bits of it can be used: fewer wrap several times between two readings.
        positive: Whether 0 means that the card does not know it.
    """

    number: int
    per: int = 1
    times: int = 1
    scope: int = 0
    per_link: bool = False
    lasts: bool = False
    wide: bool = False
    positive: bool = False


class Call(NamedTuple):
    """
    A function of its own.

    Args:
        function: Its name in nvidia-ml-py.
        arguments: What it is given beside the GPU.
        part: The part of what it returns; empty if that is a number.
        per: So many of its unit are one of the series' unit.
        times: One of its unit is so many of the series' unit.
    """

    function: str
    arguments: tuple[int, ...] = ()
    part: str = ""
    per: int = 1
    times: int = 1


Source = Field | Call
Quantities = Mapping[str, tuple[Source, ...]]
"""Where series are from, the best source first, by their names without the prefix and their labels beside the GPU's."""


_PERCENT, _MILLI, _NANO = 100, 1000, 1_000_000_000
_KIB, _MEGA = 1024, 1_000_000

MEMORY: Quantities = {
    "gpu_memory_total_bytes": (Call("nvmlDeviceGetMemoryInfo", (MEMORY_V2,), "total"),),
    "gpu_memory_used_bytes": (Call("nvmlDeviceGetMemoryInfo", (MEMORY_V2,), "used"),),
}
"""What is known of a MIG instance, too."""

EACH_TIME: Quantities = {
    **MEMORY,
    "gpu_busy_ratio": (Call("nvmlDeviceGetUtilizationRates", (), "gpu", _PERCENT),),
    "gpu_memory_busy_ratio": (Call("nvmlDeviceGetUtilizationRates", (), "memory", _PERCENT),),
    "gpu_power_watts": (Field(185, _MILLI), Call("nvmlDeviceGetPowerUsage", per=_MILLI)),
    "gpu_energy_joules_total": (Field(83, _MILLI),),
    "gpu_temperature_celsius core": (Call("nvmlDeviceGetTemperature", (CORE_SENSOR,)),),
    "gpu_temperature_celsius memory": (Field(82, positive=True),),
    "gpu_sm_clock_hertz": (Call("nvmlDeviceGetClockInfo", (SM_CLOCK,), times=_MEGA),),
    "gpu_throttled_seconds_total power_cap": (Field(74, _NANO),),
    # Older drivers count heat as one reason.
    "gpu_throttled_seconds_total thermal": (Field(269, _NANO), Field(75, _NANO)),
    "gpu_throttled_seconds_total hw_thermal": (Field(270, _NANO),),
    "gpu_throttled_seconds_total power_brake": (Field(271, _NANO),),
    "gpu_throttled_seconds_total sync_boost": (Field(76, _NANO),),
    "gpu_throttled_seconds_total board": (Field(77, _NANO),),
    "gpu_throttled_seconds_total reliability": (Field(79, _NANO),),
    "gpu_recovery_action": (Field(ACTION),),
}
"""What is read in every reading."""

SELDOM: Quantities = {
    "gpu_power_limit_watts": (Field(190, _MILLI), Call("nvmlDeviceGetEnforcedPowerLimit", per=_MILLI)),
    "gpu_sm_clock_max_hertz": (Call("nvmlDeviceGetMaxClockInfo", (SM_CLOCK,), times=_MEGA),),
    "gpu_ecc_errors_total corrected boot": (Field(3),),
    "gpu_ecc_errors_total uncorrected boot": (Field(4),),
    "gpu_ecc_errors_total corrected life": (Field(5),),
    "gpu_ecc_errors_total uncorrected life": (Field(6),),
    "gpu_remapped_rows corrected": (Field(142),),
    "gpu_remapped_rows uncorrected": (Field(143),),
    "gpu_row_remap_pending": (Field(144),),
    "gpu_row_remap_failed": (Field(145),),
    "gpu_pcie_errors_total replay": (Field(94),),
    "gpu_pcie_errors_total correctable": (Field(173),),
    "gpu_pcie_errors_total nonfatal": (Field(179),),
    "gpu_pcie_errors_total fatal": (Field(180),),
    "gpu_pcie_bytes_total tx": (Field(197, wide=True),),
    "gpu_pcie_bytes_total rx": (Field(198, wide=True),),
}
"""What is read every `SELDOM_SECONDS`."""

_of_each_link = partial(Field, per_link=True, lasts=True)

# The first source is that of NVLink before version 5.
OF_LINKS: Quantities = {
    "gpu_nvlink_active_links": (Field(165, per_link=True),),
    "gpu_nvlink_errors_total replay": (_of_each_link(161),),
    "gpu_nvlink_errors_total recovery": (_of_each_link(162), _of_each_link(213)),
    "gpu_nvlink_errors_total crc": (_of_each_link(163),),
    "gpu_nvlink_errors_total recovery_failed": (_of_each_link(214),),
    "gpu_nvlink_bytes_total tx": (Field(138, times=_KIB, scope=ALL_LINKS), _of_each_link(202)),
    "gpu_nvlink_bytes_total rx": (Field(139, times=_KIB, scope=ALL_LINKS), _of_each_link(204)),
}
"""The same of a GPU that has NVLinks."""

SELDOM_SECONDS = 30.0
