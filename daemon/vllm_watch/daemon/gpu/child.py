# SPDX-License-Identifier: Apache-2.0
"""
The child process: ``python -m vllm_watch.daemon.gpu.child``.

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

from vllm_watch.daemon.gpu.driver import Driver, RefusedError


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
