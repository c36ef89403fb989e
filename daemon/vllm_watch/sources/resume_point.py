# SPDX-License-Identifier: Apache-2.0
"""Where reading a log stopped: in an earlier run, or in this one before the log was out of reach."""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.sources.checkpoint import FilePosition


class ResumePoint(NamedTuple):
    """
    A position and when it was left, in seconds since the epoch.

    What this run has read has been counted and need not be read again to know how things stand. Such a file was read
    to its end before it was let go: if it is gone, nothing is lost.
    """

    position: FilePosition
    stopped_at: float
    is_same_run: bool = False
