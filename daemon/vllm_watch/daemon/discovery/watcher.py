# SPDX-License-Identifier: Apache-2.0
"""
Servers that come and go: which are watched now.

A server that is gone is watched for another hour, so that it is shown as down and alerts fire. One that is started
again with the same name, which is its model and port, is the same server.
"""

from __future__ import annotations

import threading

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.discovery.processes import Proc
from vllm_watch.daemon.discovery.servers import DiscoveredServer, Discovery, find_servers, server_processes, with_names
from vllm_watch.daemon.support.clock import Clock


log = structlog.get_logger("vllm_watch.discovery")

POLL_SECONDS = 10.0
"""How often the processes are listed."""

FULL_POLL_SECONDS = 60.0
"""How often the servers are read again although the same processes run."""

KEEP_SECONDS = 3600.0
"""How long a server that is gone is watched."""

MAX_SERVERS = 256
"""The most servers that are watched, running ones first: any user can start processes that look like servers."""


class TrackedServer(NamedTuple):
    """A server that is watched, and when it was last seen running."""

    server: DiscoveredServer
    seen_at: float

    @property
    def config(self) -> ServerConfig:
        """What watches it."""
        return self.server.config


class _Event(NamedTuple):
    """An event of the daemon's log, written once for as long as it holds."""

    event: str
    fields: tuple[tuple[str, object], ...]
    is_wrong: bool = False


def track(
    tracked: Mapping[str, TrackedServer], found: Sequence[DiscoveredServer], now: float
) -> dict[str, TrackedServer]:
    """
    Return the servers to watch, in order of name: those that run, and those that ran within the last hour.

    One that is gone is dropped when another server has its address, or its log if it has none: that would be watched
    twice.
    """
    present = {each.name: TrackedServer(each, now) for each in _in_turns(found) if each.is_watchable}
    taken = {place for each in present.values() for place in _places(each.config)}
    kept = {
        name: each
        for name, each in tracked.items()
        if name not in present and now - each.seen_at < KEEP_SECONDS and taken.isdisjoint(_places(each.config)[:1])
    }
    latest = sorted([*present.items(), *kept.items()], key=lambda item: -item[1].seen_at)[:MAX_SERVERS]
    return dict(sorted(latest))


def _places(config: ServerConfig) -> list[str]:
    """Return where a server is watched: first its address, which no other server has, or else its log."""
    return [place for place in (config.metrics and config.metrics.url, config.log, config.journal) if place]


def _in_turns(found: Sequence[DiscoveredServer]) -> list[DiscoveredServer]:
    """Return each user's first server, then each one's second …: a user with many displaces no other user's."""
    turns: Counter[str] = Counter()
    ranked = []
    for each in found:
        ranked.append((turns[each.user], each))
        turns[each.user] += 1
    return [each for _, each in sorted(ranked, key=lambda turn: turn[0])]


class ServerWatcher:
    """
    Finds servers again and again, and returns a configuration, given without servers, that watches them.

    `poll` may be called from any thread. `host` is the root of the host's files, where container runtimes keep logs.
    """

    def __init__(self, clock: Clock, config: Config, proc: Proc | None = None, host: Path = Path("/")) -> None:
        self._clock = clock
        self._config = config
        self._proc = proc or Proc()
        self._host = host
        self._lock = threading.Lock()
        self._tracked: dict[str, TrackedServer] = {}
        self._found = Discovery((), (), 0)
        self._running: frozenset[tuple[int, int]] | None = None
        self._full_poll_at = 0.0
        self._written: frozenset[_Event] = frozenset()

    def poll(self, *, fully: bool = False) -> Config:
        """
        Find the servers once; return the configuration that watches them, which may be none.

        If `fully`, read also about servers that were found before.
        """
        with self._lock:
            now = self._clock.now()
            listed = self._proc.processes()
            running = frozenset((process.pid, process.started) for process in server_processes(listed.processes))
            if fully or running != self._running or now >= self._full_poll_at:
                self._running, self._full_poll_at = running, now + FULL_POLL_SECONDS
                before, self._found = self._found, find_servers(self._proc, listed, self._host)
                # Those that hang still run: the last findings about them hold until there are new ones.
                hanging = tuple(each for each in before.servers if each.pid in self._hanging_pids)
                self._found = self._found._replace(servers=self._found.servers + hanging)
            named = with_names(self._found.servers)
            self._tracked = track(self._tracked, named, now)
            events = _events(self._found, named, self._tracked.values(), now)
            self._write((*events, *_events_of_hanging(self._hanging_pids)))
            return msgspec.structs.replace(self._config, servers=tuple(each.config for each in self._tracked.values()))

    @property
    def hanging_count(self) -> int:
        """How many processes are skipped because reading about them hangs."""
        return len(self._hanging_pids)

    @property
    def _hanging_pids(self) -> frozenset[int]:
        return self._proc.hanging_pids

    def _write(self, events: Iterable[_Event]) -> None:
        """Write the events to the daemon's log that did not hold at the last poll."""
        present = dict.fromkeys(events)
        for each in present:
            if each not in self._written:
                (log.warning if each.is_wrong else log.info)(each.event, **dict(each.fields))
        self._written = frozenset(present)


def _events_of_hanging(pids: Iterable[int]) -> Iterator[_Event]:
    text = "What it runs cannot be learned, for it hangs in the kernel: a driver, or the file system of its log."
    for pid in sorted(pids):
        yield _Event("discovery.hangs", (("pid", pid), ("meaning", text)), is_wrong=True)


def _events(
    found: Discovery, named: Sequence[DiscoveredServer], tracked: Iterable[TrackedServer], now: float
) -> Iterator[_Event]:
    for server in named:
        fields = {"server": server.name, "pid": server.pid, "metrics": server.url, "log": server.log or server.journal}
        yield _Event("discovery.found", tuple(fields.items()))
        for finding in server.findings:
            yield _Event("discovery.advice", (("server", server.name), ("advice", finding.text)), finding.is_wrong)
    for finding in found.findings:
        yield _Event("discovery.advice", (("advice", finding.text),), finding.is_wrong)
    for each in tracked:
        if each.seen_at < now:
            fields = {"server": each.config.name, "effect": f"It is watched for {KEEP_SECONDS / 60:.0f} minutes more."}
            yield _Event("discovery.gone", tuple(fields.items()), is_wrong=True)
    if not found.servers:
        text = f"No vLLM server runs here that can be seen; this is looked for every {POLL_SECONDS:.0f} s."
        yield _Event("discovery.nothing", (("meaning", text),))
