# SPDX-License-Identifier: Apache-2.0
"""The daemon's own log: events with fields, on standard error; JSON where no one looks on."""

from __future__ import annotations

import logging
import sys

import structlog


def configure_log(*, quiet: bool = False) -> None:
    """
    Set structlog up once for this process.

    Args:
        quiet: Only errors: for commands that report in their own words.
    """
    is_terminal = sys.stderr.isatty()
    renderer: structlog.typing.Processor
    if is_terminal:
        renderer = structlog.dev.ConsoleRenderer()
    else:
        renderer = structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR if quiet else logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )
