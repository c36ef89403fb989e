# SPDX-License-Identifier: Apache-2.0
"""
Of which life of a server each source speaks, and what is known of that life beyond one run of the daemon.

A start that a source reports begins a new life, unless another source has reported that start already: then what the
other sources have said is of the life that is over, and is forgotten. So a fact of an earlier life is never shown for a
later one; it is absent until its source has spoken of the new one.

What an earlier run of the daemon knew is taken back once a source shows that the server was not started since: its log
goes on where that run has stopped, or /metrics shows the same process.
"""

from __future__ import annotations

import math

import msgspec

from vllm_watch.daemon.state.facts import Facts
from vllm_watch.daemon.state.kept_facts import KeptFacts, KeptFlags, RunningServer, ServerProcess
from vllm_watch.daemon.state.scrape_source import is_same_start
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch.daemon.state.snapshot import FlagSource
from vllm_watch_parsers.flags import CommandFacts


class PresentLife:
    """
    Takes in which source reports a start and which process each source is about.

    Args:
        sources: What the sources have said; here it is taken back from a checkpoint and forgotten.
    """

    def __init__(self, sources: ServerSources) -> None:
        self._sources = sources
        self._heard: set[FlagSource] = set()
        """The sources that have spoken of the present life."""
        self._is_start_known = False
        """Whether a source has reported the start of the present life."""
        self._process_start: float | None = None
        self._former_start: float | None = None
        """The start of the process that answered when another source reported a new life."""
        self._process: ServerProcess | None = None
        """The process that the process table showed last."""
        self._looked_at = self._began_at = -math.inf
        """When the process table was read last, and when the start of the present life was reported."""
        self._before: KeptFacts | None = None
        """What an earlier run knew, until a source shows that it still holds."""

    @property
    def is_certain(self) -> bool:
        """Whether what an earlier run knew is known to hold, or not to."""
        return self._before is None

    @property
    def wants_process(self) -> bool:
        """Whether the server was started since the process table was read last."""
        return self._began_at > self._looked_at

    def note_log(self, at: float, *, is_start: bool, is_history: bool) -> None:
        """Take in lines of the log, the last one written at `at`, and whether they report a start."""
        if is_start and not is_history:
            self._start("log", at)
        self._heard.add("log")

    def note_scrape(self, at: float, *, is_restart: bool) -> None:
        """Take in a scrape at `at`, and whether it shows that the server was started again."""
        scrape = self._sources.scrape
        start = None if scrape is None or scrape.process.start is None else scrape.process.start.reported
        is_same = _is_same(start, self._process_start)
        if is_restart or is_same is False:
            self._start("metrics", at)
        elif is_same:
            self._take_back()
        if start is not None or is_restart:
            self._process_start = start
        if not _is_same(start, self._former_start):  # Else a gateway still shows the process of the former life.
            self._heard.add("metrics")

    def note_process(self, running: RunningServer | None, at: float) -> None:
        """Take in which process the process table showed at `at`; one that cannot be seen changes nothing."""
        self._looked_at = at
        if running is None or at < self._began_at:
            return
        if self._process is not None and running.process != self._process:
            self._start("command line", at)
        is_new = "command line" not in self._heard or running.command != self._sources.command
        self._process = running.process
        self._heard.add("command line")
        if is_new:
            self._sources.command = running.command
            self._sources.flags.note_command(running.command)

    def restore(self, kept: KeptFacts) -> None:
        """Keep what an earlier run knew, until a source shows that it still holds."""
        self._before = kept
        self._sources.caches.restore(kept.caches, kept.former_caches)
        self._process_start = kept.process_start

    def resume_log(self, log: str, *, goes_on: bool) -> None:
        """
        Take in whether this log goes on where the earlier run stopped reading, before its next lines are taken in.

        If lines are missing, what is read later proves nothing to the next run either.
        """
        if self._before is None or self._before.log != log:
            return
        if goes_on:
            self._take_back()
        elif self._before.process_start is None:
            self._before = None
        else:
            self._before = msgspec.structs.replace(self._before, log=None)

    def kept(self, server: str, log: str | None) -> KeptFacts | None:
        """Return a copy of what is known of a server with a log; `None` if a checkpoint would not accept it."""
        if self._before is not None:
            return self._before
        source = self._sources.log
        known = KeptFacts(
            server,
            log,
            self._process_start,
            None if source is None else source.facts,
            KeptFlags() if source is None else self._sources.flags.kept(),
            *self._sources.caches.kept,
        )
        try:
            copy = msgspec.convert(msgspec.to_builtins(known), KeptFacts)
        except msgspec.ValidationError:
            return None
        is_empty = (copy.facts or Facts(), copy.flags) == (Facts(), KeptFlags())
        return None if is_empty and not (copy.caches or copy.former_caches) else copy

    def _start(self, source: FlagSource, at: float) -> None:
        """Take in that a source reports a start: of a new life, unless another one has reported it first."""
        self._before = None
        if source in self._heard or not self._is_start_known:
            self._is_start_known, self._began_at = True, at
            self._sources.caches.start()
            for other in self._heard - {source}:
                self._forget(other, at)
            self._heard.clear()
        if source != "log":  # The log has begun anew with its line.
            self._forget(source, at)
        self._heard.add(source)

    def _forget(self, source: FlagSource, at: float) -> None:
        sources = self._sources
        sources.flags.start(source, at)
        if source == "log" and sources.log is not None:
            sources.log.forget_facts()
        elif source == "metrics":
            self._former_start = self._process_start
        elif source == "command line":
            sources.command = CommandFacts()

    def _take_back(self) -> None:
        kept, self._before = self._before, None
        if kept is None:
            return
        sources = self._sources
        if sources.log is not None and kept.facts is not None and not sources.flags.has_log_start:
            sources.log.facts = kept.facts
            sources.flags.take_back(kept.flags)
        self._heard.update({"log"} if kept.facts is not None else ())
        self._heard.update({"metrics"} if kept.process_start is not None else ())


def _is_same(one: float | None, other: float | None) -> bool | None:
    """Return whether two starts that /metrics reported are of one process; `None` if one was not reported."""
    return None if one is None or other is None else is_same_start(one, other)
