# SPDX-License-Identifier: Apache-2.0
"""What ``check`` reports about the GPUs of a server, and about those that it does not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from vllm_watch.analysis.rendering import gpu_cells
from vllm_watch.daemon.catalog.gpu_texts import NOT_SHOWN, STATE_PROBLEMS, GpuState
from vllm_watch.daemon.catalog.number_texts import MISSING
from vllm_watch.daemon.exposition.document import GpuDocument
from vllm_watch.daemon.exposition.json_view import gpu_documents
from vllm_watch.daemon.gpu.reader import has_module
from vllm_watch.daemon.sources.kernel_log import has_gpu_driver
from vllm_watch.daemon.state.gpu_report import ServerGpu, is_instance
from vllm_watch.daemon.support.printable import ReportLine


_HOW = {"pid": "by its processes", "config": "by the configuration"}
_MIG = "It is divided into instances (MIG): how busy the whole is, is not reported."
_HIDDEN = "the driver does not open it for this user or in this container, so it is not read."
NO_EXTRA = (
    "GPUs: not read, because the extra gpu is not installed: in the sources, pip install '.[gpu]'. Without it the "
    "series of another exporter can be used; `gpu: off` in the configuration says that none are wanted."
)


def gpu_lines(gpus: Sequence[ServerGpu], named: Collection[str] = ()) -> Iterator[ReportLine]:
    """
    Yield what is known of each GPU of a server, below the line of the source; what is wrong is a finding.

    Args:
        gpus: Those that are known.
        named: How its configuration calls them.
    """
    for used, shown in zip(gpus, gpu_documents(gpus), strict=True):
        reading = used.reading
        if reading is None:
            yield ReportLine(f"    {used.gpu}, {_HOW[used.how]}: not read", is_wrong=False)
            continue
        facts = [
            *_facts(shown),
            f"driver {reading.driver_version}",
            *(["used by another server, too"] * used.is_shared),
        ]
        # Instances of one GPU have its number.
        name = f"{used.gpu} of GPU {reading.number}" if is_instance(used.gpu) else f"GPU {reading.number}"
        yield ReportLine(f"    {name}, {reading.name}, {_HOW[used.how]}: {', '.join(facts)}")
        if reading.mig == "1" and not is_instance(used.gpu):
            yield ReportLine(f"      {_MIG}")

    for name in named:
        if not any(_is_called(used, name) for used in gpus):
            yield ReportLine(f"    GPU {name}, {_HOW['config']}: {NOT_SHOWN}", is_wrong=True)


def unopened_gpus(unopened: Mapping[int, GpuState | None]) -> Iterator[ReportLine]:
    """Yield the GPUs of the machine that the driver does not open; one that is only hidden is nothing wrong."""
    for number, state in sorted(unopened.items()):
        problem = _HIDDEN if state is None else STATE_PROBLEMS[state]
        yield ReportLine(f"GPU {number}, whose server is not known: {problem}", is_wrong=state is not None)


def unread_gpus() -> Iterator[ReportLine]:
    """Yield that this machine has a driver which nobody reads."""
    if has_gpu_driver() and not has_module():
        yield ReportLine(NO_EXTRA)


def _is_called(used: ServerGpu, name: str) -> bool:
    """Tell whether a configuration means a GPU by its name: a UUID, or the number or the place of a whole GPU."""
    reading = used.reading
    return used.gpu == name or (reading is not None and name in {str(reading.number), reading.pci_bus_id})


def _facts(gpu: GpuDocument) -> Iterator[str]:
    """Yield the main values; what is not known is left out."""
    texts = (
        ("{} GiB are its", gpu_cells.server_memory(gpu)),
        ("{} GiB of processes that are not watched", gpu_cells.other_memory(gpu) if gpu.other_memory else MISSING),
        ("busy {} %", gpu_cells.busy(gpu)),
        ("{} W", gpu_cells.power(gpu)),
        ("{} °C", gpu_cells.temperature(gpu)),
    )
    yield from (form.format(text) for form, text in texts if text != MISSING)
