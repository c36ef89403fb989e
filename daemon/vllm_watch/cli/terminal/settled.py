# SPDX-License-Identifier: Apache-2.0
"""One document, read once all sources have been: for what prints a screen and exits."""

from __future__ import annotations

import threading

from collections.abc import Collection
from typing import NamedTuple

from vllm_watch.cli.terminal.frames import frame_of
from vllm_watch.cli.terminal.model import Frame
from vllm_watch.cli.terminal.reader import DocumentReader
from vllm_watch.daemon.catalog.codes import SERVERS_WITH_HOUR
from vllm_watch.daemon.exposition.document import decode
from vllm_watch.daemon.support.clock import Clock


_PAUSE_SECONDS = 0.25


class Settled(NamedTuple):
    """A document, and the same as values."""

    body: bytes
    frame: Frame


def read_settled(reader: DocumentReader, clock: Clock, seconds: float, only: str | None = None) -> Settled:
    """
    Return what is known once each source has been read as often as its numbers need, or when the time is over.

    Args:
        reader: What is read; it is started, and not closed.
        clock: The time.
        seconds: How long to wait at most, beside what one reading takes.
        only: The only server that counts.

    Raises:
        VllmWatchError: Nothing can be read.
    """
    end = clock.now() + seconds
    never = threading.Event()
    reader.start()
    while True:
        found = _read(reader, clock, frozenset(), only)
        if reader.is_settled or clock.now() >= end:
            break
        clock.wait(never, _PAUSE_SECONDS)
    names = {server.name for server in found.frame.servers}
    return _read(reader, clock, names if len(names) <= SERVERS_WITH_HOUR else {found.frame.servers[0].name}, only)


def _read(reader: DocumentReader, clock: Clock, hours: Collection[str], only: str | None) -> Settled:
    body = reader.read(hours)
    return Settled(body, frame_of(decode(body), clock.now(), only))
