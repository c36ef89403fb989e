# SPDX-License-Identifier: Apache-2.0
"""
A second process that parses blocks of a large log ahead of its reader.

Both processes take the next block that nobody has taken; the reader applies them in order. Memory is bounded: so many
blocks are ahead and no more. If the second process dies, the reader does all of it.
"""

from __future__ import annotations

import gc
import os
import signal
import threading

from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Generic, TypeVar

from vllm_watch.daemon.reading.framing import MAX_LINE


if TYPE_CHECKING:  # Only a large file needs it at all.
    from multiprocessing.connection import Connection


MIN_SIZE = 32 * 1024 * 1024
"""Smaller files are read before a second process has paid for its start."""

Parsed = TypeVar("Parsed")
Parse = Callable[[bytes, int], "Parsed | None"]
"""Parses a part of a log, given with some bytes before it and where it starts; `None` where only a reader can."""

ASKED = 2
"""So many blocks the second process is asked for at a time, by a reader that does little with each."""

ASKED_BY_BUSY_READER = 6
"""The same where the reader takes longer over a block than it takes to parse one: with fewer it would parse half."""

_AHEAD = 8


def is_worthwhile(size: int) -> bool:
    """Return whether a second process helps: with more than one core; and none is started beside threads."""
    return size >= MIN_SIZE and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1


class ParserProcess(Generic[Parsed]):
    """
    Parses the blocks of a file, in this process and in another.

    Args:
        file: The file, open.
        block: The size of a block in bytes.
        count: How many whole blocks there are.
        parse: Parses a block.
        asked: How many blocks the other process is asked for at a time.

    Raises:
        OSError: No process can be started.
    """

    def __init__(self, file: IO[bytes], block: int, count: int, parse: Parse[Parsed], asked: int) -> None:
        import multiprocessing  # noqa: PLC0415  # Only a large file needs it.

        context = multiprocessing.get_context("fork")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(file, block, parse, theirs, self._connection), daemon=True)
        # What interrupts the reader must not interrupt the other process, not even while it starts: the reader ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._file = file
        self._block, self._count, self._parse = block, count, parse
        self._next = 0
        self._most_asked = asked
        self._asked: list[int] = []
        self._parsed: dict[int, Parsed | None] = {}

    def close(self) -> None:
        """End the second process."""
        self._connection.close()
        self._process.terminate()
        self._process.join()

    def take(self, number: int) -> Parsed | None:
        """
        Return what a block holds, `None` where only the reader can parse it; blocks are taken in order.

        Raises:
            OSError: The file cannot be read.
        """
        while number not in self._parsed:
            if len(self._asked) < self._most_asked and self._can_go_ahead():
                self._ask()
            elif self._connection.poll() or not self._can_go_ahead():
                self._receive()
            else:
                self._parsed[self._next] = _parse(self._file, self._block, self._parse, self._next)
                self._next += 1
        return self._parsed.pop(number)

    def _can_go_ahead(self) -> bool:
        return self._next < self._count and len(self._asked) + len(self._parsed) < _AHEAD

    def _ask(self) -> None:
        self._asked.append(self._next)
        self._next += 1
        try:
            self._connection.send(self._asked[-1])
        except OSError:
            self._give_up()

    def _receive(self) -> None:
        try:
            parsed = self._connection.recv()
        except (EOFError, OSError):
            self._give_up()
        else:
            self._parsed[self._asked.pop(0)] = parsed

    def _give_up(self) -> None:
        """
        Take in that the process has died: what it was asked for, and all that follows, is left to the reader.

        What it had answered before and nobody has received is left, too.
        """
        self._parsed.update(dict.fromkeys([*self._asked, *range(self._next, self._count)]))
        self._asked.clear()
        self._next = self._count


def _serve(file: IO[bytes], block: int, parse: Parse[Parsed], connection: Connection, theirs: Connection) -> None:
    """Parse what is asked for, until nobody is there to ask, or there is no memory for it."""
    theirs.close()
    gc.disable()
    try:
        while True:
            connection.send(_parse(file, block, parse, connection.recv()))
    except (EOFError, OSError, MemoryError):
        return


def _parse(file: IO[bytes], block: int, parse: Parse[Parsed], number: int) -> Parsed | None:
    start = number * block
    before = min(start, MAX_LINE + 1)
    # Not by `seek`: both processes have the file open once, with one place in it.
    data = os.pread(file.fileno(), before + block, start - before)
    return parse(data, before) if len(data) == before + block else None
