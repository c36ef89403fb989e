# SPDX-License-Identifier: Apache-2.0
"""What follows the log of a configured server."""

from __future__ import annotations

from collections.abc import Callable

from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.reading.log_reader import LogReader
from vllm_watch.daemon.sources.checkpoint import Loaded
from vllm_watch.daemon.sources.file_follower import MAX_READS
from vllm_watch.daemon.sources.journal_tailer import JournalTailer
from vllm_watch.daemon.sources.log_tailer import LogTailer
from vllm_watch.daemon.support.clock import Clock


Tailer = LogTailer | JournalTailer


def tailer_of(
    config: ServerConfig,
    before: Loaded,
    clock: Clock,
    make_reader: Callable[[], LogReader] = LogReader,
    *,
    max_reads: int = MAX_READS,
) -> Tailer:
    """
    Return what follows a server's log.

    Args:
        config: The server, which has a log.
        before: How far an earlier run has read it.
        clock: The time.
        make_reader: Returns a reader of the lines.
        max_reads: Pieces of a file that are read in one poll.
    """
    if config.journal is not None:
        cursors = [position.cursor for position in before.positions.of(None, config.journal).journals]
        cursor = cursors[0] if cursors else None
        return JournalTailer(config.journal, cursor=cursor, wall=clock.wall, make_reader=make_reader)
    if config.log is None:
        raise ValueError(f"server {config.name} has no log")
    files = before.positions.files
    return LogTailer(config.log, files, before.written, clock.wall, make_reader, max_reads=max_reads)
