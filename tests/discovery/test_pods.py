# SPDX-License-Identifier: Apache-2.0
"""Which pods are watched, as which servers: by their status and time alone."""

from __future__ import annotations

import pytest

from hypothesis import given
from hypothesis import strategies as st

from vllm_watch.daemon.catalog.codes import POD_STATES
from vllm_watch.daemon.config.model import Config, KubernetesConfig
from vllm_watch.daemon.config.server_config import LinksConfig, MetricsConfig, ServerConfig
from vllm_watch.daemon.discovery.pods import (
    MAX_PODS,
    Pod,
    PodContainer,
    PodPlan,
    PodPort,
    plan_pods,
    with_pods,
)


CONFIG = KubernetesConfig(selector="app=vllm")
NOTHING = PodPlan()
NOW = 10_000.0
VLLM = PodContainer((PodPort("http", 8000),))


def pod(name="a", **more):
    """Return a pod that is ready."""
    return Pod(**{"uid": f"uid-of-{name}", "name": name, "ip": "10.0.0.1", "is_ready": True, **more})


def planned(*pods, before=NOTHING, config=CONFIG, now=NOW):
    """Return the plan for a list."""
    return plan_pods(pods, before, config, now)


def states(plan):
    """Return each pod's state by its name."""
    return {each.pod.name: each.state for each in plan.pods}


@pytest.mark.parametrize(
    ("found", "state"),
    [
        (pod(), "watched"),
        (pod(is_ready=False), "starting"),
        (pod(ip="", is_ready=False, phase="Pending"), "pending"),
        (pod(phase="Failed"), "ended"),
        (pod(phase="Succeeded", is_ready=False), "ended"),
        (pod(ends_at=NOW + 20), "watched"),
        (pod(ends_at=NOW - 1), "ended"),
        (pod(is_ready=False, containers=(VLLM._replace(restarts=1),)), "watched"),
        (pod(is_ready=False, started_at=100.0, readiness_changed_at=100.0), "starting"),
        (pod(is_ready=False, started_at=100.0, readiness_changed_at=400.0), "watched"),
    ],
)
def test_a_pod_is_watched_from_its_first_readiness_on(found, state):
    """A pod is watched once it was ready, as its status tells, until it has ended or should have."""
    assert {"a": state} == states(planned(found))


def test_a_pod_that_is_not_ready_any_more_stays():
    """What was ready once is watched while it hangs, restarts or ends, and again after a moment without an address."""
    first = planned(pod())
    hangs = planned(pod(is_ready=False), before=first)
    ends = planned(pod(is_ready=False, ends_at=NOW + 30), before=hangs)

    assert first.servers == hangs.servers == ends.servers != ()
    assert {"a": "pending"} == states(planned(pod(is_ready=False, ip=""), before=hangs))
    assert first.servers == planned(pod(is_ready=False), before=planned(pod(ip=""), before=hangs)).servers


def test_a_pod_that_has_gone_is_no_server_and_its_successor_starts_anew():
    """A pod of the same name and another UID has to be ready first, as any."""
    first = planned(pod())

    assert () == planned(before=first).servers
    assert {"a": "starting"} == states(planned(pod(uid="another", is_ready=False), before=first))


def test_a_pod_becomes_a_server():
    """Address, path, scheme, labels and all that is configured for every pod are the server's."""
    config = KubernetesConfig(
        selector="app=vllm",
        port="http",
        path="/inner/metrics",
        scheme="https",
        metrics=MetricsConfig(url="", interval=10.0, bearer_token_file="/token"),
        labels={"team": "search"},
        pod_labels={"role": "llm-d.ai/role", "zone": "not-there"},
        cost_per_hour=12.5,
        stall_after=60.0,
    )
    found = pod("vllm-0", ip="fd00::7", labels={"llm-d.ai/role": "decode"}, containers=(VLLM,))

    (server,) = planned(found, config=config).servers

    url = "https://[fd00::7]:8000/inner/metrics"
    assert MetricsConfig(url=url, interval=10.0, bearer_token_file="/token") == server.metrics
    assert ("vllm-0", {"team": "search", "role": "decode"}) == (server.name, dict(server.labels))
    assert (12.5, 60.0) == (server.cost_per_hour, server.stall_after)


def test_a_port_by_name_is_the_pods():
    """A pod without a port of the configured name is not watched, and is counted."""
    named = KubernetesConfig(selector="app=vllm", port="metrics")

    other = PodContainer((PodPort("metrics", 9000),))

    plan = planned(pod("a", containers=(VLLM,)), pod("b", containers=(other,)), config=named)

    assert {"a": "no_port", "b": "watched"} == states(plan)
    assert ["http://10.0.0.1:9000/metrics"] == [server.metrics.url for server in plan.servers]


def test_no_more_are_watched_than_a_limit_and_who_was_watched_stays():
    """Beyond the limit pods are counted; a new one with an earlier name displaces none."""
    full = planned(*(pod(f"p{number:04}") for number in range(MAX_PODS)))
    more = planned(pod("a"), *(each.pod for each in full.pods), before=full)

    assert full.servers == more.servers
    assert ("over_limit", MAX_PODS, 1) == (states(more)["a"], more.counts["watched"], more.counts["over_limit"])


PODS = st.lists(
    st.builds(
        pod,
        name=st.sampled_from([f"p{number}" for number in range(6)]),
        is_ready=st.booleans(),
        phase=st.sampled_from(["Pending", "Running", "Failed", ""]),
        ip=st.sampled_from(["", "10.0.0.1", "fd00::1"]),
        ends_at=st.none() | st.floats(0, 2 * NOW),
    ),
    unique_by=lambda found: found.uid,
    max_size=6,
)


@given(PODS, PODS)
def test_whatever_is_listed_each_pod_has_one_state_and_the_order_does_not_matter(earlier, later):
    """Names are unique, the counts add up to the list, and only what is watched is a server."""
    before = planned(*earlier)
    plan = planned(*later, before=before)

    assert plan == planned(*reversed(later), before=before)
    assert len(later) == len(plan.pods) == sum(plan.counts.values())
    assert set(POD_STATES) == set(plan.counts)
    assert [server.name for server in plan.servers] == [each.pod.name for each in plan.pods if each.state == "watched"]
    assert plan.served <= {found.uid for found in later}


def test_pods_stand_beside_the_configured_servers():
    """A pod that is configured already, by name or by address, is not watched twice; links are the daemon's."""
    configured = ServerConfig(name="own", metrics=MetricsConfig(url="http://10.0.0.2:8000/metrics"))
    config = Config(servers=(configured,), links=LinksConfig(logs="https://logs.example.com/?host={host}"))
    plan = planned(pod("own"), pod("b", ip="10.0.0.2"), pod("c", ip="10.0.0.3"))

    whole = with_pods(config, plan.servers)

    assert ["own", "c"] == [server.name for server in whole.servers]
    assert configured is whole.servers[0]
    assert whole.servers[1].links == config.links


@pytest.mark.parametrize(
    ("broken", "state"),
    [
        *[
            (pod("b", ip=ip), "pending")
            for ip in ("::g", "[", "]:", "10.0.0.1:80", "a b", "x@10.0.0.1", "fe80::1%eth0")
        ],
        *[(pod("b", containers=(PodContainer((PodPort("http", port),)),)), "no_port") for port in (-1, 0, 70_000)],
    ],
)
def test_what_is_no_address_becomes_no_server(broken, state):
    """An address or a port that is none costs no other pod its server, and never becomes part of a URL."""
    plan = planned(pod(), broken, config=KubernetesConfig(selector="app=vllm", port="http"))
    both = planned(pod(containers=(VLLM,)), broken, config=KubernetesConfig(selector="app=vllm", port="http"))

    assert {"a": "no_port", "b": state} == states(plan)
    assert ["a"] == [server.name for server in both.servers]


def test_names_and_uids_that_are_there_twice_are_no_two_servers():
    """Whatever a list repeats, each name is that of one server, and no pod hides another."""
    found = planned(pod("a"), pod("a", uid="another"), pod("b", uid="another"), pod("c d"), pod("c-d"))

    assert ["a", "b", "c-d"] == [server.name for server in found.servers]
    assert len(found.pods) == 3
