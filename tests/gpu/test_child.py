# SPDX-License-Identifier: Apache-2.0
"""What the child process reads of GPUs in all conditions, from a stand-in for the driver's library."""

from __future__ import annotations

import re
import subprocess
import sys

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.gpu.children import child
from tests.support.fake_nvml import (
    GIB,
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    UNSIGNED_INT,
    Field,
    Scene,
    divided,
    geforce,
    h100,
    lost,
)
from tests.support.waiting import SECONDS

from vllm_watch.daemon.catalog.gpu_texts import GPU_ACTIONS
from vllm_watch.daemon.catalog.series import GPUS
from vllm_watch.daemon.gpu.child import RENEW_SECONDS
from vllm_watch.daemon.gpu.quantities import EACH_TIME, OF_LINKS, SELDOM, SELDOM_SECONDS
from vllm_watch.daemon.gpu.quantities import Field as TableField
from vllm_watch.daemon.gpu.reader import FailureMessage


OTHERS = {
    "gpu_info", "gpu_other_memory_bytes", "gpu_process_memory_bytes", "gpu_read_duration_seconds", "gpu_state", "gpus",
    "server_gpu_info",
}  # fmt: skip
"""Series that are made of what else a reading has."""

ROOT = Path(__file__).parents[2]
UUID = h100(0).uuid
ENERGY = ("gpu_energy_joules_total",)


def values_of(fake_nvml, gpu):
    """Return what a child says of one GPU."""
    fake_nvml.show(Scene([gpu]))
    with child() as started:
        return started.read()[gpu.uuid].values


def test_a_healthy_gpu_reports_all_series_in_base_units(fake_nvml):
    """Of a GPU in order, every value is there, in the unit of its series."""
    still = {83: Field(5_000_000_250), 138: Field(1024, scope=0xFFFF_FFFF), 139: Field(2048, scope=0xFFFF_FFFF)}
    moving = {74: Field(1_500_000_000), 197: Field(1 << 40), 198: Field(1 << 41), 269: Field(2_000_000_000)}
    fake_nvml.show(Scene([h100(0, fields={**still, **moving}, processes={7: 70 * GIB})], driver="580.95.05"))

    with child() as started:
        reading = started.read()[UUID]

    assert reading._replace(values={}) == (
        UUID, 0, "NVIDIA H100 80GB HBM3", "0000:18:00", "580.95.05", "nvidia", "0", "ok", {}, ((7, 70.0 * GIB),),
    )  # fmt: skip
    assert {" ".join(key): value for key, value in reading.values.items()} == {
        "gpu_busy_ratio": 0.93,
        "gpu_ecc_errors_total corrected boot": 2,
        "gpu_ecc_errors_total corrected life": 7,
        "gpu_ecc_errors_total uncorrected boot": 0,
        "gpu_ecc_errors_total uncorrected life": 1,
        "gpu_energy_joules_total": 5_000_000.25,
        "gpu_memory_busy_ratio": 0.41,
        "gpu_memory_total_bytes": 80 * GIB,
        "gpu_memory_used_bytes": 72 * GIB,
        "gpu_nvlink_active_links": 18,
        "gpu_nvlink_bytes_total rx": 2 * 1024 * 1024,
        "gpu_nvlink_bytes_total tx": 1024 * 1024,
        "gpu_nvlink_errors_total crc": 0,
        "gpu_nvlink_errors_total recovery": 0,
        "gpu_nvlink_errors_total replay": 0,
        "gpu_pcie_bytes_total rx": 1 << 41,
        "gpu_pcie_bytes_total tx": 1 << 40,
        "gpu_pcie_errors_total correctable": 5,
        "gpu_pcie_errors_total fatal": 0,
        "gpu_pcie_errors_total nonfatal": 0,
        "gpu_pcie_errors_total replay": 3,
        "gpu_power_limit_watts": 700,
        "gpu_power_watts": 640,
        "gpu_recovery_action none": 1,
        "gpu_remapped_rows corrected": 1,
        "gpu_remapped_rows uncorrected": 2,
        "gpu_row_remap_failed": 0,
        "gpu_row_remap_pending": 0,
        "gpu_sm_clock_hertz": 1_755_000_000,
        "gpu_sm_clock_max_hertz": 1_980_000_000,
        "gpu_temperature_celsius core": 61,
        "gpu_temperature_celsius memory": 68,
        "gpu_throttled_seconds_total board": 0,
        "gpu_throttled_seconds_total hw_thermal": 0,
        "gpu_throttled_seconds_total power_brake": 0,
        "gpu_throttled_seconds_total power_cap": 1.5,
        "gpu_throttled_seconds_total reliability": 0,
        "gpu_throttled_seconds_total sync_boost": 0,
        "gpu_throttled_seconds_total thermal": 2,
    }


def test_what_is_read_are_the_series_of_the_catalogue(fake_nvml):
    """Each value's series is in the catalogue with as many labels, and each series of a GPU's values is read."""
    values = values_of(fake_nvml, h100(0))

    of_driver = [each for each in GPUS.series if any(source.origin == "gpu" for source in each.sources)]
    labels = {each.name: len(each.labels) for each in of_driver if each.name not in OTHERS}
    assert labels == {name: 1 + len(rest) for name, *rest in values}


def numbers(text):
    """Return the numbers that a text names, "3 to 5" and "3, 4, 5" alike."""
    return {
        number
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", text)
        for number in range(int(first), int(last or first) + 1)
    }


def test_the_catalogue_names_the_fields_that_are_read():
    """The fields that METRICS.md has of a series are those that are read of it."""
    read = {}
    for key, sources in {**EACH_TIME, **SELDOM, **OF_LINKS}.items():
        fields = {source.number for source in sources if isinstance(source, TableField)}
        read.setdefault(key.split()[0], set()).update(fields)
    named = {
        each.name: {number for source in each.sources if source.origin == "gpu" for number in numbers(source.what)}
        for each in GPUS.series
    }

    assert {name: fields for name, fields in read.items() if fields} == {
        name: fields for name, fields in named.items() if fields
    }


def test_a_broken_gpu_is_told_and_the_others_are_read(fake_nvml):
    """A GPU about which calls fail has a state and no values, the others all of theirs; and it may come back."""
    whole = Scene([h100(index, processes={8: GIB}) for index in range(4)])
    fake_nvml.show(whole)
    with child() as started:
        started.read(0)
        broken = [lost(gpu, code) for gpu, code in zip(whole.gpus[1:], (LOST, RESET_REQUIRED, 11), strict=True)]
        fake_nvml.show(Scene([h100(0), *broken]))
        first, *others = started.read(5).values()
        fake_nvml.show(whole)
        again = started.read(10).values()

    assert (first.state, len(first.values)) == ("ok", 39)
    assert [each.state for each in others] == ["lost", "reset_required", "reset_required"]
    assert [(each.values, each.processes) for each in others] == [({}, None)] * 3
    assert [each.state for each in again] == ["ok"] * 4
    assert all(each.values[ENERGY] > 0 for each in again)


def test_while_a_gpu_is_broken_the_library_is_initialised_again_now_and_then(fake_nvml):
    """A GPU that works again only for those who open it anew is found; one that cannot be opened is told as a code."""
    fake_nvml.show(Scene([h100(0), lost(h100(1))]))
    with child() as started:
        first = started.hear(0)
        fake_nvml.show(Scene([h100(0), h100(1)]))
        soon, late = started.read(RENEW_SECONDS - 1), started.read(RENEW_SECONDS)
        started.read(3 * RENEW_SECONDS)

    assert (first.unopened, [each.gpu for each in first.gpus]) == ({1: LOST}, [UUID])
    assert (list(soon), list(late)) == ([UUID], [UUID, h100(1).uuid])
    assert [fake_nvml.calls().count(name) for name in ("nvmlInitWithFlags", "nvmlShutdown")] == [2, 1]


def test_what_a_card_does_not_have_is_absent_and_asked_for_once(fake_nvml):
    """A consumer's card has few series, none of them 0 for lack of knowledge; the rest is not asked for again."""
    fake_nvml.show(Scene([geforce(0)]))
    with child() as started:
        first = started.read(0)[UUID].values
        asked = len(fake_nvml.calls())
        started.read(SELDOM_SECONDS)

    assert {key[0] for key in first} == {
        "gpu_busy_ratio", "gpu_memory_busy_ratio", "gpu_memory_total_bytes", "gpu_memory_used_bytes", "gpu_power_watts",
        "gpu_power_limit_watts", "gpu_sm_clock_hertz", "gpu_sm_clock_max_hertz", "gpu_temperature_celsius",
    }  # fmt: skip
    assert Counter(call.split()[0] for call in fake_nvml.calls()[asked:]) == {
        "nvmlDeviceGetClockInfo": 1,
        "nvmlDeviceGetComputeRunningProcesses_v3": 1,
        "nvmlDeviceGetEnforcedPowerLimit": 1,
        "nvmlDeviceGetMaxClockInfo": 1,
        "nvmlDeviceGetMemoryInfo_v2": 1,
        "nvmlDeviceGetMigMode": 1,
        "nvmlDeviceGetPowerUsage": 1,
        "nvmlDeviceGetTemperature": 1,
        "nvmlDeviceGetUtilizationRates": 1,
    }


@pytest.mark.parametrize("code", [2, 3, 13, 25, 26])
def test_a_field_that_will_never_answer_is_asked_for_once(fake_nvml, code):
    """Whether the driver says unknown, not supported, withdrawn or another version: it is not asked again."""
    fake_nvml.show(Scene([h100(0, fields={82: Field(code=code), 83: Field(code=6)})]))
    with child() as started:
        started.read(0)
        asked = len(fake_nvml.calls())
        started.read(5)
        (fields,) = (call.split()[1:] for call in fake_nvml.calls()[asked:] if "FieldValues" in call)

    assert ("82" in fields, "83" in fields) == (False, True)


def test_a_driver_that_rejects_a_call_for_one_unknown_field_is_asked_for_the_others(fake_nvml):
    """Where one field makes the call for all of them fail, it is found, once, and the others are read."""
    unknown = {number: Field(code=NOT_SUPPORTED) for number in (82, 230, 213, 269)}
    fake_nvml.show(Scene([h100(0, fields=unknown)], is_strict=True))
    with child() as started:
        first = started.read(0)[UUID].values
        asked = len(fake_nvml.calls())
        again = started.read(5)[UUID].values
        calls = [call.split()[0] for call in fake_nvml.calls()[asked:]]

    assert first.keys() == again.keys()
    assert {ENERGY, ("gpu_throttled_seconds_total", "thermal"), ("gpu_nvlink_active_links",)} <= first.keys()
    assert not {("gpu_temperature_celsius", "memory"), ("gpu_recovery_action", "none")} & first.keys()
    assert calls.count("nvmlDeviceGetFieldValues") == 1


def test_what_changes_slowly_is_asked_for_seldom(fake_nvml):
    """Between two whole readings one call for fields, of what may change at once; the rest keeps its values."""
    fake_nvml.show(Scene([h100(0, processes={7: GIB})]).failing("nvmlDeviceGetMigMode", NOT_SUPPORTED))
    with child() as started:
        first = started.read(0)[UUID]
        asked = len(fake_nvml.calls())
        fake_nvml.show(Scene([h100(0, fields={4: Field(9)})]))
        later = started.read(SELDOM_SECONDS - 1)[UUID]
        calls = fake_nvml.calls()[asked:]
        whole = started.read(SELDOM_SECONDS)[UUID]

    errors = ("gpu_ecc_errors_total", "uncorrected", "boot")
    assert [first.values[errors], later.values[errors], whole.values[errors]] == [0, 0, 9]
    assert [first.processes, later.processes, whole.processes] == [((7, GIB),), ((7, GIB),), ()]
    assert len(calls) == 5
    assert "nvmlDeviceGetFieldValues 185 83 82 74 269 270 271 76 77 79 230" in calls
    assert fake_nvml.calls().count("nvmlDeviceGetMigMode") == 1


def test_instances_of_a_divided_gpu_have_readings_of_their_own(fake_nvml):
    """With MIG each instance has memory and processes; the rest is the whole GPU's, and no memory is told twice."""
    whole = divided(0, {44: GIB, 45: 2 * GIB}, {})
    fake_nvml.show(Scene([h100(1), whole]))
    with child() as started:
        readings = started.read(0)
        gone = replace(whole, instances=[whole.instances[0], replace(whole.instances[1], error=6)])
        fake_nvml.show(Scene([h100(1), gone]))
        soon = started.read(5)
        fake_nvml.show(Scene([h100(1), divided(0, {44: GIB})]))
        later = started.read(SELDOM_SECONDS)
        fake_nvml.show(Scene([h100(1), h100(0)]))
        undivided = started.read(2 * SELDOM_SECONDS)

    first, second = (each.uuid for each in whole.instances)
    assert list(readings) == [h100(1).uuid, whole.uuid, first, second]
    assert [readings[uuid].mig for uuid in readings] == ["0", "1", "1", "1"]
    assert readings[first].processes == ((44, GIB), (45, 2 * GIB))
    assert {"gpu_memory_total_bytes", "gpu_memory_used_bytes"} == {key[0] for key in readings[first].values}
    assert readings[whole.uuid].processes == ((44, None), (45, None))
    assert not {("gpu_busy_ratio",), ("gpu_row_remap_failed",)} & readings[whole.uuid].values.keys()
    assert ENERGY in readings[whole.uuid].values
    assert list(soon) == list(later) == [h100(1).uuid, whole.uuid, first]
    assert undivided[whole.uuid].values.keys() == readings[h100(1).uuid].values.keys()


UNKNOWN_VALUES = [
    ({82: Field(0, type=UNSIGNED_INT)}, "gpu_temperature_celsius memory"),
    ({83: Field(2**64 - 1)}, "gpu_energy_joules_total"),
    ({185: Field(2**32 - 1, type=UNSIGNED_INT)}, None),
    ({197: Field(5, type=UNSIGNED_INT)}, "gpu_pcie_bytes_total tx"),
    ({4: Field(code=6)}, "gpu_ecc_errors_total uncorrected boot"),
    ({4: Field(code=NO_PERMISSION)}, "gpu_ecc_errors_total uncorrected boot"),
    ({3: Field(code=UNKNOWN)}, "gpu_ecc_errors_total corrected boot"),
    ({230: Field(code=2)}, "gpu_recovery_action none"),
    ({269: Field(code=NOT_SUPPORTED)}, None),
]
"""What fields of a GPU are like, and what it does not report then; `None` if there is another source."""


def test_what_the_driver_does_not_know_is_absent(fake_nvml):
    """No value for a memory at 0 °C, for all bits set, for a counter that wraps too soon, for an error; others stay."""
    fake_nvml.show(Scene([h100(0), *(h100(1 + place, fields=given[0]) for place, given in enumerate(UNKNOWN_VALUES))]))
    with child() as started:
        whole, *others = ({" ".join(key) for key in each.values} for each in started.read().values())

    assert [whole - each for each in others] == [{absent} if absent else set() for _, absent in UNKNOWN_VALUES]


def test_the_drivers_recommendation_is_one_of_the_closed_list(fake_nvml):
    """Each value of the recommendation has a name, those of newer drivers the name "other"."""
    fake_nvml.show(Scene([h100(value, fields={230: Field(value, type=UNSIGNED_INT)}) for value in range(9)]))
    with child() as started:
        values = [each.values for each in started.read().values()]

    assert [key for of_gpu in values for key in of_gpu if key[0] == "gpu_recovery_action"] == [
        ("gpu_recovery_action", name) for name in GPU_ACTIONS
    ]


def test_a_link_that_goes_down_is_seen_and_its_counters_stay(fake_nvml):
    """
    A link that is down is one less, and the sum of errors does not fall because it no longer tells its own; not even
    when the library is opened anew, because of another GPU.
    """
    links = range(18)
    replays = [Field(10, scope=link) for link in links]
    fake_nvml.show(Scene([h100(0, fields={161: replays}), lost(h100(1))]))
    with child() as started:
        first = started.read(0)[UUID].values
        states = [Field(float(link != 3), scope=link) for link in links]
        replays[3] = Field(scope=3, code=NOT_SUPPORTED)
        fake_nvml.show(Scene([h100(0, fields={161: replays, 165: states}), lost(h100(1))]))
        later = started.read(SELDOM_SECONDS)[UUID].values
        anew = [started.read((2 + again) * RENEW_SECONDS)[UUID].values for again in range(2)]

    up, errors = ("gpu_nvlink_active_links",), ("gpu_nvlink_errors_total", "replay")
    assert (first[up], first[errors]) == (18, 180)
    assert (later[up], later[errors]) == (17, 180)
    assert [each[errors] for each in anew] == [180, 180]


def test_links_of_version_5_have_fields_of_their_own(fake_nvml):
    """Where the older counters of links are gone, the newer ones are summed over all links."""
    gone = {number: Field(code=NOT_SUPPORTED) for number in (138, 139, 161, 162, 163)}
    new = {number: [Field(number, scope=link) for link in range(18)] for number in (202, 204, 213, 214)}
    values = values_of(fake_nvml, h100(0, fields={**gone, **new}))

    assert {key[1]: value for key, value in values.items() if key[0].startswith("gpu_nvlink_") and key[1:]} == {
        "tx": 18 * 202, "rx": 18 * 204, "recovery": 18 * 213, "recovery_failed": 18 * 214,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scene", "code"),
    [
        (Scene(driver=""), 9),
        (Scene([h100(0)]).failing("nvmlInitWithFlags", 18), 18),
        (Scene([h100(0, handle=NO_PERMISSION), h100(1, handle=NO_PERMISSION)]), NO_PERMISSION),
    ],
)
def test_without_a_usable_driver_the_code_is_told_and_the_child_ends(fake_nvml, scene, code):
    """A call that has to succeed and does not is the child's last word."""
    fake_nvml.show(scene)
    with child() as started:
        message = started.hear()
        assert isinstance(message, FailureMessage)
        assert message.code == code


def test_a_gpu_that_may_not_be_opened_does_not_hide_the_others(fake_nvml):
    """Of two GPUs one that this user may not open is left out, with its code."""
    fake_nvml.show(Scene([h100(0), h100(1, handle=NO_PERMISSION)]))
    with child() as started:
        message = started.hear()

    assert ([each.gpu for each in message.gpus], message.unopened) == ([UUID], {1: NO_PERMISSION})


def test_gpus_that_are_all_broken_are_no_reason_to_give_up(fake_nvml):
    """Where each GPU is lost before it was opened, their codes are told, and the child stays to see them again."""
    fake_nvml.show(Scene([h100(0, handle=LOST), lost(h100(1))]))
    with child() as started:
        message = started.hear(0)
        fake_nvml.show(Scene([h100(0), h100(1)]))
        again = started.read(RENEW_SECONDS)

    assert (message.gpus, message.unopened) == ([], {0: LOST, 1: LOST})
    assert len(again) == 2


def test_a_driver_that_answers_nothing_any_more_is_told(fake_nvml):
    """When every call about every GPU fails for want of access, the code is told, not a GPU without values."""
    fake_nvml.show(Scene([h100(0), h100(1)]))
    with child() as started:
        started.read(0)
        fake_nvml.show(Scene([lost(h100(0), UNKNOWN), lost(h100(1), UNKNOWN)]))
        assert started.hear(5).code == UNKNOWN


def test_without_the_library_the_code_says_so(monkeypatch):
    """Where there is no driver's library at all, the child says so and nothing else."""
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with child() as started:
        assert started.hear().code == 12


def test_the_survey_of_a_machine_has_a_row_for_each_source(fake_nvml):
    """What is run on a machine with a GPU names each source once, with its code, value and times."""
    fake_nvml.show(Scene([h100(0, fields={197: Field(5, type=UNSIGNED_INT)})]))
    command = [sys.executable, "-m", "tests.support.nvml_survey", "--times", "2"]
    run = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True, timeout=SECONDS)

    rows = {row[:50].strip(): row[50:].split()[:3] for row in run.stdout.splitlines()}
    assert rows["field 185"] == ["0", "1", "640000"]
    assert rows["field 197"] == ["0", "1", "5"]
    assert rows["field 213 link 0"] == ["3", "0", "-"]
    assert rows["nvmlDeviceGetClockInfo 1"][::2] == ["0", "1755"]
    assert re.search(r"\nat 5 s: 0\.\d{3}% of a core\n", run.stdout)
