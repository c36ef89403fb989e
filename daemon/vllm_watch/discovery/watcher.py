# SPDX-License-Identifier: Apache-2.0
"""
Servers that come and go: what is watched now, by what was found lately.

A server that is gone stays for an hour, so that it is seen as down and alerts fire. One that is started anew with the
same model and address is the same one.
"""

from __future__ import annotations

import threading

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from vllm_watch.config.model import Config, ServerConfig
from vllm_watch.discovery.names import Identity, Named, with_names
from vllm_watch.discovery.proc import Proc
from vllm_watch.discovery.servers import Found, find, roots
from vllm_watch.support.clock import Clock


log = structlog.get_logger("vllm_watch.discovery")

LOOK_SECONDS = 10.0
"""How often the processes are listed."""

CLOSE_LOOK_SECONDS = 60.0
"""How often the servers among them are looked at closely although they are the same ones as before."""

KEEP_SECONDS = 3600.0
"""How long a server is watched that is gone."""

MAX_SERVERS = 256
"""So many are watched, present ones first: whoever may start processes could make up any number."""


class Known(NamedTuple):
    """A server that is watched, by its name, and when it was last there."""

    name: str
    config: ServerConfig
    seen_at: float


class _News(NamedTuple):
    """Something to say once, as an event of the daemon's log with its fields."""

    event: str
    fields: tuple[tuple[str, object], ...]
    is_wrong: bool = False


def remember(known: Mapping[Identity, Known], found: Sequence[Named], now: float) -> dict[Identity, Known]:
    """
    Return what is to be watched, by name: what is there, and what was there in the last hour.

    What is gone is not kept at an address that another one has now: that one would be watched twice.
    """
    present = {
        each.identity: Known(each.name, each.server.configured(each.name), now)
        for each in _by_turns([each for each in found if each.server.is_watchable])
    }
    taken = {_url(each.config) for each in present.values()} - {None}
    kept = {
        identity: each
        for identity, each in known.items()
        if identity not in present and now - each.seen_at < KEEP_SECONDS and _url(each.config) not in taken
    }
    latest = sorted([*present.items(), *kept.items()], key=lambda item: -item[1].seen_at)[:MAX_SERVERS]
    return dict(sorted(latest, key=lambda item: item[1].name))


def _url(config: ServerConfig) -> str | None:
    return None if config.metrics is None else config.metrics.url


def _by_turns(found: Sequence[Named]) -> list[Named]:
    """Return each user's first server, then each one's second …: whoever makes up many takes no other user's place."""
    turns: Counter[str] = Counter()
    ranked = []
    for each in found:
        ranked.append((turns[each.server.user], each))
        turns[each.server.user] += 1
    return [each for _, each in sorted(ranked, key=lambda turn: turn[0])]


class Follower:
    """
    Finds servers again and again, and says what to watch.

    `look` may be called from any thread.

    Args:
        clock: The time.
        config: What holds besides the servers.
        proc: The process table.
        host: The root of the host's files, for what containers print.
    """

    def __init__(self, clock: Clock, config: Config, proc: Proc | None = None, host: Path = Path("/")) -> None:
        self._clock = clock
        self._config = config
        self._proc = proc or Proc()
        self._host = host
        self._lock = threading.Lock()
        self._known: dict[Identity, Known] = {}
        self._found = Found((), (), 0)
        self._seen: frozenset[tuple[int, int]] | None = None
        self._look_closely_at = 0.0
        self._said: frozenset[_News] = frozenset()

    def look(self, *, closely: bool = False) -> Config:
        """
        Look once; return what is to be watched now, which may be nothing.

        Args:
            closely: Also at servers that were there before.
        """
        with self._lock:
            now = self._clock.now()
            listed = self._proc.processes()
            seen = frozenset((process.pid, process.started) for process in roots(listed.processes))
            if closely or seen != self._seen or now >= self._look_closely_at:
                self._seen, self._look_closely_at = seen, now + CLOSE_LOOK_SECONDS
                before, self._found = self._found, find(self._proc, listed, self._host)
                # Those that hang are there: what was found of them holds until something else can be.
                hanging = tuple(each for each in before.servers if each.pid in self._proc.hanging_pids)
                self._found = self._found._replace(servers=self._found.servers + hanging)
            named = with_names(self._found.servers, {identity: each.name for identity, each in self._known.items()})
            self._known = remember(self._known, named, now)
            self._say(
                (*_news(self._found, named, self._known.values(), now), *_news_of_hanging(self._proc.hanging_pids))
            )
            return msgspec.structs.replace(self._config, servers=tuple(each.config for each in self._known.values()))

    @property
    def hanging_count(self) -> int:
        """How many processes are passed over because asking about them hangs."""
        return len(self._proc.hanging_pids)

    def _say(self, news: Iterable[_News]) -> None:
        """Write to the daemon's log what is new since the last look."""
        present = dict.fromkeys(news)
        for each in present:
            if each not in self._said:
                (log.warning if each.is_wrong else log.info)(each.event, **dict(each.fields))
        self._said = frozenset(present)


def _news_of_hanging(pids: Iterable[int]) -> Iterator[_News]:
    text = "What it runs cannot be learned, for it hangs in the kernel: a driver, or the file system of its log."
    for pid in sorted(pids):
        yield _News("discovery.hangs", (("pid", pid), ("meaning", text)), is_wrong=True)


def _news(found: Found, named: Sequence[Named], known: Iterable[Known], now: float) -> Iterator[_News]:
    for name, _, server in named:
        fields = {"server": name, "pid": server.pid, "metrics": server.url, "log": server.log or server.journal}
        yield _News("discovery.found", tuple(fields.items()))
        for finding in server.findings:
            yield _News("discovery.advice", (("server", name), ("advice", finding.text)), finding.is_wrong)
    for finding in found.findings:
        yield _News("discovery.advice", (("advice", finding.text),), finding.is_wrong)
    for each in known:
        if each.seen_at < now:
            fields = {"server": each.name, "effect": f"It is watched for {KEEP_SECONDS / 60:.0f} minutes more."}
            yield _News("discovery.gone", tuple(fields.items()), is_wrong=True)
    if not found.servers:
        text = f"No vLLM server runs here that can be seen; this is looked for every {LOOK_SECONDS:.0f} s."
        yield _News("discovery.nothing", (("meaning", text),))
