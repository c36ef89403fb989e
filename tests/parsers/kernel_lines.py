# SPDX-License-Identifier: Apache-2.0
"""The messages of `kernel_messages.tsv`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class KernelLine(NamedTuple):
    """A message of a driver, and what it reports: a code and the place of a GPU, both empty for no error."""

    driver: str
    code: str
    pci: str
    message: str


def _read() -> list[KernelLine]:
    lines = Path(__file__).with_name("kernel_messages.tsv").read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [
        KernelLine(driver, code.replace("-", ""), pci.replace("-", ""), message.replace("\\n", "\n"))
        for driver, code, pci, message in rows
    ]


LINES = _read()
ERRORS = [line for line in LINES if line.code]
OTHERS = [line.message for line in LINES if not line.code]

UUID = "GPU-efbdfde9-5798-a6e7-4c46-12518fa15375"
NAMES = {f"NVRM: GPU at PCI:0000:00:05: {UUID}": "0000:00:05", f"NVRM: GPU at 0000:9B:00: {UUID}": "0000:9b:00"}
"""Lines that tell which GPU is where, with the place."""


def message_of(driver: str) -> str:
    """Return the message of a driver."""
    return next(line.message for line in ERRORS if line.driver == driver)
