# SPDX-License-Identifier: Apache-2.0
"""The daemon's life: its parts put together, started, kept going by the main thread, and stopped."""

from __future__ import annotations

import os
import platform
import resource
import signal
import sys
import time

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType

import structlog

from vllm_watch import __version__
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.discovery.pods import with_pods
from vllm_watch.daemon.discovery.watcher import ServerWatcher
from vllm_watch.daemon.exposition.samples import PlainSample
from vllm_watch.daemon.service.checkpointer import Checkpointer
from vllm_watch.daemon.service.endpoints import DaemonEndpoints
from vllm_watch.daemon.service.fleet import Fleet
from vllm_watch.daemon.service.kernel_log_thread import KernelLogThread
from vllm_watch.daemon.service.otlp import OtlpThread
from vllm_watch.daemon.service.pods_thread import PodsThread
from vllm_watch.daemon.service.reloader import Load, Reloader
from vllm_watch.daemon.service.service_thread import Liveness
from vllm_watch.daemon.service.systemd import MAX_NAMED, Notifier, status_line
from vllm_watch.daemon.service.threads import WatchingThreads
from vllm_watch.daemon.support.clock import Clock, wall_time
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch.daemon.web.addresses import address_text
from vllm_watch.daemon.web.server import WebServer


log = structlog.get_logger("vllm_watch.service")

TICK_SECONDS = 1.0
"""How often the main thread does what belongs to no source: states, history, checkpoint, status, signs of life."""

FIRST_TICK_SECONDS = 0.1
"""The same until the daemon is ready, so that systemd hears of it soon."""

SWITCH_SECONDS = 0.001
"""
How long a thread that computes keeps the interpreter while others want it. A response takes the event loop several
turns: at Python's 5 ms each, one would wait for 30 ms while another thread writes the series of 200 servers.
"""

TOGETHER_SECONDS = 0.1
"""Signals that come within this time are one: ``timeout`` sends its signal to the process, and again to its group."""


class Supervisor:
    """
    Runs the daemon until it is stopped.

    Args:
        config: What to watch first.
        clock: The time.
        load: Reads the configuration again for a reload; without it nothing is reloaded.
        follower: Finds servers again and again, instead of a configuration file; a reload makes it search at once.
        notifier: Talks to systemd; by default as this process's environment says.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        load: Load | None = None,
        follower: ServerWatcher | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._clock = clock
        # A signal's handler may interrupt the main thread anywhere; only such a queue cannot deadlock with itself.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._is_stopping = self._wants_reload = self._is_announced = False
        self.errors = InternalErrors()
        self._notifier = notifier or Notifier(os.environ, failed=self._note_unsent)
        self.checkpointer = Checkpointer(config, clock)
        self.threads = WatchingThreads(clock, self.errors, follower, offer=self._offer, logs_polled=self._wake_up)
        self.fleet = Fleet(config, clock, self.checkpointer, self.errors)
        self.reloader = Reloader(config, clock, self.errors, load=load, apply=self._watch)
        self.pods = PodsThread(clock, self.errors, changed=self._wake_up)
        self.fleet.is_complete = self.pods.are_watched
        self.liveness = Liveness((*self.threads.beating, self.pods))
        self.kernel_log = KernelLogThread(
            clock, self.errors, self.fleet, readings=self.threads.gpus.readings, cursor=self.checkpointer.kernel_cursor
        )
        self.endpoints = DaemonEndpoints(self.fleet, clock, self.liveness, self.own_samples, self.threads.alerts.alerts)
        self.otlp = OtlpThread(clock, self.errors, self.endpoints.otlp_body)
        self._all_threads = (*self.threads.all, self.pods, self.otlp, self.kernel_log)
        self._web = WebServer(
            config.host,
            config.port,
            self.endpoints,
            web_config_file=config.web_config_file,
            allowed_hosts=config.allowed_hosts,
            clock=clock,
            errors=self.errors,
            heartbeat=self.liveness.web,
        )

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._web.port

    def start(self) -> None:
        """
        Listen, then start to watch.

        Raises:
            ConfigError: The web configuration file, or one that it names, is wrong.
            UsageError: The address cannot be listened on.
        """
        self._web.start()
        self.threads.gpus.known = self.checkpointer.gpus
        self._follow()
        self.pods.follow(self.fleet.config.kubernetes)
        names = [server.name for server in self.fleet.servers]
        address = address_text(self.fleet.config.host, self.port)
        log.info("service.started", version=__version__, address=address, servers=names)

    def run(self) -> None:
        """Do what the main thread does, again and again, until asked to stop."""
        while not self._is_stopping:
            try:
                self.tick()
            except Exception:  # The threads that watch continue; the next tick tries again.
                log.exception("main.failed")
                self.errors.count("main")
            with suppress(Empty):
                self._wake.get(timeout=self._pause())

    def tick(self) -> None:
        """Do once what the main thread does: reload if asked, keep history and checkpoint, look after the threads."""
        self.liveness.main.beat()
        if self._wants_reload:
            self._wants_reload = False
            self.reload()
        self.reloader.apply_offer()
        self._follow_pods()
        self.fleet.log_changes()
        self.fleet.record_history()
        self.kernel_log.follow(self.fleet.config)  # Each time: a driver may be loaded later.
        self._save_positions()
        self._notify()

    def reload(self) -> None:
        """Look for servers at once, and read the configuration's files again; a bad one changes nothing."""
        self.threads.discovery.turn_now()
        self.pods.turn_now()
        if not self.reloader.can_reload:
            return
        if self._is_announced:
            self._notifier.reloading()
        self.reloader.reload()
        self._web.config.reload()
        if self._is_announced:
            self._notifier.ready()

    def request_stop(self) -> None:
        """Make `run` return. A signal's handler may call it."""
        self._is_stopping = True
        self._wake_up()

    def request_reload(self) -> None:
        """Make `run` reload. A signal's handler may call it."""
        self._wants_reload = True
        self._wake_up()

    def stop(self) -> None:
        """End all threads, save the checkpoint and close everything."""
        self._notifier.stopping()
        self._is_stopping = True
        for thread in self._all_threads:
            thread.request_stop()
        self._web.stop()
        for thread in self._all_threads:
            thread.join()
        self._save_positions(force=True)
        self.fleet.close()
        log.info("service.stopped")

    def _save_positions(self, *, force: bool = False) -> None:
        self.checkpointer.kernel_cursor, self.checkpointer.gpus = self.kernel_log.cursor, self.threads.gpus.known
        self.checkpointer.save(self.fleet.logs, self.fleet.known, force=force)

    def _watch(self, config: Config) -> None:
        """Watch the servers of a new configuration and the pods, and ask its Prometheus."""
        self.pods.follow(config.kubernetes)
        self.pods.watched = self.pods.servers()
        config = with_pods(config, self.pods.watched)
        self.fleet.replace(config)
        self._follow()

    def _follow(self) -> None:
        self.threads.follow(self.fleet.config, self.fleet.servers)
        self.otlp.follow(self.fleet.config.otlp)

    def _follow_pods(self) -> None:
        """Watch the pods of the last list, where they are others than before."""
        pods, before = self.pods.servers(), self.pods.watched
        if pods != before:
            self._watch(self.reloader.config)
            names, known = {each.name for each in pods}, {each.name for each in before}
            log.info("kubernetes.pods", added=sorted(names - known), gone=sorted(known - names), watched=len(names))

    def _offer(self, config: Config) -> None:
        """Let the main thread apply what discovery found."""
        self.reloader.offer(config)
        self._wake_up()

    def _wake_up(self) -> None:
        """Let the main thread look at once what there is to do; any thread may call it, and a signal's handler."""
        self._wake.put(None)

    def own_samples(self) -> Iterator[PlainSample]:
        """Yield what the daemon knows about itself now; any thread may ask."""
        at, reloader, web = self._clock.now(), self.reloader, self._web.config
        yield PlainSample("build_info", (__version__, platform.python_version()), 1, at)
        yield PlainSample("config_last_reload_successful", (), float(reloader.is_good and web.is_good), at)
        reloaded_at = wall_time(self._clock, reloader.succeeded_at)
        yield PlainSample("config_last_reload_success_timestamp_seconds", (), reloaded_at, at)
        yield PlainSample("config_reload_failures_total", (), reloader.failures + web.failures, at)
        hanging = self.threads.discovery.hanging_count
        if hanging is not None:
            yield PlainSample("discovery_hanging_processes", (), hanging, at)
        for thread, timestamp in self.liveness.timestamps().items():
            yield PlainSample("heartbeat_timestamp_seconds", (thread,), timestamp, at)
        for server, count in self.fleet.collect_errors().items():
            yield PlainSample("collect_errors_total", (server,), count, at)
        for part, count in self.errors.counts().items():
            yield PlainSample("internal_errors_total", (part,), count, at)
        for each in (self.checkpointer, self.threads.gpus, self.kernel_log, self.otlp, self.pods):
            yield from each.samples(at)

    def _notify(self) -> None:
        if not self._is_announced and self.fleet.is_ready:
            self._is_announced = True
            self._notifier.ready()
        if self._notifier.is_heard:
            count = len(self.fleet.servers)
            self._notifier.status(status_line(self.fleet.engine_states(limit=MAX_NAMED), count))
        if not self.liveness.stale():
            self._notifier.alive()

    def _note_unsent(self, error: OSError) -> None:
        log.warning("notify.failed", error=str(error))
        self.errors.count("notify")

    def _pause(self) -> float:
        longest = TICK_SECONDS if self._is_announced else FIRST_TICK_SECONDS
        return min(longest, self._notifier.interval or longest)


def run_service(
    config: Config,
    clock: Clock,
    load: Load | None = None,
    follower: ServerWatcher | None = None,
    listening: Callable[[int], None] | None = None,
) -> None:
    """
    Run the daemon until a signal ends it.

    Args:
        config: What to watch first.
        clock: The time.
        load: Reads the configuration again at SIGHUP.
        follower: Finds servers, at SIGHUP at once.
        listening: Is called with the port once the daemon listens.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    _raise_file_limit()
    supervisor = Supervisor(config, clock, load=load, follower=follower)
    has_source = load is not None or follower is not None
    with handle_signals(supervisor.request_stop, supervisor.request_reload if has_source else None):
        supervisor.start()
        try:
            if listening is not None:
                listening(supervisor.port)
            supervisor.run()
        finally:
            supervisor.stop()


@contextmanager
def handle_signals(request_stop: Callable[[], None], request_reload: Callable[[], None] | None) -> Iterator[None]:
    """
    Make SIGTERM and SIGINT request a stop, a later one of them end the process at once, and SIGHUP a reload.

    Where there is nothing to reload, SIGHUP is what a closed terminal sends, and requests a stop too, unless it is
    ignored (``nohup``). The functions may interrupt anything.
    """

    def stop(_number: int, _frame: FrameType | None) -> None:
        request_stop()
        time.sleep(TOGETHER_SECONDS)  # What comes meanwhile runs this once more, inside this call.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)

    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
        signal.SIGTERM: stop,
        signal.SIGINT: stop,
    }
    if request_reload is not None:
        handlers[signal.SIGHUP] = lambda *_: request_reload()
    elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = stop
    old = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGHUP])  # It may have come already, and waited.
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _raise_file_limit() -> None:
    """Have as many files open as the system allows: each log, client and request needs one."""
    with suppress(OSError, ValueError):  # The unit allows no change, and macOS less than it says.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
