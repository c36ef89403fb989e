# SPDX-License-Identifier: Apache-2.0
"""What the kernel shows of processes under ``/proc``, by subject."""

from __future__ import annotations

from pathlib import Path

from vllm_watch.daemon.discovery.network import Networks
from vllm_watch.daemon.discovery.open_files import OpenFiles
from vllm_watch.daemon.discovery.proc_files import OWN, ProcFiles
from vllm_watch.daemon.discovery.process_details import ProcessDetails
from vllm_watch.daemon.discovery.processes import ProcessTable


class Proc:
    """
    The process table.

    Args:
        root: Where it is mounted.
    """

    def __init__(self, root: Path = Path("/proc")) -> None:
        files = self._files = ProcFiles(root)
        self.table = ProcessTable(files)
        self.details = ProcessDetails(files)
        self.open_files = OpenFiles(files)
        self.networks = Networks(files)

    def pid_namespace(self) -> str:
        """Return the namespace in which this process has its number, empty if it cannot be read."""
        return self._files.link(OWN, "ns/pid")
