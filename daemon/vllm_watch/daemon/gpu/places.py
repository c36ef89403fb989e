# SPDX-License-Identifier: Apache-2.0
"""
Where GPUs are, by what NVIDIA's driver shows in ``/proc``: for errors of GPUs of which nobody reads the library.

To read such a file may hang as a call of the library may. So ``python -m vllm_watch.daemon.gpu.places`` reads them, and
is left alone: it prints the place and the UUID of each GPU, and ends.
"""

from __future__ import annotations

import re
import sys

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from vllm_watch.daemon.gpu.reader import ReaderProcess
from vllm_watch_parsers.kernel_messages import pci_address


log = structlog.get_logger("vllm_watch.gpu")

FOLDER = "proc/driver/nvidia/gpus"
COMMAND = (sys.executable, "-m", "vllm_watch.daemon.gpu.places")

_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_LINE = re.compile(rf"GPU UUID:\s*({_UUID.pattern})\s*$", re.MULTILINE)


class GpuPlaces:
    """Asks once where the GPUs are."""

    def __init__(
        self,
        start: Callable[[Callable[[], float]], ReaderProcess] = lambda now: ReaderProcess(now, COMMAND),
        root: str = "/",
    ) -> None:
        self._start = start
        self._root = root
        self._process: ReaderProcess | None = None
        self._was_asked = False

    def ask(self, now: Callable[[], float]) -> None:
        """Start the process, if that was not done and this machine has such files."""
        if self._was_asked or not Path(self._root, FOLDER).is_dir():
            return
        self._was_asked = True
        try:
            self._process = self._start(now)
        except OSError as error:
            log.warning("gpu.places_not_read", error=str(error))

    def take(self) -> Mapping[str, str]:
        """Return the UUIDs that are known since the last time, by the GPUs' places."""
        said = [] if self._process is None else self._process.take()
        words = [each.line.decode(errors="replace").split() for each in said]
        pairs = [(pci_address(each[0]), each[1]) for each in words if len(each) == 2]  # A pair.
        return {place: uuid for place, uuid in pairs if place and _UUID.fullmatch(uuid)}

    def close(self) -> None:
        """Let the process end; one that hangs is left alone."""
        if self._process is not None:
            self._process.close()


def main(root: str = "/") -> None:
    """Print where each GPU is; one that was not used yet has no UUID."""
    for path in sorted(Path(root, FOLDER).glob("*/information")):
        with suppress(OSError):
            found = _LINE.search(path.read_text(encoding="utf-8", errors="replace"))
            if found is not None:
                print(path.parent.name, found[1], flush=True)  # noqa: T201  # Its output is what it is for.


if __name__ == "__main__":
    main()
