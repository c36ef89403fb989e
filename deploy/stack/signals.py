# SPDX-License-Identifier: Apache-2.0
"""
The signals that end everything: blocked, and looked for where nothing is half done.

A handler would interrupt a start or a clean-up anywhere. Other processes do not inherit this (`processes.py`).
"""

from __future__ import annotations

import signal


ENDING = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP})


class EndedError(Exception):
    """A signal asks for the end."""


def block() -> None:
    """Let these signals wait until they are looked for; one that is ignored, as by nohup, never comes."""
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)


def pause(seconds: float) -> None:
    """
    Wait.

    Raises:
        EndedError: A signal came.
    """
    if signal.sigtimedwait(ENDING, seconds) is not None:
        raise EndedError
