# SPDX-License-Identifier: Apache-2.0
"""`check` says which pods there are, and explains why there are none: rights, the selector, the extra."""

from __future__ import annotations

import pytest

from tests.support.kubernetes_api import FORBIDDEN, KubernetesApi, pod

from vllm_watch.cli.commands.check import check, view_of
from vllm_watch.cli.commands.watched import Selection, configured_now
from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.service import pods_thread
from vllm_watch.daemon.support.errors import DiscoveryError


@pytest.fixture
def api():
    """A stand-in for Kubernetes with one pod that cannot be reached, and one that starts."""
    with KubernetesApi([pod("a", "127.0.0.1", port=1), pod("b", ready=False)]) as api:
        yield api


@pytest.fixture
def report(api, tmp_path):
    """Return what `check` writes, and which lines are wrong."""

    def ask(selector="app=vllm"):
        path = tmp_path / "vllm-watch.yml"
        path.write_text(f"kubernetes: {{selector: '{selector}', kubeconfig: {api.kubeconfig(tmp_path)}, port: http}}")
        lines = list(check(load_config(str(path))))
        assert view_of(load_config(str(path)))["ok"] is not any(line.is_wrong for line in lines)
        return "\n".join(line.text for line in lines), "\n".join(line.text for line in lines if line.is_wrong)

    return ask


def test_the_pods_are_listed_and_checked(report):
    """What is watched is checked as any server; what is not has its reason, which is nothing wrong while it starts."""
    text, wrong = report()

    assert "kubernetes (vllm, app=vllm): ok. pods: 1 watched, 1 starting" in text
    assert "  b: starting. It has not been ready yet" in text
    assert "a:\n  /metrics http://127.0.0.1:1/metrics: FAILED" in text
    assert "b: starting" not in wrong


def test_missing_rights_are_explained(api, report):
    """A denial names the missing right, where to find the Role, and what Kubernetes says."""
    api.fault = FORBIDDEN

    text, wrong = report()

    assert "The service account needs a Role in that namespace with the verb list on pods" in wrong
    assert 'Kubernetes: pods is forbidden: User "system:serviceaccount:vllm:vllm-watch" cannot list' in text


def test_a_selector_that_matches_nothing_is_wrong(report):
    """A selector without pods is a mistake of somebody."""
    _, wrong = report("app=llm")
    assert "No pod has these labels: check the selector and the namespace." in wrong


def test_a_port_that_no_container_has_is_wrong(api, report):
    """A pod without the named port is not watched, and that is a mistake of somebody."""
    del api.pods[1]["spec"]["containers"][0]["ports"]

    _, wrong = report()

    assert "b: no_port. No container of it has a port of the configured name." in wrong


def test_a_missing_extra_is_explained(report, monkeypatch):
    """Without lightkube `check` says what to install."""
    monkeypatch.setattr(pods_thread, "find_spec", lambda _: None)

    _, wrong = report()

    assert (
        "FAILED. The library that asks Kubernetes is not installed: in the sources, pip install '.[kubernetes]'."
        in wrong
    )


def test_what_runs_only_a_while_takes_the_pods_that_there_are(api, tmp_path):
    """`top` and `record` read the pods of one list, and say why there is none."""
    path = tmp_path / "vllm-watch.yml"
    path.write_text(f"kubernetes: {{selector: app=vllm, kubeconfig: {api.kubeconfig(tmp_path)}}}")
    selection = Selection(str(path), (), ())

    assert ["a"] == [server.name for server in configured_now(selection).servers]
    api.fault = FORBIDDEN
    with pytest.raises(DiscoveryError, match="the pods cannot be listed: Kubernetes denies"):
        configured_now(selection)
    api.fault, api.pods = None, [pod("b", ready=False)]
    with pytest.raises(DiscoveryError, match="no pod with app=vllm is ready"):
        configured_now(selection)
