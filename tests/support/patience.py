# SPDX-License-Identifier: Apache-2.0
"""
The daemon takes nothing for hanging because the machine has much else to do.

How long it waits for its own threads and processes, and for its clients, is for what really hangs. Tests of that set
small values themselves; in all others these limits are as long as a test's own.
"""

from __future__ import annotations

import importlib

from collections.abc import Mapping

from tests.support.waiting import SECONDS


LIMITS: Mapping[str, tuple[str, ...]] = {
    "daemon.support.hang_guard": ("HANG_SECONDS",),
    "daemon.gpu.reader": ("PATIENCE",),
    "analysis.recorder.recorded_command": ("PATIENCE", "OUTPUT_SECONDS"),
    "analysis.recorder.server_recorder": ("END_SECONDS",),
    "daemon.service.gpus": ("ANSWER_SECONDS",),
    "daemon.service.log_polling": ("CLOSE_SECONDS", "HANGS_AFTER"),
    "daemon.service.service_thread": ("STALE_HEARTBEAT", "STOP_SECONDS"),
    "daemon.service.systemd": ("_SEND_SECONDS",),
    "daemon.sources.journalctl": ("_PATIENCE",),
    "cli.terminal.reading_thread": ("STOP_SECONDS",),
    "daemon.web.server": (
        "HEADER_SECONDS",
        "BODY_SECONDS",
        "WRITE_SECONDS",
        "_START_SECONDS",
        "_STOP_SECONDS",
        "_CLOSE_SECONDS",
    ),
}
"""Constants by their modules in `vllm_watch`."""

USUAL: Mapping[tuple[str, str], float] = {
    (module, name): getattr(importlib.import_module(f"vllm_watch.{module}"), name)
    for module, names in LIMITS.items()
    for name in names
}
"""What they are outside tests."""

for _module, _name in USUAL:
    setattr(importlib.import_module(f"vllm_watch.{_module}"), _name, SECONDS)
