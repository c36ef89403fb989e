# SPDX-License-Identifier: Apache-2.0
"""
The daemon's own log: events with fields, on standard error; JSON where no one looks on.

A field may hold a stranger's text: the name of a file, what an exception quotes. JSON escapes it; for a terminal it is
made printable here.
"""

from __future__ import annotations

import logging
import sys

import structlog

from vllm_watch.printable import printable


_EXCEPTION = "exception"


def configure_log(*, quiet: bool = False) -> None:
    """
    Set structlog up once for this process.

    Args:
        quiet: Only errors: for commands that report in their own words.
    """
    is_terminal = sys.stderr.isatty()
    renderers: list[structlog.typing.Processor]
    if is_terminal:
        renderers = [_make_printable, structlog.dev.ConsoleRenderer()]
    else:
        renderers = [structlog.processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.ExceptionRenderer(),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR if quiet else logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


def _make_printable(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what a terminal would act upon; other values than texts are shown in Python's form, which does that."""
    return {
        name: printable(value, keep="\n" if name == _EXCEPTION else "") if isinstance(value, str) else value
        for name, value in event.items()
    }
