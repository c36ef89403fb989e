# SPDX-License-Identifier: Apache-2.0
"""Pods as the Kubernetes API lists them, and every way in which it does not."""

from __future__ import annotations

import contextlib
import ssl
import subprocess

from pathlib import Path

import pytest
import requests

from tests.support.kubernetes_api import BUSY, FORBIDDEN, TOKEN, UNWELL, KubernetesApi, pod, status
from tests.support.waiting import SECONDS

from vllm_watch.daemon.config.model import KubernetesConfig
from vllm_watch.daemon.discovery import pod_list
from vllm_watch.daemon.discovery.pods import Pod, PodContainer, PodPort, PodsError


@pytest.fixture
def api():
    """A stand-in with two pods of ours and one of others."""
    pods = [pod("a"), pod("b", "10.0.0.2", labels={"tier": "test"}), pod("db", labels={"app": "database"})]
    with KubernetesApi(pods) as api:
        yield api


@pytest.fixture
def listed(api, tmp_path):
    """Return the pods that a selector finds in the stand-in."""

    def ask(selector="app=vllm", **more):
        lister = pod_list.PodLister(
            KubernetesConfig(selector=selector, kubeconfig=str(api.kubeconfig(tmp_path, more.get("token"))))
        )
        try:
            return lister.pods()
        finally:
            lister.close()

    return ask


def reason_of(ask, **how):
    """Return why pods are not listed."""
    with pytest.raises(PodsError) as caught:
        ask(**how)
    return caught.value.reason


def test_what_is_read_of_a_pod(api, listed):
    """Name, labels, address, ports, readiness, restarts and times are those of the API's document."""
    api.pods = [pod("a", restarts=3, ends="2026-11-22T10:10:00Z")]

    (found,) = listed()

    assert found == Pod(
        uid="uid-of-a",
        name="a",
        labels={"app": "vllm", "pod-template-hash": "6d4cf56db6"},
        phase="Running",
        ip="10.0.0.1",
        containers=(PodContainer((PodPort("http", 8000),), 3),),
        is_ready=True,
        started_at=1795341600.0,
        readiness_changed_at=1795341780.0,
        ends_at=1795342200.0,
    )


def test_labels_are_short_texts(api, listed):
    """A label that is no text, or longer than Kubernetes allows, becomes no more than a label of a series may be."""
    api.pods = [pod("a", labels={"number": 5, "long": "x" * 100_000})]

    (found,) = listed()

    assert ("5", "x" * 63) == (found.labels["number"], found.labels["long"])


def test_a_pod_that_has_only_been_created_has_no_status(api, listed):
    """A pod without address, conditions and containers' status is a pod."""
    api.pods = [pod("a")]
    api.pods[0]["status"] = {"phase": "Pending"}

    (found,) = listed()

    assert ("Pending", "", False, None) == (found.phase, found.ip, found.is_ready, found.started_at)


@pytest.mark.parametrize(
    ("selector", "names"),
    [("app=vllm", "ab"), ("app=vllm,tier!=test", "a"), ("app in (vllm),tier", "b"), ("app=vllm,!tier", "a"), ("x", "")],
)
def test_kubernetes_is_given_the_selector_as_it_is_written(api, listed, selector, names):
    """Whatever kind of selector, the API matches it; the namespace is that of the kubeconfig's context."""
    assert list(names) == [each.name for each in listed(selector)]
    assert api.requests[0].startswith("/api/v1/namespaces/vllm/pods?")


def test_a_long_list_comes_in_pages(api, listed, monkeypatch):
    """Two hundred and fifty pods are three pages, and a list beyond the limit is refused."""
    api.pods = [pod(f"p{number:03}") for number in range(250)]

    assert [f"p{number:03}" for number in range(250)] == [each.name for each in listed()]
    assert len(api.requests) == 3
    monkeypatch.setattr(pod_list, "MAX_LISTED", 249)
    assert reason_of(listed) == "too_many"


def test_a_list_that_becomes_too_old_between_two_pages(api, listed):
    """410 Gone on a later page is a failure of this list, and the next one is whole."""
    api.pods = [pod(f"p{number:03}") for number in range(250)]
    api.expires_at = 100
    assert reason_of(listed) == "expired"
    api.expires_at = None

    assert len(listed()) == 250


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (FORBIDDEN, "forbidden"),
        (status(400, "BadRequest", "unable to parse requirement"), "bad_request"),
        (status(404, "NotFound", "the server could not find the requested resource"), "not_found"),
        (UNWELL, "api_error"),
        (BUSY, "api_error"),
        (b"<html>", "no_kubernetes"),
        (b"[]", "no_kubernetes"),
        (b'{"items": [{"metadata": {}}], "metadata": {}}', "no_kubernetes"),
    ],
)
def test_each_refusal_has_its_reason(api, listed, fault, reason):
    """What Kubernetes refuses, and what is no Kubernetes, is one of a closed list of reasons."""
    api.fault = fault

    assert reason == reason_of(listed)


def test_a_wrong_token(listed):
    """401 is said as what it is, and no message has the token."""
    with pytest.raises(PodsError, match="unauthorized") as caught:
        listed(token="another")

    assert "another" not in f"{caught.value!r} {caught.value.said}"


def test_an_api_that_hangs(api, listed, monkeypatch):
    """A request without an answer ends by itself."""
    monkeypatch.setattr(pod_list, "TIMEOUT", 0.05)
    api.fault = "hang"

    assert reason_of(listed) == "timeout"


def test_nothing_listens(tmp_path):
    """An API server that is not there is refused, whatever library says so."""
    with contextlib.ExitStack() as ended:
        gone = ended.enter_context(KubernetesApi())
        kubeconfig = str(gone.kubeconfig(tmp_path))

    lister = pod_list.PodLister(KubernetesConfig(selector="app=vllm", kubeconfig=kubeconfig))

    assert reason_of(lister.pods) == "refused"


@pytest.mark.parametrize("text", [None, "", "[", "clusters: []", "clusters: [{}]\nusers: []\ncontexts: []", "\0"])
def test_a_kubeconfig_that_cannot_be_used(tmp_path, text):
    """A kubeconfig that is missing or is none is one reason."""
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)

    assert "no_credentials" == reason_of(
        lambda: pod_list.PodLister(KubernetesConfig(selector="app=vllm", kubeconfig=str(path)))
    )


@pytest.fixture
def account(tmp_path, monkeypatch):
    """A service account as a pod has it, with an authority, and what the API server presents."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    extensions = ("-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=digitalSignature,keyCertSign")
    certificate, key = str(tmp_path / "ca.crt"), str(tmp_path / "key")
    files = ("-out", certificate, "-keyout", key)
    subprocess.run([*command.split(), *extensions, *files], check=True, capture_output=True, timeout=SECONDS)
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "namespace").write_text("vllm")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with KubernetesApi([pod("a")], tls=context) as api:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", api.origin.rpartition(":")[2])
        yield api, tmp_path


@pytest.mark.needs_tool("openssl")
def test_in_a_cluster_the_token_of_the_pod_is_used(account):
    """Address, authority, token and namespace are those that Kubernetes gives a pod; a renewed token is read anew."""
    api, folder = account
    lister = pod_list.PodLister(KubernetesConfig(selector="app=vllm"), str(folder))

    assert ("vllm", ["a"]) == (lister.namespace, [each.name for each in lister.pods()])
    api.token = "a-renewed-token"
    assert reason_of(lister.pods) == "unauthorized"
    (folder / "token").write_text("a-renewed-token")
    assert ["a"] == [each.name for each in lister.pods()]
    lister.close()


@pytest.mark.needs_tool("openssl")
def test_in_a_cluster_nothing_is_taken_on_trust(account):
    """An API server that another authority vouches for is not asked, and without token or authority nobody is."""
    _, folder = account
    config = KubernetesConfig(selector="app=vllm")
    (folder / "ca.crt").write_text(Path(requests.certs.where()).read_text(encoding="utf-8"))
    lister = pod_list.PodLister(config, str(folder))

    assert reason_of(lister.pods) == "tls_error"
    lister.close()
    for name in ("ca.crt", "token"):
        (folder / name).unlink()
        assert reason_of(lambda: pod_list.PodLister(config, str(folder))) == "no_credentials"
