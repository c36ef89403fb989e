# SPDX-License-Identifier: Apache-2.0
"""The daemon: servers, threads and HTTP wired together, its reload, and the signals that end it."""

from __future__ import annotations

import os
import platform
import signal
import threading
import time

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TypeVar

import msgspec
import structlog

from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder

from vllm_watch import __version__
from vllm_watch.config.model import Config
from vllm_watch.discovery.watcher import Follower
from vllm_watch.exposition.collector import SnapshotCollector
from vllm_watch.exposition.http_sd import TargetGroup, target_groups
from vllm_watch.exposition.json_view import server_view
from vllm_watch.exposition.samples import PlainSample
from vllm_watch.exposition.text_format import prometheus_text
from vllm_watch.service.log_thread import LogThread
from vllm_watch.service.monitor import HISTORY_STEP, NOTHING_BEFORE, ServerMonitor, wall_time
from vllm_watch.service.systemd import Notifier
from vllm_watch.service.threads import DiscoveryThread, Heartbeat, ProbeThread, ScrapeThread
from vllm_watch.sources.checkpoint import CheckpointFile, Loaded, Positions
from vllm_watch.state.snapshot import ServerSnapshot
from vllm_watch.support.clock import Clock
from vllm_watch.support.errors import ConfigError, VllmWatchError
from vllm_watch.support.internal_errors import InternalErrors
from vllm_watch.web.pages import PLAIN_TEXT, Answer, accepts_gzip, compressed
from vllm_watch.web.server import WebServer


log = structlog.get_logger("vllm_watch")

STALE_HEARTBEAT = 30.0
"""A thread without a sign of life for so long hangs."""

TURN_SECONDS = 1.0
"""How often the main thread looks after what is not a source's: history, status, signs of life."""

FIRST_TURN_SECONDS = 0.1
"""The same until the daemon is ready, so that it is soon said."""

MAX_UNWATCHED = 256
"""Of so many logs that are not watched any more it is known how far they were read."""

MAX_NAMED = 20
"""How many servers the status line names."""

_OF_SERVERS = frozenset({"servers", "servers_dir", "files"})
"""What a configuration says of servers: a reload may change it."""

_NOT_MENDED = frozenset({"discovery"})
"""What hangs for other processes would hang again after a restart, which costs all servers their values."""

Load = Callable[[], Config]
Made = TypeVar("Made")


class Service:
    """
    Watches the configured servers until it is stopped.

    Args:
        config: What to watch first.
        clock: The time.
        load: Reads the configuration again for a reload; without it nothing is reloaded.
        follower: Finds the servers instead of a configuration, and again and again; a reload makes it look at once.
        notifier: Tells systemd; by default the one of this process's environment.

    Raises:
        UsageError: On `start`, if the address to listen on cannot be had.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        load: Load | None = None,
        follower: Follower | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._load = load
        self._errors = InternalErrors()
        self._notifier = notifier or Notifier(os.environ, failed=self._note_untold)
        self._checkpoint = CheckpointFile(config.checkpoint) if config.checkpoint is not None else None
        self._before = self._load_checkpoint()
        self._unwatched = _unwatched(self._before.positions.dated(self._before.written), config)
        self._servers = tuple(ServerMonitor(server, clock, self._before) for server in config.servers)
        self._tail = LogThread(clock, self._errors, lambda: self._wake.put(None))
        self._scrapes = ScrapeThread(clock, self._errors)
        self._probes = ProbeThread(clock, self._errors)
        self._discovery = DiscoveryThread(clock, follower, self._offer, self._errors) if follower is not None else None
        self._offered: SimpleQueue[Config] = SimpleQueue()
        self._web = WebServer(
            config.host,
            config.port,
            DaemonPages(self),
            web_config_file=config.web_config_file,
            allowed_hosts=config.allowed_hosts,
            errors=self._errors,
        )
        self._main = Heartbeat()
        # A signal's handler may interrupt the main thread anywhere: only such a queue never waits for itself.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._is_stopping = self._wants_reload = self._is_announced = False
        self._remember_at = clock.now()
        self._reloaded_at = clock.now()
        self._is_reload_good = True
        self._reload_failures = 0
        self._collect_errors_lock = threading.Lock()
        self._collect_errors: Counter[str] = Counter()
        self._collector = SnapshotCollector(self.snapshots, self.own_samples, failed=self.note_failure)
        self._process_collector = ProcessCollector(registry=None)
        """All families that the daemon shows."""

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._web.port

    def start(self) -> None:
        """Bind the address, then begin to watch."""
        self._web.start()
        self._follow()
        if self._discovery is not None:
            self._discovery.start()
        log.info("service.started", version=__version__, servers=[server.name for server in self._servers])

    def run(self) -> None:
        """Keep the status page's history, reload when asked to and tell systemd, until told to stop."""
        while not self._is_stopping:
            try:
                self.turn()
            except Exception:  # Whatever it was, the threads that watch go on; the next turn tries again.
                log.exception("turn.failed")
                self._errors.count("main")
            with suppress(Empty):
                self._wake.get(timeout=self._pause())

    def turn(self) -> None:
        """Do once what the main thread does."""
        self._main.beat()
        if self._wants_reload:
            self._wants_reload = False
            self.reload()
        self._take_offers()
        self._remember()
        self._tail.attend()
        if self._is_checkpoint_complete():
            self._save_checkpoint()
        self._notify()

    def request_stop(self) -> None:
        """Make `run` return. A signal's handler may call it."""
        self._is_stopping = True
        self._wake.put(None)

    def request_reload(self) -> None:
        """Make `run` read the configuration again. A signal's handler may call it."""
        self._wants_reload = True
        self._wake.put(None)

    def stop(self) -> None:
        """End all threads and let go of everything."""
        self._notifier.stopping()
        self._is_stopping = True
        self._scrapes.request_stop()
        self._probes.request_stop()
        if self._discovery is not None:
            self._discovery.request_stop()
        self._tail.request_stop()
        self._web.stop()
        self._scrapes.join()
        self._probes.join()
        self._tail.join()
        self._save_checkpoint(force=True)
        for server in self._servers:
            server.close()
        log.info("service.stopped")

    def reload(self) -> None:
        """Read the configuration again and watch what it says; a bad one changes nothing."""
        if self._discovery is not None:
            self._discovery.look_now()
        if self._load is None:
            return
        if self._is_announced:
            self._notifier.reloading()
        try:
            self._swap(self._load(), "config.reloaded")
        except VllmWatchError as error:
            self._refuse()
            log.warning("config.refused", reason=str(error), effect="the old configuration stays")
        except Exception:  # Whatever a file does to its reader, the daemon goes on.
            self._refuse()
            self._errors.count("reload")
            log.exception("config.refused", effect="the old configuration stays")
        if self._is_announced:
            self._notifier.ready()

    def snapshots(self) -> list[ServerSnapshot]:
        """Return what is known now of every server that can say it."""
        return self._each(lambda server: server.snapshot())

    def heartbeats(self) -> dict[str, float]:
        """Return how long ago each running thread gave a sign of life, in seconds."""
        ages = {"main": self._main.age(), "web": time.monotonic() - self._web.heartbeat}
        for loop in (self._tail, self._scrapes, self._probes, self._discovery):
            if loop is not None and loop.thread.ident is not None:
                ages[loop.thread.name] = loop.heartbeat.age()
        return ages

    def stale_threads(self) -> list[str]:
        """Return the threads that give no sign of life, of those that a restart of the daemon would set going again."""
        return [name for name, age in self.heartbeats().items() if age > STALE_HEARTBEAT and name not in _NOT_MENDED]

    def own_samples(self) -> list[PlainSample]:
        """Return what the daemon says of itself."""
        now = self._clock.now()
        samples = [
            PlainSample("build_info", (__version__, platform.python_version()), 1, now),
            PlainSample("config_last_reload_successful", (), float(self._is_reload_good), now),
            PlainSample(
                "config_last_reload_success_timestamp_seconds", (), wall_time(self._clock, self._reloaded_at), now
            ),
            PlainSample("config_reload_failures_total", (), self._reload_failures, now),
        ]
        if self._checkpoint is not None:
            samples.append(PlainSample("checkpoint_info", (self._before.reason,), 1, now))
            samples.append(PlainSample("checkpoint_failures_total", (), self._checkpoint.failures, now))
        if self._discovery is not None:
            samples.append(PlainSample("discovery_hanging_processes", (), self._discovery.hanging_count, now))
        beats = ((name, time.time() - age) for name, age in self.heartbeats().items())
        samples += [PlainSample("heartbeat_timestamp_seconds", (name,), at, now) for name, at in beats]
        errors = {server.name: self._collect_errors[server.name] for server in self._servers}
        samples += [PlainSample("collect_errors_total", (name,), count, now) for name, count in errors.items()]
        failures = self._errors.counts().items()
        return samples + [PlainSample("internal_errors_total", (part,), count, now) for part, count in failures]

    def is_ready(self) -> bool:
        """Whether every source was looked at once."""
        return all(server.has_looked for server in self._servers)

    def metrics(self, *, for_openmetrics: bool) -> bytes:
        """Return all series, those of the process too, in Prometheus' text format or in OpenMetrics."""
        collected, of_process = self._collector.collect(), self._process_collector.collect()
        return prometheus_text(collected, of_process, for_openmetrics=for_openmetrics)

    def document(self, histories: Collection[str] | None = None) -> bytes:
        """Return everything that is known, as JSON, with the last hour of every server or of these."""

        def show(server: ServerMonitor) -> msgspec.Raw:
            has_history = histories is None or server.name in histories
            view = {**server_view(server.snapshot()), **({"history": server.history()} if has_history else {})}
            return msgspec.Raw(msgspec.json.encode(view))  # By itself: what cannot be written hides no other server.

        servers = self._each(show)
        at = wall_time(self._clock, self._clock.now())
        return msgspec.json.encode({"version": __version__, "at": at, "servers": servers})

    def targets(self) -> list[TargetGroup]:
        """Return the servers whose /metrics is watched, as Prometheus finds targets."""
        return target_groups(self._config.servers)

    def note_failure(self, server: str, error: Exception) -> None:
        """Log and count that a server could not be shown."""
        log.error("collect.failed", server=server, exc_info=error)
        self._errors.count("snapshot")
        with self._collect_errors_lock:
            self._collect_errors[server] += 1

    def _each(self, make: Callable[[ServerMonitor], Made]) -> list[Made]:
        """Make something of each server; one that fails hides no other."""
        made = []
        for server in self._servers:
            try:
                made.append(make(server))
            except Exception as error:  # noqa: BLE001 - `note_failure` logs it.
                self.note_failure(server.name, error)
        return made

    def _follow(self) -> None:
        self._tail.follow(self._servers)
        self._scrapes.follow(self._servers)
        self._probes.follow(self._servers)

    def _note_untold(self, error: OSError) -> None:
        log.warning("notify.failed", error=str(error))
        self._errors.count("notify")

    def _offer(self, config: Config) -> None:
        """Take what was discovered; the main thread will watch it."""
        self._offered.put(config)
        self._wake.put(None)

    def _take_offers(self) -> None:
        """Watch what was discovered last, if that is something new."""
        with suppress(Empty):
            while True:
                config = self._offered.get_nowait()
                if config != self._config:
                    self._swap(config, "discovery.changed")

    def _swap(self, config: Config, event: str) -> None:
        """Watch what a new configuration says; a server that is configured as before goes on as it is."""
        _check_same_process(self._config, config)
        known = {server.name: server for server in self._servers}
        kept = {each.name for each in config.servers if each.name in known and known[each.name].adopt(each)}
        for name in known.keys() - kept:
            known[name].close()  # First: what it read later, its successor would read again.
        read_until = self._read_until()
        before = Loaded(self._positions(), "ok", read_until)
        new = tuple(
            known[each.name] if each.name in kept else ServerMonitor(each, self._clock, before)
            for each in config.servers
        )
        self._unwatched = _unwatched(before.positions.dated(read_until), config)
        self._config, self._servers = config, new
        self._follow()
        self._is_reload_good, self._reloaded_at = True, self._clock.now()
        log.info(event, servers=[server.name for server in new])

    def _refuse(self) -> None:
        self._is_reload_good = False
        self._reload_failures += 1

    def _load_checkpoint(self) -> Loaded:
        if self._checkpoint is None:
            return NOTHING_BEFORE
        loaded = self._checkpoint.load(self._clock.wall(self._clock.now()))
        say = log.info if loaded.reason in {"ok", "absent"} else log.warning
        say("checkpoint.loaded", path=self._config.checkpoint, reason=loaded.reason)
        return loaded

    def _save_checkpoint(self, *, force: bool = False) -> None:
        """Save how far the logs have been read; a failure is counted, and said when it is a new one."""
        checkpoint = self._checkpoint
        if checkpoint is None:
            return
        said = checkpoint.last_error
        read_until = self._read_until()  # Before the positions: these may be of a later look, never of an earlier one.
        checkpoint.save(self._positions(), self._clock.wall(self._clock.now()), read_until=read_until, force=force)
        if checkpoint.last_error not in {"", said}:
            log.warning("checkpoint.failed", path=self._config.checkpoint, error=checkpoint.last_error)

    def _is_checkpoint_complete(self) -> bool:
        """Whether each log was looked at once, or hangs: sooner, a checkpoint would forget older positions."""
        return all(server.is_overdue or server.has_looked_at_log for server in self._servers)

    def _read_until(self) -> float:
        """Return a moment before which all that was written to the logs has been read, by the wall clock."""
        moments = [moment for server in self._servers if (moment := server.read_until) is not None]
        return min(moments, default=self._clock.wall(self._clock.now()))

    def _positions(self) -> Positions:
        """Return how far all logs have been read, also those that were watched before and may be again."""
        return self._unwatched.beside(server.positions() for server in self._servers)

    def _remember(self) -> None:
        now = self._clock.now()
        if now >= self._remember_at:
            self._remember_at = now + HISTORY_STEP
            self._each(lambda server: server.remember())

    def _notify(self) -> None:
        if not self._is_announced and self.is_ready():
            self._is_announced = True
            self._notifier.ready()
        if self._notifier.is_heard:
            self._notifier.status(status_line(self.snapshots()))
        if not self.stale_threads():
            self._notifier.alive()

    def _pause(self) -> float:
        longest = TURN_SECONDS if self._is_announced else FIRST_TURN_SECONDS
        return min(longest, self._notifier.interval or longest)


def _unwatched(positions: Positions, config: Config) -> Positions:
    """Return the last of the positions that belong to no configured server: none of its logs is begun a second time."""
    watched = Positions().beside(positions.of(server.log, server.journal) for server in config.servers)
    paths, units = {file.path for file in watched.files}, {journal.unit for journal in watched.journals}
    files = [file for file in positions.files if file.path not in paths]
    journals = [journal for journal in positions.journals if journal.unit not in units]
    return Positions(tuple(files[-MAX_UNWATCHED:]), tuple(journals[-MAX_UNWATCHED:]))


def status_line(snapshots: Sequence[ServerSnapshot]) -> str:
    """Return the servers and their engines' states as one line."""
    named = [f"{each.name} {'/'.join(sorted({engine.state for engine in each.engines}))}" for each in snapshots]
    more = [f"and {len(named) - MAX_NAMED} more"] if len(named) > MAX_NAMED else []
    return ", ".join(named[:MAX_NAMED] + more)


def _check_same_process(old: Config, new: Config) -> None:
    """Refuse what a running process cannot change: everything but the servers."""
    for name in Config.__struct_fields__:
        if name not in _OF_SERVERS and getattr(old, name) != getattr(new, name):
            raise ConfigError(f'"{name}" has changed: this needs a restart')


class DaemonPages:
    """What the web server serves of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def metrics(self, accept: str, accept_encoding: str) -> Answer:
        """Return all series, in the format that the client asks for."""
        _, content_type = choose_encoder(accept)
        text = self._service.metrics(for_openmetrics="openmetrics" in content_type)
        answer = Answer(text, content_type)
        return compressed(answer) if accepts_gzip(accept_encoding) else answer

    def snapshot(self, histories: Collection[str] | None = None) -> Answer:
        """Return everything that is known, as JSON."""
        return Answer(self._service.document(histories), "application/json")

    def targets(self) -> Answer:
        """Return the watched servers for Prometheus' http_sd."""
        return Answer(msgspec.json.encode(self._service.targets()), "application/json")

    def healthy(self) -> Answer:
        """Say whether every thread gives signs of life."""
        hanging = self._service.stale_threads()
        if hanging:
            return Answer(f"no sign of life: {', '.join(hanging)}\n".encode(), PLAIN_TEXT, 503)
        return Answer(b"healthy\n", PLAIN_TEXT)

    def ready(self) -> Answer:
        """Say whether every source was looked at once."""
        if self._service.is_ready():
            return Answer(b"ready\n", PLAIN_TEXT)
        return Answer(b"not every source was looked at yet\n", PLAIN_TEXT, 503)


@contextmanager
def handle_signals(service: Service, *, reloads: bool) -> Iterator[None]:
    """Make SIGTERM and SIGINT end a service's `run`, a second one the process at once, and SIGHUP reload."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        service.request_stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    def reload(_number: int, _frame: FrameType | None) -> None:
        service.request_reload()

    handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, **({signal.SIGHUP: reload} if reloads else {})}
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def run_service(config: Config, clock: Clock, load: Load | None = None, follower: Follower | None = None) -> None:
    """Run the daemon until a signal ends it; SIGHUP has `load` read the configuration, or the follower look, again."""
    service = Service(config, clock, load=load, follower=follower)
    with handle_signals(service, reloads=load is not None or follower is not None):
        service.start()
        try:
            service.run()
        finally:
            service.stop()
