# SPDX-License-Identifier: Apache-2.0
"""The parts of the daemon whose internal errors are counted; the runbook of VllmWatchUnwell explains each."""

from __future__ import annotations

from typing import Literal, get_args


Part = Literal[
    "main",
    "reload",
    "tail",
    "scrape",
    "probe",
    "discovery",
    "threads",
    "file_events",
    "snapshot",
    "web",
    "web_config",
    "notify",
    "alerts",
    "gpu",
    "kernel_log",
    "otlp",
    "kubernetes",
]
PARTS: tuple[Part, ...] = get_args(Part)
