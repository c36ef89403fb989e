# SPDX-License-Identifier: Apache-2.0
"""Where GPUs are, by what NVIDIA's driver shows in ``/proc``: for errors of GPUs of which nobody reads the library."""

from __future__ import annotations

import re
import threading

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from vllm_watch_parsers.kernel_messages import pci_address


FOLDER = "proc/driver/nvidia/gpus"

_LINE = re.compile(r"GPU UUID:\s*(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\s*$", re.MULTILINE)


class GpuPlaces:
    """Reads once where the GPUs are, in a thread of its own: to read such a file may hang as a call of the driver."""

    def __init__(self, root: str = "/") -> None:
        self._folder = Path(root, FOLDER)
        self._thread: threading.Thread | None = None
        self._found: Mapping[str, str] = {}

    def ask(self) -> None:
        """Begin to read, if that was not done and this machine has such files."""
        if self._thread is None and self._folder.is_dir():
            self._thread = threading.Thread(target=self._read, name="gpu-places", daemon=True)
            self._thread.start()

    def take(self) -> Mapping[str, str]:
        """Return the UUIDs that are known since the last time, by the GPUs' places."""
        found, self._found = self._found, {}
        return found

    def _read(self) -> None:
        self._found = dict(_places(self._folder))


def _places(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield place and UUID of each GPU; one that was not used yet has no UUID."""
    for path in sorted(folder.glob("*/information")):
        with suppress(OSError):
            uuid = _LINE.search(path.read_text(encoding="utf-8", errors="replace"))
            place = pci_address(path.parent.name)
            if uuid is not None and place:
                yield place, uuid[1]
