# SPDX-License-Identifier: Apache-2.0
"""
Which pods are watched, as which servers. Pure: a list of pods, what was known of them and a time in; servers out.

A pod is watched from when it is first ready: vLLM loads its model for minutes, and until then what does not answer is
not down. From then on it is watched until it is gone, also while it is not ready, restarts in place or ends: that is
when somebody must hear of it. One that has gone from the list is watched no more, for Kubernetes has replaced it or was
told to remove it.
"""

from __future__ import annotations

import ipaddress

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from vllm_watch.daemon.catalog.codes import POD_STATES, PodState
from vllm_watch.daemon.catalog.reasons import KubernetesReason
from vllm_watch.daemon.config.model import Config, KubernetesConfig
from vllm_watch.daemon.config.server_config import ServerConfig, with_default_links
from vllm_watch.daemon.config.texts import as_name


MAX_PODS = 256
"""The most pods that are watched, those first that were watched before, then by name."""

WAS_READY_AFTER = 10.0
"""Seconds after its start from which on a change of a pod's readiness says that it was ready before."""

_LAST_PORT = 65535
_FINISHED = frozenset({"Succeeded", "Failed"})


class PodPort(NamedTuple):
    """A port that a container declares; not all have a name."""

    name: str
    number: int


class PodContainer(NamedTuple):
    """A container's ports, and how often it was started again."""

    ports: tuple[PodPort, ...] = ()
    restarts: int = 0


class Pod(NamedTuple):
    """
    What is read of a pod; times are in seconds since the epoch.

    Args:
        uid: Tells it from another one of the same name.
        name, labels: As its owner gave them.
        phase: Pending, Running, Succeeded, Failed or Unknown.
        ip: Its address, empty before it has one.
        containers: The pod's containers, then those that run beside them.
        is_ready: Whether its condition Ready holds.
        started_at: When the node accepted it.
        readiness_changed_at: When its condition Ready changed last.
        ends_at: When it must be gone, if it was told to end.
    """

    uid: str
    name: str
    labels: Mapping[str, str] = MappingProxyType({})
    phase: str = "Running"
    ip: str = ""
    containers: tuple[PodContainer, ...] = ()
    is_ready: bool = False
    started_at: float | None = None
    readiness_changed_at: float | None = None
    ends_at: float | None = None


class JudgedPod(NamedTuple):
    """A pod and what becomes of it; it has a server if it is watched."""

    pod: Pod
    state: PodState
    server: ServerConfig | None = None


class PodPlan(NamedTuple):
    """What becomes of each pod, in order of name, and the UIDs of those that have been ready."""

    pods: tuple[JudgedPod, ...] = ()
    served: frozenset[str] = frozenset()

    @property
    def servers(self) -> tuple[ServerConfig, ...]:
        """The servers to watch."""
        return tuple(each.server for each in self.pods if each.server is not None)

    @property
    def counts(self) -> dict[PodState, int]:
        """How many pods there are of each state, of which none is included."""
        counted = Counter(each.state for each in self.pods)
        return {state: counted[state] for state in POD_STATES}


class PodsError(Exception):
    """
    The pods cannot be listed, for a reason of a closed list.

    `said` is what Kubernetes or the library says about it, for the daemon's log and `check`; empty if nothing.
    """

    def __init__(self, reason: KubernetesReason, said: str = "") -> None:
        super().__init__(reason)
        self.reason: KubernetesReason = reason
        self.said = said


def plan_pods(pods: Iterable[Pod], before: PodPlan, config: KubernetesConfig, now: float) -> PodPlan:
    """Return what becomes of all pods that the selector matches, after the last plan; `now` is by the wall clock."""
    # An API server has each name once; if one does not, a server would be there twice.
    listed = sorted({as_name(pod.name): pod for pod in pods}.values(), key=lambda pod: pod.name)
    served = frozenset(pod.uid for pod in listed if pod.uid in before.served or _has_been_ready(pod, config.port))
    watched = {each.pod.uid for each in before.pods if each.server is not None}
    judged = {pod.name: _judged(pod, served, config, now) for pod in listed}
    wanted = [pod for pod in listed if judged[pod.name].server is not None]
    for pod in sorted(wanted, key=lambda pod: pod.uid not in watched)[MAX_PODS:]:
        judged[pod.name] = JudgedPod(pod, "over_limit")
    return PodPlan(tuple(judged.values()), served)


def _judged(pod: Pod, served: frozenset[str], config: KubernetesConfig, now: float) -> JudgedPod:
    port = _port(pod, config.port)
    if pod.phase in _FINISHED or (pod.ends_at is not None and now > pod.ends_at):
        return JudgedPod(pod, "ended")
    if not _is_address(pod.ip):
        return JudgedPod(pod, "pending")
    if port is None or not 0 < port <= _LAST_PORT:
        return JudgedPod(pod, "no_port")
    if pod.uid not in served:
        return JudgedPod(pod, "starting")
    return JudgedPod(pod, "watched", _server(pod, port, config))


def _has_been_ready(pod: Pod, port: int | str) -> bool:
    """Whether a pod is ready or was, as far as its status tells: it may have been before this daemon was started."""
    if pod.is_ready or any(each.restarts for each in _serving(pod, port)):
        return True
    if pod.started_at is None or pod.readiness_changed_at is None:
        return False
    return pod.readiness_changed_at - pod.started_at > WAS_READY_AFTER


def _serving(pod: Pod, port: int | str) -> tuple[PodContainer, ...]:
    """Return the container that declares the port, or the first one: a port need not be declared."""
    declaring = [each for each in pod.containers if any(port in each_port for each_port in each.ports)]
    return tuple(declaring[:1] or pod.containers[:1])


def _is_address(text: str) -> bool:
    """Whether a text is an IP address: nothing else may become part of a URL."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return "%" not in text  # A zone is of the node's own network.


def _port(pod: Pod, port: int | str) -> int | None:
    if isinstance(port, int):
        return port
    return next((each.number for container in pod.containers for each in container.ports if each.name == port), None)


def _server(pod: Pod, port: int, config: KubernetesConfig) -> ServerConfig:
    host = f"[{pod.ip}]" if ":" in pod.ip else pod.ip
    url = f"{config.scheme}://{host}:{port}{config.path}"
    own = {label: pod.labels[name] for label, name in config.pod_labels.items() if name in pod.labels}
    return ServerConfig(
        name=as_name(pod.name),
        metrics=msgspec.structs.replace(config.metrics, url=url),
        probe=config.probe,
        slo=config.slo,
        capacity=config.capacity,
        cost_per_hour=config.cost_per_hour,
        labels=MappingProxyType({**config.labels, **own}),
        stall_after=config.stall_after,
    )


def with_pods(config: Config, pods: Sequence[ServerConfig]) -> Config:
    """
    Return a configuration with the pods as servers beside its own.

    A pod whose name or address a configured server has is left out: it would be watched twice.
    """
    names = {server.name for server in config.servers}
    urls = {server.metrics.url for server in config.servers if server.metrics is not None}
    new = [
        with_default_links(pod, config.links)
        for pod in pods
        if pod.name not in names and pod.metrics is not None and pod.metrics.url not in urls
    ]
    return msgspec.structs.replace(config, servers=(*config.servers, *new)) if new else config
