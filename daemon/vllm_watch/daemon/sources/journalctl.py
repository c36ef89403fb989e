# SPDX-License-Identifier: Apache-2.0
"""
A running journalctl: the child process, and the thread that reads its output.

This module handles a journalctl that hangs, prints too much, or ends.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import threading

from collections.abc import Sequence

from vllm_watch.daemon.reading.framing import LineFramer


QUEUE_SIZE = 4 * 1024 * 1024
"""Bytes that wait to be read; beyond them the child waits."""

MAX_ENTRY = 1024 * 1024
"""Longer entries are no lines of a log: a message of `MAX_LINE` bytes takes five characters for each at most."""

_READ_SIZE = 64 * 1024
_ERRORS_SIZE = 4096
_CHECK_SECONDS = 0.2
_PATIENCE = 0.8
# The last of them ends the hint that others' messages are not shown.
_NO_PERMISSION = (b"insufficient permissions", b"Permission denied", b"turn off this notice")


class Journalctl:
    """
    A running journalctl, and the thread that reads what it prints. Raises `OSError` if it cannot be started.

    Args:
        arguments: The whole command.

    Attributes:
        pending: Bytes that wait to be read.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603  # The configured command; no shell.
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "LC_ALL": "C"},  # Its errors are recognised by their words.
            start_new_session=True,  # A terminal's Ctrl-C is for the daemon.
        )
        self._framer = LineFramer(MAX_ENTRY)
        self._lines: list[bytes] = []
        self._errors = b""
        self._is_closed = False
        self._changed = threading.Condition()
        self.pending = 0
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return not self._thread.is_alive()

    @property
    def long_lines(self) -> int:
        """How many entries were dropped for their length."""
        return self._framer.long_lines

    @property
    def has_bad_cursor(self) -> bool:
        """Whether its last error is about the cursor that it was given."""
        return b"cursor" in self._last_error

    @property
    def lacks_permission(self) -> bool:
        """Whether its last error is that it may not read the journal."""
        return any(words in self._last_error for words in _NO_PERMISSION)

    def take(self) -> tuple[list[bytes], bool]:
        """Return the lines that wait, and whether they were as many as may wait."""
        with self._changed:
            lines, self._lines = self._lines, []
            was_full = self.pending >= QUEUE_SIZE
            self.pending = 0
            self._changed.notify_all()
        return lines, was_full

    def close(self) -> None:
        """End the process and the thread, and close the pipes."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._end_process()
        self._thread.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    @property
    def _last_error(self) -> bytes:
        return self._errors.rstrip().rpartition(b"\n")[2]

    def _end_process(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _run(self) -> None:
        """Read both pipes until they end, or the process does: another process may hold them open for ever."""
        with selectors.DefaultSelector() as selector:
            for pipe in (self._process.stdout, self._process.stderr):
                if pipe is not None:
                    selector.register(pipe, selectors.EVENT_READ)
            while selector.get_map() and not self._is_closed:
                ready = selector.select(_CHECK_SECONDS)
                if not ready and self._process.poll() is not None:
                    return
                for key, _ in ready:
                    if not self._read(key.fd):
                        selector.unregister(key.fileobj)

    def _read(self, descriptor: int) -> bool:
        """Read once; return whether there may be more."""
        data = os.read(descriptor, _READ_SIZE)
        if self._process.stdout is not None and descriptor == self._process.stdout.fileno():
            self._put(self._framer.feed(data))
        else:
            self._errors = (self._errors + data)[-_ERRORS_SIZE:]
        return bool(data)

    def _put(self, lines: list[bytes]) -> None:
        """Queue lines; while too many wait, wait too."""
        with self._changed:
            self._lines += lines
            self.pending += sum(map(len, lines))
            self._changed.wait_for(lambda: self.pending < QUEUE_SIZE or self._is_closed)
