# SPDX-License-Identifier: Apache-2.0
"""
The daemon's own log: events with fields on standard error, as JSON unless that is a terminal.

A field may hold untrusted text: a file's name, or what an exception quotes. JSON escapes it; for a terminal it is
escaped here.
"""

from __future__ import annotations

import logging
import os
import select
import sys

from contextlib import suppress
from typing import TextIO, cast

import structlog

from vllm_watch.daemon.catalog.codes import LogFormat, LogLevel
from vllm_watch.daemon.support.printable import printable


_EXCEPTION = "exception"

_STANDARD_STREAMS = (0, 1, 2)
_PATIENCE_MILLISECONDS = 100


class UnfailingStream:
    """
    Writes to a stream's file if it can, and drops the text otherwise.

    A full disk, a pipe whose reader is gone or hangs, or a closed standard error must not stop or delay the daemon's
    work. Nothing is kept to be written later.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write a line, if possible."""
        with suppress(OSError, ValueError):  # A closed stream raises ValueError.
            if self._stream is not None:
                _write(self._stream.fileno(), text.encode("utf-8", "backslashreplace"))

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""


def _write(descriptor: int, data: bytes) -> None:
    """Write as long as there is room; a pipe that is ready takes `PIPE_BUF` bytes without blocking."""
    room = select.poll()
    room.register(descriptor, select.POLLOUT)
    for start in range(0, len(data), select.PIPE_BUF):
        if not room.poll(_PATIENCE_MILLISECONDS):
            return
        os.write(descriptor, data[start : start + select.PIPE_BUF])


def hold_standard_streams() -> None:
    """Open those of standard input, output and error that are closed: a socket could get their numbers otherwise."""
    for number in _STANDARD_STREAMS:
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # The lowest free number: this one, since those below are open.


def configure_log(level: LogLevel = "info", log_format: LogFormat | None = None) -> None:
    """
    Set structlog up once for this process.

    Args:
        level: The least severe events that are written. ``debug`` also writes what libraries log.
        log_format: ``console`` for people, ``json`` for programs; by default ``console`` on a terminal only.
    """
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    renderers: list[structlog.typing.Processor]
    if log_format == "console" or (log_format is None and is_terminal):
        renderers = [_make_printable, structlog.dev.ConsoleRenderer(colors=is_terminal)]
    else:
        renderers = [structlog.processors.JSONRenderer()]
    stream = cast("TextIO", UnfailingStream(sys.stderr))
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(),
    ]
    structlog.configure(
        processors=[*processors, *renderers],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(file=stream),
        cache_logger_on_first_use=False,
    )
    libraries = logging.DEBUG if level == "debug" else logging.ERROR
    _configure_libraries(stream, libraries, [structlog.stdlib.add_logger_name, *processors], renderers)


def drop_log() -> None:
    """Set structlog and the log of libraries up to write nothing: standard error is a screen that something draws."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL),
        logger_factory=structlog.ReturnLoggerFactory(),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[logging.NullHandler()], force=True)


def _configure_libraries(
    stream: TextIO,
    level: int,
    processors: list[structlog.typing.Processor],
    renderers: list[structlog.typing.Processor],
) -> None:
    """Write what libraries log from a level on, in the same form; Python would print it as plain text otherwise."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=processors,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderers],
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Its errors at the end of a watch do not matter: logs are polled in any case.
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)


def _make_printable(_logger: object, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Escape what a terminal would act on; values that are no text are shown by `repr`, which escapes it."""
    return {
        name: printable(value, keep="\n" if name == _EXCEPTION else "") if isinstance(value, str) else value
        for name, value in event.items()
    }
