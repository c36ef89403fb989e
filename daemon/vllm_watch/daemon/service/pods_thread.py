# SPDX-License-Identifier: Apache-2.0
"""
The thread that lists the pods to watch, where the configuration has `kubernetes`.

What Kubernetes answers changes what is watched; that it does not answer changes nothing: the pods of the last list stay
watched, and a series says why there is no newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import structlog

from vllm_watch.daemon.catalog.reasons import KUBERNETES, KubernetesReason
from vllm_watch.daemon.config.model import KubernetesConfig
from vllm_watch.daemon.config.server_config import ServerConfig
from vllm_watch.daemon.discovery.pods import PodPlan, PodsError, plan_pods
from vllm_watch.daemon.exposition.samples import PlainSample
from vllm_watch.daemon.service.service_thread import ServiceThread
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.own_health import InternalErrors
from vllm_watch.daemon.support.printable import printable


if TYPE_CHECKING:
    from vllm_watch.daemon.discovery.pod_list import PodLister

log = structlog.get_logger("vllm_watch.service")

IDLE_SECONDS = 5.0
"""The longest that it waits between two heartbeats."""

MAX_SAID = 300
"""Characters of what Kubernetes says about an error."""


def open_lister(config: KubernetesConfig) -> PodLister:
    """
    Return what lists pods.

    Raises:
        PodsError: The extra is not installed, or there are no credentials.
    """
    if find_spec("lightkube") is None:
        raise PodsError("extra_missing")
    from vllm_watch.daemon.discovery.pod_list import PodLister  # noqa: PLC0415 - 25 ms that only this needs.

    return PodLister(config)


class PodsThread(ServiceThread):
    """
    Lists the pods again and again; without `kubernetes` in the configuration it is not started.

    Nobody waits for its end: Kubernetes must not delay that of the daemon.

    Args:
        changed: Called when other servers are to be watched than before.
    """

    is_awaited = False

    def __init__(self, clock: Clock, errors: InternalErrors, *, changed: Callable[[], None]) -> None:
        super().__init__("kubernetes", clock, errors)
        self._changed = changed
        self.watched: tuple[ServerConfig, ...] = ()
        """The pods that the main thread has the daemon watch."""
        self._config: KubernetesConfig | None = None
        self._asked: KubernetesConfig | None = None
        """The configuration by which was listed last, or tried to."""
        self._due = 0.0
        self._lister: PodLister | None = None
        self._plan = PodPlan()
        self._listed_at: float | None = None
        self._reason: KubernetesReason = "starting"

    def follow(self, config: KubernetesConfig | None) -> None:
        """List these pods from now on, or none; the pods of the last list stay until there is a new one."""
        if config == self._config:
            return
        self._config = config
        self.turn_now()
        if config is not None:
            self.start()

    def are_watched(self) -> bool:
        """Whether the pods were listed once, or that failed, and those of the list are watched."""
        config = self._config
        return config is None or (self._asked == config and self.watched == self.servers())

    def servers(self) -> tuple[ServerConfig, ...]:
        """Return the pods of the last good list that are watched; none without `kubernetes`."""
        return () if self._config is None else self._plan.servers

    def samples(self, at: float) -> Iterator[PlainSample]:
        """Yield how listing goes, nothing without `kubernetes`; any thread may call it."""
        if self._config is None:
            return
        reason, plan, listed_at = self._reason, self._plan, self._listed_at
        yield PlainSample("kubernetes_up", (), float(reason == "ok"), at)
        yield PlainSample("kubernetes_info", (reason,), 1, at)
        if listed_at is not None:
            yield PlainSample("kubernetes_last_list_timestamp_seconds", (), listed_at, at)
        for state, count in plan.counts.items() if reason == "ok" else ():
            yield PlainSample("kubernetes_pods", (state,), count, at)
        for server in plan.servers:
            yield PlainSample("kubernetes_server_info", (server.name,), 1, at)

    def _turn(self) -> float:
        is_asked, config = self._take_asked(), self._config
        if config is None:
            self._forget()
            return IDLE_SECONDS
        if is_asked or self._clock.now() >= self._due:
            self._poll(config)
            self._due = self._clock.now() + config.every
        return min(IDLE_SECONDS, self._due - self._clock.now())

    def _forget(self) -> None:
        """Let go of everything: nothing is listed any more."""
        self._close()
        self._asked, self._plan, self._listed_at, self._reason = None, PodPlan(), None, "starting"

    def _poll(self, config: KubernetesConfig) -> None:
        """List once; whatever happens, it is tried again."""
        before = self._plan.servers
        if config != self._asked:
            self._close()  # Another cluster, or another namespace.
        try:
            if self._lister is None:
                self._lister = open_lister(config)
            pods = self._lister.pods()
            now = self._clock.wall(self._clock.now())
            self._plan, self._listed_at = plan_pods(pods, self._plan, config, now), now
            self._note("ok")
        except PodsError as error:
            self._close()  # The next one reads the token and the authority anew.
            self._note(error.reason, error.said)
        except Exception:
            self._close()
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

    def _close(self) -> None:
        if self._lister is not None:
            self._lister.close()
            self._lister = None
