# SPDX-License-Identifier: Apache-2.0
"""The Helm chart, rendered by Helm's own engine: it has what the kustomize overlay has, and takes no misspelt value."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import subprocess
import tarfile

from pathlib import Path

import pytest
import yaml

from tests.deploy.test_kubernetes import (
    ANNOTATIONS_LIMIT,
    annotated,
    build,
    faults,
    needs_kustomize,
    of_kind,
    pod_of,
    watch_of,
)
from tests.support.yaml_files import load_all_yaml, load_yaml

import vllm_watch

from vllm_watch.daemon.config.config_file import load_config


pytestmark = [pytest.mark.slow, pytest.mark.needs_module("helm_python")]

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
CHART = FOLDER / "chart"
SECRET_LIMIT = 1024 * 1024
"""Bytes of a Secret, in one of which Helm keeps a release: the chart and what was rendered from it."""


@pytest.fixture(scope="module")
def helm():
    """Helm's engine as a library."""
    import helm_python  # noqa: PLC0415 - Not everybody has it.

    return helm_python


@pytest.fixture(scope="module")
def rendered(helm):
    """Return the objects that the chart makes with some values."""

    def render(*, chart=CHART, release="vllm-watch", **values):
        with helm.Chart.load(str(chart)) as loaded:
            texts = loaded.render(values, name=release, namespace="vllm")
        return [each for path, text in texts.items() if path.endswith(".yaml") for each in load_all_yaml(text) if each]

    return render


@pytest.fixture(scope="module")
def plain(rendered):
    """The objects without any value set."""
    return rendered()


def test_helm_finds_nothing_wrong(helm):
    """Helm's linter is silent, and the chart has the version of the package."""
    found = helm.lint(str(CHART))
    about = load_yaml((CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert ([], []) == (found["messages"], found["errors"])
    assert {vllm_watch.__version__} == {about["version"], about["appVersion"]}


def test_each_object_is_valid(plain):
    """Every object is valid in the oldest Kubernetes and in a new one, and a misspelt field would not be."""
    assert {} == {f"{each['kind']}/{each['metadata']['name']}": found for each in plain if (found := faults(each))}
    wrong = copy.deepcopy(of_kind(plain, "Deployment")[0])
    wrong["spec"]["template"]["spec"]["serviceAcountName"] = "x"
    assert faults(wrong)


@needs_kustomize
def test_the_chart_has_what_the_overlay_has(plain):
    """Chart and overlay `pods` differ in names and labels alone: rules, dashboards, rights, policy and container."""
    overlay = build(FOLDER / "overlays" / "pods")

    assert sorted(each["kind"] for each in overlay) == sorted(each["kind"] for each in plain)
    assert specs(overlay, "PrometheusRule") == specs(plain, "PrometheusRule")
    (theirs,), (ours,) = specs(overlay, "PodMonitor"), specs(plain, "PodMonitor")
    assert {**theirs, "selector": ours["selector"]} == ours
    assert [each["rules"] for each in of_kind(overlay, "Role")] == [each["rules"] for each in of_kind(plain, "Role")]
    assert dashboards(overlay) == dashboards(plain)
    (theirs,), (ours,) = of_kind(overlay, "NetworkPolicy"), of_kind(plain, "NetworkPolicy")
    assert (theirs["spec"]["ingress"], theirs["spec"]["egress"]) == (ours["spec"]["ingress"], ours["spec"]["egress"])
    theirs, ours = (watch_of(pod_of(objects)) for objects in (overlay, plain))
    assert {**theirs, "imagePullPolicy": "IfNotPresent"} == ours
    theirs, ours = (pod_of(objects)["spec"] for objects in (overlay, plain))
    assert {**theirs, "containers": 0, "volumes": 0} == {**ours, "containers": 0, "volumes": 0}


def specs(objects, kind):
    """Return the specs of a kind, in an order of their own."""
    return sorted((each["spec"] for each in of_kind(objects, kind)), key=lambda spec: json.dumps(spec, sort_keys=True))


def dashboards(objects):
    """Return the texts of the dashboards by their files."""
    maps = [each for each in of_kind(objects, "ConfigMap") if "grafana_dashboard" in each["metadata"].get("labels", {})]
    assert [{"grafana_folder": "vLLM"}] * len(maps) == [each["metadata"]["annotations"] for each in maps]
    return {name: text for each in maps for name, text in each["data"].items()}


def test_the_parts_find_each_other(plain, tmp_path):
    """The pod has the selected labels, its ConfigMap and its account, and the daemon takes the configuration."""
    pod, (service,), (policy,) = pod_of(plain), of_kind(plain, "Service"), of_kind(plain, "NetworkPolicy")
    (config,) = (each for each in of_kind(plain, "ConfigMap") if "vllm-watch.yml" in each["data"])
    (account,), (binding,) = of_kind(plain, "ServiceAccount"), of_kind(plain, "RoleBinding")
    (tmp_path / "vllm-watch.yml").write_text(config["data"]["vllm-watch.yml"])

    for selector in (
        service["spec"]["selector"],
        policy["spec"]["podSelector"]["matchLabels"],
        of_kind(plain, "Deployment")[0]["spec"]["selector"]["matchLabels"],
        of_kind(plain, "PodMonitor")[0]["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= pod["metadata"]["labels"].items()
    assert "vllm-watch" in pod["metadata"]["labels"]  # That of every other PodMonitor.
    assert config["metadata"]["name"] == pod["spec"]["volumes"][0]["configMap"]["name"]
    assert {account["metadata"]["name"]} == {pod["spec"]["serviceAccountName"], binding["subjects"][0]["name"]}
    assert "app=vllm" == load_config(str(tmp_path / "vllm-watch.yml")).kubernetes.selector


def test_values_get_to_where_they_belong(rendered):
    """Another namespace has the Role, servers need none, labels are added, and what is switched off is not there."""
    other = rendered(
        config={"kubernetes": {"selector": "a=b", "namespace": "models"}}, podMonitor={"labels": {"r": "x"}}
    )
    assert ["models"] * 2 == [each["metadata"]["namespace"] for each in of_kind(other, "Role", "RoleBinding")]
    assert "x" == of_kind(other, "PodMonitor")[0]["metadata"]["labels"]["r"]

    servers = rendered(
        config={"kubernetes": None, "servers": [{"name": "a", "metrics": "http://a:8000"}]},
        podMonitor={"enabled": False},
        prometheusRules={"enabled": False},
        dashboards={"enabled": False},
        networkPolicy={"enabled": False},
        image={"tag": "1.2.3"},
    )
    assert {"ConfigMap", "Deployment", "Service", "ServiceAccount"} == {each["kind"] for each in servers}
    assert pod_of(servers)["spec"]["automountServiceAccountToken"] is False
    assert "vllm-watch:1.2.3" == watch_of(pod_of(servers))["image"]


def policy_of(objects):
    """Return the spec of the NetworkPolicy."""
    return of_kind(objects, "NetworkPolicy")[0]["spec"]


@pytest.mark.parametrize(
    ("selector", "wanted"),
    [
        ("app=x", {"matchLabels": {"app": "x"}}),
        (" app==x , tier= ", {"matchLabels": {"app": "x", "tier": ""}}),
        (
            "model,helm-release-name",
            {"matchExpressions": [{"key": key, "operator": "Exists"} for key in ("model", "helm-release-name")]},
        ),
        (
            "!old,llm-d.ai/role!=test,env in (a, b) ,zone notin(c)",
            {
                "matchExpressions": [
                    {"key": "old", "operator": "DoesNotExist"},
                    {"key": "llm-d.ai/role", "operator": "NotIn", "values": ["test"]},
                    {"key": "env", "operator": "In", "values": ["a", "b"]},
                    {"key": "zone", "operator": "NotIn", "values": ["c"]},
                ]
            },
        ),
    ],
    ids=["equal", "spaces and no value", "a label", "sets"],
)
def test_the_policy_lets_out_to_the_pods_that_are_selected(rendered, selector, wanted):
    """Selector, port and namespace of `kubernetes` are those of the policy, whatever form the selector has."""
    objects = rendered(config={"kubernetes": {"selector": selector, "port": "http", "namespace": "models"}})
    theirs = {"matchLabels": {"kubernetes.io/metadata.name": "models"}}

    assert policy_of(objects)["egress"][1] == {
        "to": [{"podSelector": wanted, "namespaceSelector": theirs}],
        "ports": [{"port": "http", "protocol": "TCP"}],
    }
    assert [] == faults(of_kind(objects, "NetworkPolicy")[0])


def test_the_policy_lets_out_to_the_port_of_each_url(rendered):
    """What is named by a URL can be reached at its port, written or not; a link, which people follow, opens none."""
    config = {
        "kubernetes": None,
        "links": {"logs": "http://grafana:3000/explore"},
        "otlp": "https://collector/v1/metrics",
        "prometheus": {"url": "http://prometheus:9090"},
        "servers": [
            {"name": "a", "metrics": "http://a-0.a:8000/metrics", "probe": {"url": "http://a-0.a:8001?x"}},
            {"name": "b", "metrics": {"url": "http://b/metrics"}},
        ],
    }
    more = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    (_, opened, added) = policy_of(rendered(config=config, networkPolicy={"egress": [more]}))["egress"]

    assert {80, 443, 8000, 8001, 9090} == {port["port"] for port in opened["ports"]}
    assert {"ports"} == set(opened)
    assert more == added


def test_two_releases_share_a_namespace(rendered):
    """No object of one has the name of one of the other, and each PodMonitor selects its own pod alone."""
    one, other = rendered(release="one"), rendered(release="other")
    named = [{(each["kind"], each["metadata"]["name"]) for each in objects} for objects in (one, other)]

    assert set() == named[0] & named[1]
    for objects, release in ((one, "one"), (other, "other")):
        (monitor,) = of_kind(objects, "PodMonitor")
        assert release == monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"]


@pytest.mark.parametrize(
    "values",
    [
        {"imgae": {}},
        {"image": {"repo": "x"}},
        {"networkPolicy": {"apiServerPorts": ["http"]}},
        {"networkPolicy": {"pods": []}},
        {"config": {"kubernetes": None}},
    ],
    ids=["a key", "a key below", "a port", "a key that there was", "nothing to watch"],
)
def test_a_wrong_value_is_refused(helm, rendered, values):
    """What the chart does not know, or cannot work, is an error of its schema."""
    with pytest.raises(helm.HelmValuesError, match="schema"):
        rendered(**values)


@pytest.mark.needs_tool("make")
def test_the_packaged_chart_is_the_chart(plain, rendered, tmp_path):
    """`make chart` writes one file without links, of which the same objects are made."""
    make = ["make", "--silent", "--directory", FOLDER.parents[1], "chart", f"DIST={tmp_path}"]
    subprocess.run(make, check=True, timeout=60)
    package = tmp_path / f"vllm-watch-{vllm_watch.__version__}.tgz"

    with tarfile.open(package) as members:
        assert [] == [each.name for each in members if not (each.isfile() or each.isdir())]
    assert plain == rendered(chart=package)


def test_each_object_can_be_applied_by_the_client(plain):
    """Argo CD and `kubectl apply` keep what was applied in an annotation, which has a limit."""
    assert {} == {each["metadata"]["name"]: size for each in plain if (size := annotated(each)) >= ANNOTATIONS_LIMIT}


def test_a_release_fits_into_its_secret(plain):
    """Helm keeps a release in one Secret, packed: the chart's files and what was made of them."""
    files = {str(path): path.read_text(encoding="utf-8") for path in CHART.rglob("*") if path.is_file()}
    for link in ("rules", "dashboards"):
        files |= {str(path): path.read_text(encoding="utf-8") for path in (CHART / "files" / link).resolve().iterdir()}
    release = json.dumps({"chart": files, "manifest": yaml.safe_dump_all(plain)})

    # Packed, and base64 twice: by Helm, and by Kubernetes.
    assert len(base64.b64encode(base64.b64encode(gzip.compress(release.encode())))) < SECRET_LIMIT
