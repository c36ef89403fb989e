# SPDX-License-Identifier: Apache-2.0
"""
The thread that lists the pods to watch, where the configuration has `kubernetes`.

What Kubernetes answers changes what is watched; that it does not answer changes nothing: the pods of the last list stay
watched, and a series says why there is no newer one.
"""

from __future__ import annotations

import threading

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

import structlog

from vllm_watch.daemon.catalog.reasons import KUBERNETES, KubernetesReason
from vllm_watch.daemon.config.model import KubernetesConfig
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.discovery.pods import Pod, PodPlan, PodsStatus, plan_pods
from vllm_watch.daemon.discovery.pods_error import PodsError
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch.daemon.support.printable import printable


log = structlog.get_logger("vllm_watch.service")

IDLE_SECONDS = 5.0
"""The longest that it waits between two heartbeats."""

MAX_SAID = 300
"""Characters of what Kubernetes says about an error."""


class Lister(Protocol):
    """What lists pods, as `vllm_watch.daemon.discovery.pod_list.PodLister`."""

    namespace: str

    def pods(self, *, selected: bool = True) -> tuple[Pod, ...]:
        """Return the pods; `PodsError` if they cannot be listed."""

    def close(self) -> None:
        """Close the connection."""


def open_lister(config: KubernetesConfig) -> Lister:
    """
    Return what lists pods.

    Raises:
        PodsError: The extra is not installed, or there are no credentials.
    """
    if find_spec("lightkube") is None:
        raise PodsError("extra_missing")
    module = import_module("vllm_watch.daemon.discovery.pod_list")  # It imports lightkube: 25 ms that only this needs.
    return cast("Lister", module.PodLister(config))


class PodsThread(ServiceThread):
    """
    Lists the pods again and again; without `kubernetes` in the configuration it is not started.

    Args:
        clock: The time.
        errors: Counts failures of the daemon itself.
        changed: Called when other servers are to be watched than before.
        open_lister: Returns what lists pods.
    """

    def __init__(
        self,
        clock: Clock,
        errors: InternalErrors,
        *,
        changed: Callable[[], None],
        open_lister: Callable[[KubernetesConfig], Lister] = open_lister,
    ) -> None:
        super().__init__(threading.Thread(target=self._run, name="kubernetes", daemon=True), clock)
        self._errors = errors
        self._changed = changed
        self._open = open_lister
        self.watched: tuple[ServerConfig, ...] = ()
        """The pods that the main thread has the daemon watch."""
        self._config: KubernetesConfig | None = None
        self._asked: KubernetesConfig | None = None
        """The configuration by which was listed last, or tried to."""
        self._lister: Lister | None = None
        self._plan = PodPlan()
        self._listed_at: float | None = None
        self._reason: KubernetesReason = "starting"

    def follow(self, config: KubernetesConfig | None) -> None:
        """List these pods from now on, or none; the pods of the last list stay until there is a new one."""
        if config == self._config:
            return
        self._config = config
        self._wake.set()
        if config is not None:
            self.start()

    def list_now(self) -> None:
        """List at once."""
        self._wake.set()

    def are_watched(self) -> bool:
        """Whether the pods were listed once, or that failed, and those of the list are watched."""
        config = self._config
        return config is None or (self._asked == config and self.watched == self.servers())

    def servers(self) -> tuple[ServerConfig, ...]:
        """Return the pods of the last good list that are watched; none without `kubernetes`."""
        return () if self._config is None else self._plan.servers

    def status(self) -> PodsStatus | None:
        """Return how listing goes, `None` without `kubernetes`; any thread may call it."""
        if self._config is None:
            return None
        reason, plan = self._reason, self._plan
        counts = plan.counts if reason == "ok" else {}
        return PodsStatus(reason, self._listed_at, counts, tuple(each.name for each in plan.servers))

    def join(self) -> None:
        """Return at once: Kubernetes must not delay the daemon's end."""

    def _run(self) -> None:
        due, is_woken = 0.0, True
        while not self._stop.is_set():
            self._wake.clear()
            self.heartbeat.beat()
            config = self._config
            if config is None:
                self._forget()
            elif is_woken or self._clock.now() >= due:
                self._poll(config)
                due = self._clock.now() + config.every
            self.heartbeat.beat()
            wait = IDLE_SECONDS if config is None else min(IDLE_SECONDS, max(due - self._clock.now(), 0.0))
            is_woken = not self._stop.is_set() and self._clock.wait(self._wake, wait)
        self._drop_lister()  # Here, not in `join`: it may still be listing then.

    def _forget(self) -> None:
        """Let go of everything: nothing is listed any more."""
        self._drop_lister()
        self._asked, self._plan, self._listed_at, self._reason = None, PodPlan(), None, "starting"

    def _poll(self, config: KubernetesConfig) -> None:
        """List once; whatever happens, it is tried again."""
        before = self._plan.servers
        if config != self._asked:
            self._drop_lister()  # Another cluster, or another namespace.
        try:
            if self._lister is None:
                self._lister = self._open(config)
            pods = self._lister.pods()
            now = self._clock.wall(self._clock.now())
            self._plan, self._listed_at = plan_pods(pods, self._plan, config, now), now
            self._note("ok")
        except PodsError as error:
            self._drop_lister()  # The next one reads the token and the authority anew.
            self._note(error.reason, error.said)
        except Exception:
            self._drop_lister()
            log.exception("kubernetes.failed")
            self._errors.count("kubernetes")
            self._note("internal_error")
        self._asked = config
        if self._plan.servers != before:
            self._changed()

    def _note(self, reason: KubernetesReason, said: str = "") -> None:
        """Keep how listing goes, and log when that changes."""
        if reason != self._reason:
            write = log.info if reason == "ok" else log.warning
            more = {"said": printable(said[:MAX_SAID])} if said else {}
            write("kubernetes.changed", reason=reason, meaning=KUBERNETES[reason].text, **more)
        self._reason = reason

    def _drop_lister(self) -> None:
        if self._lister is not None:
            self._lister.close()
            self._lister = None
