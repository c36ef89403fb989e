# SPDX-License-Identifier: Apache-2.0
"""What goes into the checkpoint, and what was read before it; `sources/checkpoint.py` has the file, and how often."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

import structlog

from msgspec.structs import replace

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.exposition.samples import PlainSample
from vllm_watch.daemon.service.log_polling import LogMonitor
from vllm_watch.daemon.sources.checkpoint import NOTHING_BEFORE, CheckpointFile, Loaded, Positions
from vllm_watch.daemon.support.clock import Clock


log = structlog.get_logger("vllm_watch.service")

MAX_UNWATCHED = 256
"""The most logs that are no longer watched whose positions are kept."""


class Checkpointer:
    """
    Saves the positions of all logs to the checkpoint file, if one is configured, and loads them at the start.

    It also keeps those of logs that no server has any more: when one is configured again, reading resumes there.

    Args:
        config: Names the file and the first servers.
        clock: The time.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self._path = config.checkpoint
        self._clock = clock
        self._file = CheckpointFile(config.checkpoint) if config.checkpoint is not None else None
        self.loaded = self._load()
        """What the file held at the start."""
        self.kernel_cursor = self.loaded.positions.kernel_cursor
        """How far the kernel's log has been read."""
        self.gpus = self.loaded.positions.gpus
        """Which GPUs the processes of servers are on."""
        self._unwatched = Positions()
        self.keep_unwatched(self.loaded.positions, config)

    def keep_unwatched(self, positions: Positions, config: Config) -> None:
        """Keep those positions that belong to no server of a configuration."""
        self._unwatched = _unwatched(positions, config)

    def positions(self, logs: Collection[LogMonitor], known: Callable[[], Positions]) -> Positions:
        """
        Return how far these logs and the unwatched ones have been read, as a checkpoint of this moment.

        Args:
            logs: The logs that are watched.
            known: Returns what is known of the servers beside the positions.
        """
        watched = Positions().beside(each.positions for each in logs)
        # A log that was renamed is not to be read again under its former path.
        positions = self._unwatched.without(watched.files).beside([watched])
        # What is known last: lines that are read again may correct it, lines that are not must be in it.
        return replace(
            known(),
            files=positions.files,
            journals=positions.journals,
            kernel_cursor=self.kernel_cursor,
            gpus=self.gpus,
        )

    def save(self, logs: Collection[LogMonitor], known: Callable[[], Positions], *, force: bool = False) -> None:
        """Save the positions, if the last time is long enough ago; a failure is counted, and a new one is logged."""
        if self._file is None or not (force or _all_polled(logs)):
            return
        last_error = self._file.last_error
        self._file.save(self.positions(logs, known), self._wall_now(), force=force)
        if self._file.last_error not in {"", last_error}:
            log.warning("checkpoint.failed", path=self._path, error=self._file.last_error)

    def samples(self, at: float) -> Iterator[PlainSample]:
        """Yield how loading went and how many saves failed, nothing without a file."""
        if self._file is not None:
            yield PlainSample("checkpoint_info", (self.loaded.reason,), 1, at)
            yield PlainSample("checkpoint_failures_total", (), self._file.failures, at)

    def _load(self) -> Loaded:
        if self._file is None:
            return Loaded(NOTHING_BEFORE, "absent")
        loaded = self._file.load(self._wall_now())
        write = log.info if loaded.reason in {"ok", "absent"} else log.warning
        write("checkpoint.loaded", path=self._path, reason=loaded.reason)
        return loaded

    def _wall_now(self) -> float:
        return self._clock.wall(self._clock.now())


def _all_polled(logs: Iterable[LogMonitor]) -> bool:
    """Whether each log was polled once, or hangs: before that, a checkpoint would lose older positions."""
    return all(each.is_overdue or each.was_polled for each in logs)


def _unwatched(positions: Positions, config: Config) -> Positions:
    """Return the last of the positions that belong to no configured server."""
    watched = Positions().beside(positions.of(server.log, server.journal) for server in config.servers)
    paths, units = {file.path for file in watched.files}, {journal.unit for journal in watched.journals}
    files = [file for file in positions.files if file.path not in paths]
    journals = [journal for journal in positions.journals if journal.unit not in units]
    return Positions(tuple(files[-MAX_UNWATCHED:]), tuple(journals[-MAX_UNWATCHED:]))
