# SPDX-License-Identifier: Apache-2.0
"""Child processes that a test asks for readings, at times that it says."""

from __future__ import annotations

import contextlib

from tests.support.waiting import until

from vllm_watch.daemon.gpu.reader import FailureMessage, ReaderProcess, decode


class Child:
    """A child process; `read` asks it for a reading at a time and returns what it says, decoded."""

    def __init__(self):
        self.time = 0.0
        self.process = ReaderProcess(lambda: self.time)

    def read(self, at=0.0):
        """Return the readings by UUID. A child that cannot read raises `AssertionError` with what it said."""
        message = self.hear(at)
        assert not isinstance(message, FailureMessage), message
        return {each.gpu: each for each in message.readings()}

    def hear(self, at=0.0):
        """Return its message."""
        self.time = at
        self.process.ask()
        return decode(until(self.process.take)[0].line)


@contextlib.contextmanager
def child():
    """Start a child, and end it."""
    started = Child()
    try:
        yield started
    finally:
        started.process.close()
