# SPDX-License-Identifier: Apache-2.0
"""
One GPU, or one MIG instance of it, what NVML reports of it, and what NVML's return codes mean here.

What a card does not have is asked for once. Here, and in all that the child process runs, times are of a clock that
the caller has, and `nvml` is the module of nvidia-ml-py. Codes are those of
nvmlReturn_t in nvml.h: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vllm_watch.daemon.catalog.gpu_texts import GpuAction, GpuState
from vllm_watch.daemon.gpu.quantities import EACH_TIME, LINK_COUNT, MEMORY, OF_LINKS, SELDOM, Field, Source


if TYPE_CHECKING:  # The child that reads the driver imports this module, and nothing of the daemon's libraries.
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


Answer = tuple[int, float]
"""A code and, if it is that of success, a value."""

LastOfLinks = dict[str, dict[tuple[int, int], Answer]]
"""The last answer of each counter of a link, by the GPU's UUID, the field and the link."""

Nvml = Any
Returned = Any
"""The module, and what its functions return; it has no types."""


_PARTS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""The part of nvmlValue_t by nvmlValueType_t."""

_NOT_AVAILABLE = frozenset({0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF, -1})
"""All bits set: NVML's way to say that it does not know."""

_WIDE = frozenset({2, 3, 4})


class BrokenError(Exception):
    """A call says that the whole GPU does not work."""

    def __init__(self, state: GpuState) -> None:
        super().__init__(state)
        self.state = state


class Device:
    """
    A GPU or an instance of one. Raises the module's NVMLError if not even its UUID can be read.

    Args:
        handle: What NVML knows it by.
        number: Its index, or that of the GPU that it is an instance of.
        last_of_links: What each link's counters were last, by UUID; kept here, also for when the GPU is opened anew.

    Attributes:
        codes: What calls returned in the last reading, beside success.
    """

    def __init__(
        self, nvml: Nvml, handle: object, number: int, last_of_links: LastOfLinks, *, is_instance: bool = False
    ) -> None:
        self._nvml = nvml
        self._handle = handle
        self._is_instance = is_instance
        self._uuid = str(nvml.nvmlDeviceGetUUID(handle))
        self._number = number
        self._about = {"number": number, "name": self._name(), "pci_bus_id": self._place()}
        self._may_be_divided, self._is_divided = True, False
        self._seldom: dict[str, float] = {}
        self._processes: list[tuple[int, int | None]] | None = None
        self._lists_processes = True
        self.codes: set[int] = set()
        self._links: int | None = 0 if is_instance else None
        self._last_of_links = last_of_links
        self._last_of_link = last_of_links.setdefault(self._uuid, {})
        self._sources = _all_sources()

    def read(self, *, wholly: bool) -> dict[str, Any]:
        """Return what is known of it now, as a part of a message to the daemon; `wholly`: also what is read seldom."""
        self.codes = set()
        state: GpuState = "ok"
        values: Mapping[str, float] = {}
        try:
            if wholly:
                self._read_seldom()
            current = self._read(MEMORY if self._is_instance else EACH_TIME)
            values = {**current, **self._seldom} if current else {}
        except BrokenError as error:
            state, self._processes = error.state, None
        return {
            **self._about,
            "gpu": self._uuid,
            "mig": self._is_instance or self._is_divided,
            "state": state,
            "values": dict(_with_action(values)),
            "processes": self._processes,
        }

    def instances(self) -> Iterator[Device]:
        """Yield the MIG instances that there are now."""
        with suppress(BrokenError):  # The next reading tells.
            for index in range(self._most_instances()):
                code, handle = self._result("nvmlDeviceGetMigDeviceHandleByIndex", index)
                if code == SUCCESS:
                    with suppress(self._nvml.NVMLError):  # It was removed in between.
                        yield Device(self._nvml, handle, self._number, self._last_of_links, is_instance=True)

    def _most_instances(self) -> int:
        if not self._may_be_divided:
            return 0
        code, modes = self._result("nvmlDeviceGetMigMode")
        self._may_be_divided = code not in NEVER
        was_divided, self._is_divided = self._is_divided, code == SUCCESS and bool(modes[0])
        if was_divided != self._is_divided:  # A divided card has less.
            self._sources = _all_sources()
        code, count = self._result("nvmlDeviceGetMaxMigDeviceCount") if self._is_divided else (SUCCESS, 0)
        return int(count) if code == SUCCESS else 0

    def _name(self) -> str:
        try:
            return str(self._nvml.nvmlDeviceGetName(self._handle))
        except self._nvml.NVMLError:
            return ""

    def _place(self) -> str:
        try:
            pci = self._nvml.nvmlDeviceGetPciInfo(self._handle)
        except self._nvml.NVMLError:
            return ""
        return f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}"

    def _read_seldom(self) -> None:
        self._processes = self._read_processes()
        if self._is_instance:
            return
        if self._links is None:
            count = Field(LINK_COUNT)
            self._links = int(self._ask_fields([count])[count][1])
        self._seldom = self._read((*SELDOM, *OF_LINKS) if self._links else SELDOM)

    def _read(self, keys: Iterable[str]) -> dict[str, float]:
        """Return what the card has, by key; a source that it does not have is left out from now on."""
        values: dict[str, float] = {}
        waiting = [key for key in keys if self._sources[key]]
        while waiting:
            answers = self._ask(dict.fromkeys(self._sources[key][0] for key in waiting))
            again = []
            for key in waiting:
                code, value = answers[self._sources[key][0]]
                if code == SUCCESS:
                    values[key] = value
                elif code in NEVER:
                    del self._sources[key][0]
                    again += [key] if self._sources[key] else []
            waiting = again
        return values

    def _ask(self, sources: Iterable[Source]) -> dict[Source, Answer]:
        """Return the answer of each source; what is a part of one function's result is asked for once."""
        answers: dict[Source, Answer] = {}
        results: dict[tuple[str, tuple[int, ...]], tuple[int, Returned]] = {}
        fields = []
        for source in sources:
            if isinstance(source, Field):
                fields.append(source)
                continue
            call = (source.function, source.arguments)
            if call not in results:
                results[call] = self._result(source.function, *source.arguments)
            code, result = results[call]
            number = getattr(result, source.part) if source.part and code == SUCCESS else result
            answers[source] = (code, number * source.times / source.per if code == SUCCESS else 0.0)
        return {**answers, **self._ask_fields(fields)} if fields else answers

    def _ask_fields(self, fields: Sequence[Field]) -> dict[Source, Answer]:
        """Ask for fields in one call; those of links are asked of each link."""
        links = range(self._links or 0)
        asked = [(each, scope) for each in fields for scope in (links if each.per_link else (each.scope,))]
        code, given = self._result("nvmlDeviceGetFieldValues", [(each.number, scope) for each, scope in asked])
        if code == INVALID and len(fields) > 1:  # One of them is too new, or they are too many for this driver.
            middle = len(fields) // 2
            return {**self._ask_fields(fields[:middle]), **self._ask_fields(fields[middle:])}
        if code != SUCCESS:
            return dict.fromkeys(fields, (code, 0.0))
        answers: dict[Source, Answer] = {}
        for (field, scope), value in zip(asked, given, strict=True):
            answer = _number_of(field, value)
            self._note(answer[0])
            answers[field] = _sum(answers.get(field), self._lasting(field, scope, answer))
        return answers

    def _lasting(self, field: Field, link: int, answer: Answer) -> Answer:
        """Return the answer, or a counter's last one if a link no longer answers."""
        if not field.lasts:
            return answer
        if answer[0] == SUCCESS:
            self._last_of_link[field.number, link] = answer
        return self._last_of_link.get((field.number, link), answer)

    def _read_processes(self) -> list[tuple[int, int | None]] | None:
        """Return the processes on it and their bytes; `None` if they cannot be known."""
        if not self._lists_processes:
            return None
        code, found = self._result("nvmlDeviceGetComputeRunningProcesses_v3")
        if code != SUCCESS:
            self._lists_processes = code not in NEVER
            return None
        # The memory of processes on instances is the instances'.
        return [(each.pid, None if self._is_divided else each.usedGpuMemory) for each in found]

    def _result(self, function: str, *arguments: object) -> tuple[int, Returned]:
        try:
            result = getattr(self._nvml, function)(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            self._note(error.value)
            return error.value, None
        return SUCCESS, result

    def _note(self, code: int) -> None:
        if code in BROKEN:
            raise BrokenError(BROKEN[code])
        if code != SUCCESS:
            self.codes.add(code)


def _all_sources() -> dict[str, list[Source]]:
    return {key: list(sources) for key, sources in {**EACH_TIME, **SELDOM, **OF_LINKS}.items()}


def _sum(before: Answer | None, answer: Answer) -> Answer:
    """Add a link's answer: those that succeed count."""
    if before is None or before[0] != SUCCESS:
        return answer
    return (SUCCESS, before[1] + answer[1]) if answer[0] == SUCCESS else before


def _with_action(values: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the values, in which the action that the driver recommends is a label."""
    for key, value in values.items():
        if key == "gpu_recovery_action":
            yield f"{key} {ACTIONS.get(int(value), 'other')}", 1.0
        else:
            yield key, value


def _number_of(field: Field, given: Returned) -> Answer:
    """Return the answer of a field; an nvmlFieldValue_t is a union, and a number that says which part of it counts."""
    if given.nvmlReturn != SUCCESS:
        return given.nvmlReturn, 0.0
    part = _PARTS.get(given.valueType)
    if part is None or (field.wide and given.valueType not in _WIDE):
        return NOT_SUPPORTED, 0.0
    number: float = getattr(given.value, part)
    if number in _NOT_AVAILABLE or (field.positive and number <= 0):
        return NOT_SUPPORTED, 0.0
    return SUCCESS, number * field.times / field.per
