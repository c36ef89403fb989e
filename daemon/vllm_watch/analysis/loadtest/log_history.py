# SPDX-License-Identifier: Apache-2.0
"""The history of a finished log, also of one that was rotated: each statistics line is a point at its printed time."""

from __future__ import annotations

import re

from collections.abc import Callable, Sequence

from vllm_watch.analysis.loadtest.history import ServerHistory
from vllm_watch.analysis.loadtest.log_replay import LogReplay
from vllm_watch.analysis.replay.finished_log import FinishedLog
from vllm_watch.analysis.replay.replay import Progress
from vllm_watch.daemon.support.errors import FileError
from vllm_watch.daemon.support.garbage import no_search_for_cycles


ToMoment = Callable[[float], float]
"""Turns a printed time that was read in this machine's zone into the moment that is meant."""

# The line on drafts belongs to the line of statistics before it.
_STATISTICS = re.compile(rb"Running: [^\n]*\n(?:[^\n]*Spec[a-zA-Z]{1,20} metrics: [^\n]*\n)?")


def read_logs(
    paths: Sequence[str], source: str, name: str, to_moment: ToMoment, progress: Progress = lambda _share: None
) -> ServerHistory:
    """
    Return the history of one server's log, given as its parts in order.

    Raises:
        FileError: A part cannot be read, or there is no line of vLLM in any.
    """
    logs = [FinishedLog(path) for path in paths]
    logs.sort(key=lambda log: log.end)
    replay = LogReplay(name)
    whole = sum(log.size for log in logs)
    done = 0
    with no_search_for_cycles():
        for log in logs:
            for batch in log.read(_STATISTICS):
                replay.read(batch)
                progress((done + log.share * log.size) / whole)
            done += log.size
    progress(1.0)
    if not replay.has_events:
        # The size of an empty log counts as one byte.
        is_empty = whole <= len(logs)
        reason = "is empty" if is_empty else "is no recording or result, and has no line of a vLLM server's log"
        raise FileError(f"{paths[0]}: {reason}")
    return _moved(replay.history(source, name), to_moment)


def _moved(history: ServerHistory, to_moment: ToMoment) -> ServerHistory:
    points = tuple(point._replace(at=to_moment(point.at)) for point in history.points)
    events = tuple(type(event)(at=to_moment(event.at), text=event.text) for event in history.events)
    return history._replace(points=points, events=events)
