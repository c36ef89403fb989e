# SPDX-License-Identifier: Apache-2.0
"""
The child process, ``python -m vllm_watch.daemon.gpu.child``, and the driver with all GPUs that it shows.

Each line of its input is a time, in seconds of the daemon's clock, and is answered with a reading, one line of JSON. It
ends with its input: when the daemon ends, in whatever way, and never in a call of the driver. If the driver cannot be
used, its last line says so.
"""

from __future__ import annotations

import json
import signal
import sys
import time

from typing import Any

from vllm_watch.daemon.gpu.device import BROKEN, NEVER, Device, LastOfLinks, Nvml, Returned
from vllm_watch.daemon.gpu.quantities import SELDOM_SECONDS


RENEW_SECONDS = 60.0
"""So long after the library was initialised this is done again, while a GPU does not work or there is none."""


class RefusedError(Exception):
    """A call failed that has to succeed; `code` is what it returned."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call} returned {code}")
        self.code = code


class Driver:
    """The initialised library, and the GPUs that it shows. Raises `RefusedError` if it cannot be used."""

    def __init__(self, nvml: Nvml, now: float) -> None:
        self._nvml = nvml
        self._version = ""
        self._devices: list[Device] = []
        self._instances: dict[Device, list[Device]] = {}
        self._last_of_links: LastOfLinks = {}
        self._unopened: dict[int, int] = {}
        """What asking for a GPU returned that could not be opened, by its index."""
        self._attached_at, self._whole_at = now, float("-inf")
        self._is_broken = False
        self._attach(now)

    def read(self, now: float) -> dict[str, Any]:
        """Return a message with a reading of all GPUs. Raises `RefusedError` if no call about any of them succeeds."""
        if self._is_broken and now - self._attached_at >= RENEW_SECONDS:
            self._require("nvmlShutdown")
            self._attach(now)
        is_whole = now - self._whole_at >= SELDOM_SECONDS
        self._whole_at = now if is_whole else self._whole_at
        gpus = [each for device in self._devices for each in self._read(device, wholly=is_whole)]
        works = [each for each in gpus if each["values"] and each["state"] == "ok"]
        self._is_broken = not gpus or bool(self._unopened) or len(works) < len(gpus)
        refused = {code for device in self._devices for code in device.codes} - NEVER
        if refused and not works and all(each["state"] == "ok" for each in gpus):
            raise RefusedError("every call", max(refused))
        return {
            "driver_version": self._version, "gpus": gpus, "unopened": self._unopened, "listed_at": self._whole_at,
        }  # fmt: skip

    def _attach(self, now: float) -> None:
        self._attached_at, self._whole_at = now, float("-inf")
        self._require("nvmlInit")
        self._version = str(self._require("nvmlSystemGetDriverVersion"))
        self._devices, self._instances, self._unopened = [], {}, {}
        for number in range(self._require("nvmlDeviceGetCount")):
            self._open(number)
        self._is_broken = not self._devices or bool(self._unopened)
        if not self._devices:
            for code in set(self._unopened.values()) - BROKEN.keys():
                raise RefusedError("nvmlDeviceGetHandleByIndex", code)

    def _open(self, number: int) -> None:
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(number)
            self._devices.append(Device(self._nvml, handle, number, self._last_of_links))
        except self._nvml.NVMLError as error:
            self._unopened[number] = error.value

    def _read(self, device: Device, *, wholly: bool) -> list[dict[str, Any]]:
        if wholly:
            self._instances[device] = list(device.instances())
        instances = [each.read(wholly=wholly) for each in self._instances[device]]
        # One without values was removed since they were looked for.
        return [device.read(wholly=wholly), *(each for each in instances if each["values"])]

    def _require(self, function: str) -> Returned:
        try:
            return getattr(self._nvml, function)()
        except self._nvml.NVMLError as error:
            raise RefusedError(function, error.value) from error


def main() -> None:
    """Read the GPUs once for each line of the input."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # systemd sends it to all processes of the unit.
    driver = None
    for line in sys.stdin:
        began, now = time.monotonic(), float(line)
        try:
            driver = _new_driver(now) if driver is None else driver
            message = driver.read(now)
        except RefusedError as error:
            _say({"code": error.code, "what": str(error)})
            return
        _say({**message, "seconds": time.monotonic() - began})


def _new_driver(now: float) -> Driver:
    import pynvml  # noqa: PLC0415  # Only this process may have it.

    return Driver(pynvml, now)


def _say(message: dict[str, Any]) -> None:
    # The library may have begun a line of its own.
    print("\n" + json.dumps(message, separators=(",", ":")), flush=True)  # noqa: T201  # Its output is what it is for.


if __name__ == "__main__":
    main()
