# SPDX-License-Identifier: Apache-2.0
"""What ``vllm-watch check`` says of the pods that the configuration selects: what becomes of each, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vllm_watch.daemon.catalog.codes import POD_STATES
from vllm_watch.daemon.catalog.reasons import KUBERNETES, KubernetesReason
from vllm_watch.daemon.config.model import Config, KubernetesConfig
from vllm_watch.daemon.discovery.pods import PodPlan, PodsError, plan_pods, with_pods
from vllm_watch.daemon.service.pods_thread import open_lister
from vllm_watch.daemon.support.clock import SystemClock
from vllm_watch.daemon.support.errors import DiscoveryError
from vllm_watch.daemon.support.printable import ReportLine, printable


MAX_SHOWN = 8
"""How many pods that are not watched are shown."""

MAX_SAID = 300


class ListedPods(NamedTuple):
    """
    The pods of one list.

    Args:
        config: Which were to be listed.
        reason: ``ok``, or why there is no list.
        said: What Kubernetes said about that.
        namespace: Where they are; empty if that is not known.
        plan: What becomes of them.
    """

    config: KubernetesConfig
    reason: KubernetesReason
    said: str = ""
    namespace: str = ""
    plan: PodPlan = PodPlan()


def list_pods(config: Config) -> ListedPods | None:
    """Return the pods that a configuration selects, `None` if it selects none."""
    wanted = config.kubernetes
    if wanted is None:
        return None
    namespace = wanted.namespace or ""
    try:
        lister = open_lister(wanted)
        try:
            namespace = lister.namespace
            clock = SystemClock()
            plan = plan_pods(lister.pods(), PodPlan(), wanted, clock.wall(clock.now()))
            return ListedPods(wanted, "ok", "", namespace, plan)
        finally:
            lister.close()
    except PodsError as error:
        return ListedPods(wanted, error.reason, printable(error.said[:MAX_SAID]), namespace)


def with_pods_now(config: Config) -> Config:
    """
    Return a configuration with the pods that there are now, for what runs only a while.

    Raises:
        DiscoveryError: They cannot be listed, or there is none and no other server.
    """
    listed = list_pods(config)
    if listed is None:
        return config
    if listed.reason != "ok":
        raise DiscoveryError(f"the pods cannot be listed: {KUBERNETES[listed.reason].text}")
    config = with_pods(config, listed.plan.servers)
    if not config.servers:
        raise DiscoveryError(f"no pod with {listed.config.selector} is ready: run vllm-watch check --config FILE")
    return config


def pod_lines(listed: ListedPods) -> Iterator[ReportLine]:
    """Yield the report; a list that there is not, and one without a pod to watch, are wrong."""
    where = f"kubernetes ({listed.namespace or 'namespace unknown'}, {listed.config.selector})"
    if listed.reason != "ok":
        yield ReportLine(f"{where}: FAILED. {KUBERNETES[listed.reason].text}", is_wrong=True)
        if listed.said:
            yield ReportLine(f"  Kubernetes: {listed.said}")
        return
    counts = [f"{count} {state}" for state, count in listed.plan.counts.items() if count]
    yield ReportLine(f"{where}: ok. pods: {', '.join(counts) or 'none'}")
    if not listed.plan.pods:
        yield ReportLine("  No pod has these labels: check the selector and the namespace.", is_wrong=True)
    unwatched = [each for each in listed.plan.pods if each.server is None]
    for each in unwatched[:MAX_SHOWN]:
        yield ReportLine(f"  {each.pod.name}: {each.state}. {POD_STATES[each.state]}", each.state == "no_port")
    if len(unwatched) > MAX_SHOWN:
        yield ReportLine(f"  … and {len(unwatched) - MAX_SHOWN} more that are not watched")
