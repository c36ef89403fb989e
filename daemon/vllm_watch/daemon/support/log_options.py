# SPDX-License-Identifier: Apache-2.0
"""How the daemon's own log can be written: the choices of ``--log-level`` and ``--log-format``."""

from __future__ import annotations

from typing import Literal, get_args


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["console", "json"]

LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)
