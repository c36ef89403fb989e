# SPDX-License-Identifier: Apache-2.0
"""
What other exporters of GPUs call the quantities that the daemon shows, and in which unit.

Each table is for one exporter: a series of the daemon's (group "The GPUs under the servers"), its label if it has one
beside `gpu`, and what the exporter calls it, in each of its releases. What is not in a table cannot be had from that
exporter; the reasons are in alerts/README.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vllm_watch.daemon.gpu.device import ACTIONS


MEBI = " * 1048576"
WHOLE = " < 9e18"
"""Leaves out what DCGM has in place of a whole number that it does not know (from 0x7ffffffffffffff0)."""
KNOWN = " < 1e14"
"""Leaves out what DCGM has in place of any number that it does not know: 2^47, or the above."""
WARM = " > 0 < 1e14"
"""Leaves out, too, the 0 °C of a sensor that there is not."""
AMD_KNOWN = " < 65535"
"""Leaves out what AMD's library has in place of a number of 16 bits, or of more, that it does not know."""
AMD_THERE = " > 0 < 65535"
"""Leaves out, too, the 0 that AMD's exporter has for what the card or the partition does not measure."""


class Value(NamedTuple):
    """
    A quantity as an exporter has it.

    Args:
        names: What it is called: names of one and the same quantity, in different releases.
        unit: What turns it into the base unit, as PromQL that follows the value.
        kept: Which values are values, as a comparison.
        added: Names of quantities that are parts of the same: they are added, and without one of them there is no sum.
        beside: A name that has to be there, too, for the value to be what it seems.
        matchers: Matchers besides the exporter's, each with a comma before it.
        of_several: How one value is made of several of a GPU.
    """

    names: tuple[str, ...]
    unit: str = ""
    kept: str = ""
    added: tuple[str, ...] = ()
    beside: str = ""
    matchers: str = ""
    of_several: str = "max"


class Reading(NamedTuple):
    """
    A series that is recorded.

    Args:
        series: Its name as in the catalog, without the prefix.
        values: Where its value comes from; the first that is there counts.
        labels: Its labels besides `gpu`.
    """

    series: str
    values: tuple[Value, ...]
    labels: Mapping[str, str] = {}


class Label(NamedTuple):
    """A label of `gpu_info`: its name, its value as of `label_replace`, and the label and expression it comes from."""

    name: str
    value: str
    source: str = ""
    pattern: str = ""


class Identity(NamedTuple):
    """Samples that say which GPUs there are: a selector, and the labels that are made of theirs."""

    selector: str
    labels: tuple[Label, ...]


class Xids(NamedTuple):
    """
    Xid errors as an exporter has them.

    Args:
        events: What counts them by GPU and code.
        last: When each was last there; empty if the exporter does not say. Then it is the moment when the count grew.
        shown: Names of what is there of a GPU as long as the exporter is scraped.
    """

    events: str
    last: str = ""
    shown: tuple[str, ...] = ()


class Exporter(NamedTuple):
    """
    An exporter.

    Args:
        name: What it is called.
        file: The file of rules, without ``.yml``.
        known: The releases whose names these are.
        matchers: Matchers of the samples that are of a whole GPU.
        keys: What makes the label `gpu`; a later one prevails.
        identities: Where `gpu_info` comes from; the first that is there counts.
        readings: What is recorded besides.
        xids: Xid errors, if it has any.
    """

    name: str
    file: str
    known: str
    matchers: str
    keys: tuple[Label, ...]
    identities: tuple[Identity, ...]
    readings: tuple[Reading, ...]
    xids: Xids | None = None


def _reading(series: str, *values: Value, **labels: str) -> Reading:
    return Reading(series, values, labels)


def _readings(series: str, label: str, values: Mapping[str, tuple[Value, ...]]) -> tuple[Reading, ...]:
    """Return a series for each value of one label."""
    return tuple(Reading(series, found, {label: value}) for value, found in values.items())


def _actions(*names: str, kept: str = "") -> tuple[Reading, ...]:
    """Return the state set of what the driver recommends, of NVIDIA's numbers."""
    numbers = {
        **{action: f" == bool {number}" for number, action in ACTIONS.items()},
        "other": f" > bool {max(ACTIONS)}",
    }
    return tuple(
        _reading("gpu_recovery_action", Value(names, unit, kept), action=action) for action, unit in numbers.items()
    )


def _dcgm(*names: str) -> tuple[str, ...]:
    return tuple(f"DCGM_FI_{name}" for name in names)


def _nanoseconds(*names: str) -> Value:
    return Value(_dcgm(*names), " / 1e9", WHOLE)


def _count(*names: str) -> Value:
    return Value(_dcgm(*names), kept=WHOLE)


def _now(*names: str, unit: str = "") -> Value:
    return Value(_dcgm(*names), unit, KNOWN)


_DCGM_LABELS = (
    Label("index", "$1", "gpu", "(.+)"),
    Label("name", "$1", "modelName", "(.+)"),
    Label("name", "$1", "model_name", "(.+)"),
    Label("pci_bus_id", "$1", "pci_bus_id", r"0000(.+)\\.[0-9]+"),
    Label("driver_version", "$1", "DCGM_FI_DRIVER_VERSION", "(.+)"),
    Label("driver_version", "$1", "DCGM_FI_SYSTEM_DRIVER_VERSION", "(.+)"),
    Label("vendor", "nvidia"),
)
_WAYS = (("tx", "TX"), ("rx", "RX"))
_DCGM_ANY = '__name__=~"DCGM_FI_DEV_(GPU_TEMP|GPU_TEMP_CELSIUS)"'

DCGM = Exporter(
    "dcgm-exporter",
    "dcgm-exporter",
    "3.1 to 4.9, with their own names of DCGM 3 and 4",
    'GPU_I_ID="", nvlink=""',
    (Label("gpu", "$1", "gpu_uuid", "(.+)"), Label("gpu", "$1", "UUID", "(.+)")),
    (
        Identity(f'{{{_DCGM_ANY}, GPU_I_ID!=""}}', (*_DCGM_LABELS, Label("mig", "1"))),
        Identity(f'{{{_DCGM_ANY}, GPU_I_ID=""}}', (*_DCGM_LABELS, Label("mig", "0"))),
    ),
    (
        *_actions(*_dcgm("DEV_GET_GPU_RECOVERY_ACTION", "DEV_GPU_RECOVERY_ACTION"), kept=WHOLE),
        _reading(
            "gpu_busy_ratio",
            _now("DEV_GPU_UTIL", unit=" / 100"),
            # In DCGM 4.6 this name is a percentage. What stands beside it is a name that only later releases have.
            _now("DEV_GPU_UTIL_RATIO")._replace(beside="DCGM_FI_DEV_SM_CLOCK_HERTZ"),
        ),
        _reading("gpu_memory_busy_ratio", _now("DEV_MEM_COPY_UTIL", unit=" / 100"), _now("DEV_MEMORY_UTIL_RATIO")),
        _reading(
            "gpu_memory_total_bytes",
            _now("DEV_FB_TOTAL", unit=MEBI),
            _now("DEV_FB_CAPACITY_BYTES"),
            _now("DEV_FB_USED", unit=MEBI)._replace(added=_dcgm("DEV_FB_FREE", "DEV_FB_RESERVED")),
        ),
        _reading("gpu_memory_used_bytes", _now("DEV_FB_USED", unit=MEBI), _now("DEV_FB_USED_BYTES")),
        _reading("gpu_power_watts", _now("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS")),
        _reading("gpu_power_limit_watts", _now("DEV_ENFORCED_POWER_LIMIT", "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS")),
        _reading(
            "gpu_energy_joules_total",
            Value(_dcgm("DEV_TOTAL_ENERGY_CONSUMPTION"), " / 1000", WHOLE),
            _count("DEV_GPU_ENERGY_JOULES_TOTAL"),
        ),
        _reading("gpu_temperature_celsius", _now("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS"), sensor="core"),
        _reading(
            "gpu_temperature_celsius",
            Value(_dcgm("DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS"), kept=WARM),
            sensor="memory",
        ),
        _reading("gpu_sm_clock_hertz", _now("DEV_SM_CLOCK", unit=" * 1e6"), _now("DEV_SM_CLOCK_HERTZ")),
        _reading("gpu_sm_clock_max_hertz", _now("DEV_MAX_SM_CLOCK", unit=" * 1e6"), _now("DEV_SM_MAX_CLOCK_HERTZ")),
        *_readings(
            "gpu_throttled_seconds_total",
            "reason",
            {
                "power_cap": (
                    _nanoseconds("DEV_POWER_VIOLATION", "DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS"),
                    _now("DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL"),
                ),
                "thermal": (
                    _nanoseconds("DEV_THERMAL_VIOLATION", "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS"),
                    _now("DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL"),
                ),
                "hw_thermal": (_nanoseconds("DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS"),),
                "power_brake": (_nanoseconds("DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS"),),
                "sync_boost": (
                    _nanoseconds("DEV_SYNC_BOOST_VIOLATION", "DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS"),
                    _now("DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL"),
                ),
                "board": (_nanoseconds("DEV_BOARD_LIMIT_VIOLATION"), _now("DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL")),
                "reliability": (
                    _nanoseconds("DEV_RELIABILITY_VIOLATION"),
                    _now("DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL"),
                ),
            },
        ),
        *(
            _reading("gpu_ecc_errors_total", _count(f"DEV_ECC_{short}_{span}_TOTAL"), kind=kind, lifetime=lifetime)
            for span, lifetime in (("VOL", "boot"), ("AGG", "life"))
            for short, kind in (("SBE", "corrected"), ("DBE", "uncorrected"))
        ),
        *_readings(
            "gpu_remapped_rows",
            "kind",
            {
                "corrected": (_count("DEV_CORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_CORRECTABLE_TOTAL"),),
                "uncorrected": (_count("DEV_UNCORRECTABLE_REMAPPED_ROWS", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"),),
            },
        ),
        _reading("gpu_row_remap_pending", _count("DEV_ROW_REMAP_PENDING")),
        _reading("gpu_row_remap_failed", _count("DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED")),
        *_readings(
            "gpu_nvlink_errors_total",
            "kind",
            {
                "replay": (
                    _count("DEV_NVLINK_ERROR_DL_REPLAY", "DEV_NVLINK_REPLAY_TOTAL"),
                    _count("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DEV_NVLINK_REPLAY_ERROR_TOTAL"),
                ),
                "recovery": (
                    _count("DEV_NVLINK_ERROR_DL_RECOVERY", "DEV_NVLINK_RECOVERY_TOTAL"),
                    _count("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_TOTAL"),
                ),
                "crc": (
                    _count("DEV_NVLINK_ERROR_DL_CRC", "DEV_NVLINK_CRC_ERROR_TOTAL"),
                    *(
                        _count(f"DEV_NVLINK_CRC_FLIT_ERROR_{end}")._replace(
                            added=_dcgm(f"DEV_NVLINK_CRC_DATA_ERROR_{end}")
                        )
                        for end in ("COUNT_TOTAL", "TOTAL")
                    ),
                ),
                "recovery_failed": (
                    _count("DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "DEV_NVLINK_RECOVERY_FAILED_TOTAL"),
                ),
            },
        ),
        *_readings(
            "gpu_nvlink_bytes_total",
            "direction",
            {way: (_count(f"DEV_NVLINK_COUNT_{name}_BYTES", f"DEV_NVLINK_{name}_BYTES_TOTAL"),) for way, name in _WAYS},
        ),
        *_readings(
            "gpu_pcie_errors_total",
            "kind",
            {
                "replay": (_count("DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL"),),
                "correctable": (_count("DEV_PCIE_COUNT_CORRECTABLE_ERRORS", "DEV_PCIE_CORRECTABLE_ERROR_TOTAL"),),
            },
        ),
        *(
            _reading("gpu_pcie_bytes_total", _count(f"PROF_PCIE_{name}_BYTES_TOTAL"), direction=way)
            for way, name in _WAYS
        ),
    ),
    Xids("DCGM_EXP_XID_ERRORS_TOTAL", shown=_dcgm("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS")),
)


def _smi(*names: str, kept: str = "") -> Value:
    return Value(tuple(f"nvidia_smi_{name}" for name in names), kept=kept)


def _smi_throttled(name: str, reason: str) -> Reading:
    return _reading("gpu_throttled_seconds_total", _smi(f"clocks_event_reasons_counters_{name}_seconds"), reason=reason)


_SMI_LABELS = (
    Label("pci_bus_id", "$1", "pci_bus_id", r"0000(.+)\\.[0-9]+"),
    Label("vendor", "nvidia"),
)

NVIDIA_SMI = Exporter(
    "nvidia_gpu_exporter",
    "nvidia_gpu_exporter",
    "1.3 and later, with nvidia-smi or its NVML back end",
    "",
    (Label("gpu", "GPU-$1", "uuid", "(.+)"),),
    (
        Identity(
            "(nvidia_smi_gpu_info and on (instance, job, uuid) nvidia_smi_mig_mode_current == 1)",
            (*_SMI_LABELS, Label("mig", "1")),
        ),
        Identity("nvidia_smi_gpu_info", (*_SMI_LABELS, Label("mig", "0"))),
    ),
    (
        *_actions("nvidia_smi_gpu_recovery_action"),
        _reading("gpu_busy_ratio", _smi("utilization_gpu_ratio")),
        _reading("gpu_memory_busy_ratio", _smi("utilization_memory_ratio")),
        _reading("gpu_memory_total_bytes", _smi("memory_total_bytes")),
        _reading("gpu_memory_used_bytes", _smi("memory_used_bytes")),
        _reading("gpu_power_watts", _smi("power_draw_watts")),
        _reading("gpu_power_limit_watts", _smi("enforced_power_limit_watts")),
        _reading("gpu_energy_joules_total", _smi("energy_joules_total")),
        _reading("gpu_temperature_celsius", _smi("temperature_gpu"), sensor="core"),
        _reading("gpu_temperature_celsius", _smi("temperature_memory", kept=" > 0"), sensor="memory"),
        _reading("gpu_sm_clock_hertz", _smi("clocks_current_sm_clock_hz")),
        _reading("gpu_sm_clock_max_hertz", _smi("clocks_max_sm_clock_hz")),
        _smi_throttled("sw_power_cap", "power_cap"),
        _smi_throttled("sw_thermal_slowdown", "thermal"),
        _smi_throttled("hw_thermal_slowdown", "hw_thermal"),
        _smi_throttled("hw_power_brake_slowdown", "power_brake"),
        _smi_throttled("sync_boost", "sync_boost"),
        *(
            _reading("gpu_ecc_errors_total", _smi(f"ecc_errors_{kind}_{lasts}_total"), kind=kind, lifetime=lifetime)
            for lasts, lifetime in (("volatile", "boot"), ("aggregate", "life"))
            for kind in ("corrected", "uncorrected")
        ),
        _reading("gpu_remapped_rows", _smi("remapped_rows_correctable"), kind="corrected"),
        _reading("gpu_remapped_rows", _smi("remapped_rows_uncorrectable"), kind="uncorrected"),
        _reading("gpu_row_remap_pending", _smi("remapped_rows_pending")),
        _reading("gpu_row_remap_failed", _smi("remapped_rows_failure")),
    ),
    Xids("nvidia_smi_xid_errors_total", "nvidia_smi_xid_last_timestamp_seconds"),
)

_WHOLE_CARD = ', gpu_compute_partition_type=~"(?i)spx|none|"'
"""Of a card that is divided these are the first part's alone."""
_SHADERS = ', clock_type=~"(?i)(gpu_clock_type_)?system"'
_AMD_ANY = '__name__=~"gpu_used_vram|amd_gpu_used_vram", gpu_partition_id=~"0|NA|"'


def _amd(name: str, unit: str = "", kept: str = AMD_KNOWN, *, matchers: str = "", of_several: str = "max") -> Value:
    # The second is with the prefix that AMD's own charts configure.
    return Value((name, f"amd_{name}"), unit, kept, matchers=matchers, of_several=of_several)


_AMD_LABELS = (
    Label("index", "$1", "gpu_id", "(.+)"),
    Label("name", "$1", "card_model", "(.+)"),
    Label("name", "$1", "card_series", "(.+)"),
    Label("vendor", "amd"),
)

AMD = Exporter(
    "AMD device-metrics-exporter",
    "amd-device-metrics-exporter",
    "1.2 to 1.5, without a prefix or with `amd_`",
    'gpu_partition_id=~"0|NA|"',
    (Label("gpu", "AMD-$1", "serial_number", "(.+)"),),
    (
        Identity(f"{{{_AMD_ANY}{_WHOLE_CARD}}}", (*_AMD_LABELS, Label("mig", "0"))),
        Identity(f"{{{_AMD_ANY}}}", (*_AMD_LABELS, Label("mig", "1"))),
    ),
    (
        _reading("gpu_busy_ratio", _amd("gpu_gfx_activity", " / 100", matchers=_WHOLE_CARD)),
        _reading("gpu_memory_busy_ratio", _amd("gpu_umc_activity", " / 100", matchers=_WHOLE_CARD)),
        _reading("gpu_memory_total_bytes", _amd("gpu_total_vram", MEBI, " > 0 < 4294967295", matchers=_WHOLE_CARD)),
        _reading("gpu_memory_used_bytes", _amd("gpu_used_vram", MEBI, " < 4294967295", matchers=_WHOLE_CARD)),
        _reading(
            "gpu_power_watts",
            _amd("gpu_package_power", kept=AMD_THERE),
            _amd("gpu_average_package_power", kept=AMD_THERE),
        ),
        _reading("gpu_energy_joules_total", _amd("gpu_energy_consumed", " / 1e6", " > 0 < 1.8e19")),
        _reading(
            "gpu_temperature_celsius",
            _amd("gpu_junction_temperature", kept=AMD_THERE),
            _amd("gpu_edge_temperature", kept=AMD_THERE),
            sensor="core",
        ),
        _reading("gpu_temperature_celsius", _amd("gpu_memory_temperature", kept=AMD_THERE), sensor="memory"),
        # One for each die of the card.
        _reading("gpu_sm_clock_hertz", _amd("gpu_clock", " * 1e6", AMD_THERE, matchers=_SHADERS, of_several="avg")),
        _reading("gpu_sm_clock_max_hertz", _amd("gpu_max_clock", " * 1e6", AMD_THERE, matchers=_SHADERS)),
        *(
            _reading("gpu_ecc_errors_total", _amd(name, kept=" < 1.8e19"), kind=kind, lifetime="boot")
            for name, kind in (("gpu_ecc_correct_total", "corrected"), ("gpu_ecc_uncorrect_total", "uncorrected"))
        ),
        _reading("gpu_pcie_errors_total", _amd("pcie_replay_count", kept=" < 4294967295"), kind="replay"),
    ),
)

EXPORTERS = (DCGM, NVIDIA_SMI, AMD)
