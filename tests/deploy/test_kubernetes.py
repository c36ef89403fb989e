# SPDX-License-Identifier: Apache-2.0
"""The files for Kubernetes: as kustomize builds them, by Kubernetes' own schemas, and by what must fit together."""

from __future__ import annotations

import json
import re
import shutil

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.needs import without
from tests.support.processes import run_command
from tests.support.yaml_files import load_all_yaml, load_yaml

import vllm_watch

from vllm_watch.daemon.config.config_file import load_config


pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("sidecar", "metrics-only", "production-stack", "llm-d", "pods")
ALONE = OVERLAYS[1:]
VERSIONS = ("1.29", "1.34")
"""Of Kubernetes: the first that has sidecars, and the one that these files were written for."""
ANNOTATIONS_LIMIT = 262_144
"""Bytes that `kubectl apply` can keep of an object in its annotation."""


needs_kustomize = pytest.mark.needs_tool("kubectl")


def build(folder):
    """Return the objects that a kustomization makes."""
    ran = run_command("kubectl", "kustomize", folder)
    assert 0 == ran.returncode, ran.stderr
    return load_all_yaml(ran.stdout)


@pytest.fixture(scope="module")
def built():
    """The objects of each overlay."""
    return {overlay: build(FOLDER / "overlays" / overlay) for overlay in OVERLAYS}


def annotated(document):
    """Return the bytes of an object's annotations, with the one that `kubectl apply` adds: the object, by Go's JSON."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    kept = {"kubectl.kubernetes.io/last-applied-configuration": re.sub("[<>&]", r"\\u0000", text)}
    return sum(
        len(f"{key}{value}".encode()) for key, value in {**document["metadata"].get("annotations", {}), **kept}.items()
    )


def of_kind(objects, *kinds):
    """Return the objects of some kinds."""
    return [each for each in objects if each["kind"] in kinds]


def pod_of(objects):
    """Return the pod template of the one workload."""
    (workload,) = of_kind(objects, "Deployment", "StatefulSet")
    return workload["spec"]["template"]


def watch_of(pod):
    """Return the container that watches."""
    containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
    (found,) = (each for each in containers if each["name"] == "vllm-watch")
    return found


def faults(document):
    """Return what a schema has against an object: the operator's of tests/deploy, Kubernetes' own for the rest."""
    jsonschema = pytest.importorskip("jsonschema", reason=without("jsonschema"))
    kubernetes = pytest.importorskip("kubernetes_validate", reason=without("kubernetes_validate"))
    if document["apiVersion"].partition("/")[0] in {"monitoring.coreos.com", "keda.sh"}:
        schemas = load_yaml((Path(__file__).parent / "operator_schemas.yml").read_text(encoding="utf-8"))
        schema = {
            "definitions": schemas["definitions"],
            "allOf": [{"$ref": "#/definitions/object"}],
            "properties": {"spec": schemas[document["kind"]]},
        }
        return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(document)]
    found = []
    for version in VERSIONS:
        try:
            kubernetes.validate(document, version, strict=True)
        except kubernetes.ValidationError as error:
            found.append(error.message)
    return found


@needs_kustomize
@pytest.mark.parametrize("rules", sorted((ROOT / "alerts" / "gpu-exporters").glob("*.yml")), ids=lambda path: path.stem)
def test_rules_for_another_exporter_are_a_component(tmp_path, rules):
    """A kustomization that names the component of an exporter has its rules, to the letter, and no other's."""
    component = FOLDER / "components" / f"gpus-of-{rules.stem.replace('_', '-')}"
    shutil.copytree(component, tmp_path / "component")
    (tmp_path / "kustomization.yaml").write_text("components: [component]")

    (built,) = build(tmp_path)

    assert load_yaml(rules.read_text(encoding="utf-8"))["groups"] == built["spec"]["groups"]
    assert [] == faults(built)


@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_each_object_is_valid(built, overlay):
    """No object has a field that there is not or a value of the wrong kind, in the oldest Kubernetes and a new one."""
    assert {} == {
        f"{each['kind']}/{each['metadata']['name']}": found for each in built[overlay] if (found := faults(each))
    }


@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_a_pod_mounts_is_there(built, overlay):
    """Each volume is mounted and each mount has a volume, and the ConfigMaps that they name are made."""
    spec = pod_of(built[overlay])["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]

    assert {volume["name"] for volume in spec["volumes"]} == {
        mount["name"] for each in containers for mount in each["volumeMounts"]
    }
    assert {volume["configMap"]["name"] for volume in spec["volumes"] if "configMap" in volume} <= {
        each["metadata"]["name"] for each in of_kind(built[overlay], "ConfigMap")
    }


@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_daemon_takes_its_configuration(built, overlay, tmp_path):
    """The ConfigMap that the pod mounts is a configuration, where the image's command looks for it."""
    pod = pod_of(built[overlay])
    mounts = {mount["mountPath"]: mount["name"] for mount in watch_of(pod)["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    name = volumes[mounts["/etc/vllm-watch"]]["configMap"]["name"]
    (found,) = (each for each in of_kind(built[overlay], "ConfigMap") if each["metadata"]["name"] == name)
    config = tmp_path / "vllm-watch.yml"
    config.write_text(found["data"]["vllm-watch.yml"])
    loaded = load_config(str(config))

    if overlay == "sidecar":
        assert {str(Path(loaded.checkpoint).parent), str(Path(loaded.servers[0].log).parent)} < set(mounts)
    else:
        assert (None, [], []) == (
            loaded.checkpoint,
            [server.log for server in loaded.servers if server.has_log],
            [server for server in loaded.servers if server.metrics is None],
        )
        assert (overlay == "pods", overlay != "pods") == (loaded.kubernetes is not None, bool(loaded.servers))


@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_prometheus_finds_the_pod(built, overlay):
    """The PodMonitor selects the pod's label and names a port of the container, which listens there."""
    (monitor,) = of_kind(built[overlay], "PodMonitor")
    pod = pod_of(built[overlay])
    (expression,) = monitor["spec"]["selector"]["matchExpressions"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = watch_of(pod)["ports"]

    assert ("Exists", True) == (expression["operator"], expression["key"] in pod["metadata"]["labels"])
    assert {"name": endpoint["port"], "containerPort": 9468} == port
    assert [{"targetLabel": "job", "replacement": "vllm-watch"}] == endpoint["relabelings"]


@needs_kustomize
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_container_is_restricted(built, overlay):
    """It keeps to the Pod Security Standard `restricted`, cannot write its root, has limits and a pinned image."""
    spec = pod_of(built[overlay])["spec"]
    watch = watch_of({"spec": spec})
    security = {**spec.get("securityContext", {}), **watch["securityContext"]}

    assert {
        "runAsNonRoot": True,
        "runAsUser": 9468,
        "runAsGroup": 9468,
        "seccompProfile": {"type": "RuntimeDefault"},
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    } == security
    assert {"cpu", "memory"} == set(watch["resources"]["limits"]) == set(watch["resources"]["requests"])
    assert f"vllm-watch:{vllm_watch.__version__}" == watch["image"]
    assert [] == [each["image"] for each in spec["containers"] if not re.search(r":v?\d+\.\d+\.\d+$", each["image"])]


@needs_kustomize
def test_who_watches_does_not_decide_who_serves(built):
    """The sidecar has no readiness probe, with which it could take vLLM out of its Service; the Deployment has one."""
    sidecar, alone = (watch_of(pod_of(built[overlay])) for overlay in ("sidecar", "metrics-only"))

    assert ("Always", "/-/healthy", False) == (
        sidecar["restartPolicy"],
        sidecar["livenessProbe"]["httpGet"]["path"],
        "readinessProbe" in sidecar,
    )
    assert ("/-/healthy", "/-/ready") == tuple(
        alone[kind]["httpGet"]["path"] for kind in ("livenessProbe", "readinessProbe")
    )


@needs_kustomize
@pytest.mark.parametrize("overlay", ALONE)
def test_the_policy_lets_through_what_is_needed(built, overlay):
    """It is about the pod that watches, lets in its port, and lets out names and what its configuration watches."""
    (policy,) = of_kind(built[overlay], "NetworkPolicy")
    pod = pod_of(built[overlay])
    names, vllm, *others = policy["spec"]["egress"]
    (config,) = (each for each in of_kind(built[overlay], "ConfigMap") if "vllm-watch.yml" in each["data"])
    document = load_yaml(config["data"]["vllm-watch.yml"])
    # A Service on 80 of production-stack leads to 8000 of its pods, and it is their port that a policy is about.
    asked = {urlsplit(server["metrics"]).port or 8000 for server in document.get("servers", ())}
    if "kubernetes" in document:
        key, value = document["kubernetes"]["selector"].split("=")
        asked = {document["kubernetes"]["port"]}
        assert [{"podSelector": {"matchLabels": {key: value}}}] == vllm["to"]
        assert {443, 6443} == {port["port"] for rule in others for port in rule["ports"]}
    else:
        assert [] == others

    assert policy["spec"]["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert ["Egress", "Ingress"] == sorted(policy["spec"]["policyTypes"])
    assert ["vllm-watch"] == [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert {(53, "UDP"), (53, "TCP")} <= {(port["port"], port["protocol"]) for port in names["ports"]}
    assert asked <= {port["port"] for port in vllm["ports"]}
    assert all(peer["podSelector"] for peer in vllm["to"])


@needs_kustomize
def test_pods_may_be_listed_and_nothing_else(built):
    """One Role with one verb on one resource, bound to the account whose token the pod has; nobody else has a token."""
    objects = built["pods"]
    (role,), (binding,), (account,) = (of_kind(objects, kind) for kind in ("Role", "RoleBinding", "ServiceAccount"))
    spec = pod_of(objects)["spec"]

    assert [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}] == role["rules"]
    assert [] == of_kind(objects, "ClusterRole", "ClusterRoleBinding")
    assert ("Role", role["metadata"]["name"]) == (binding["roleRef"]["kind"], binding["roleRef"]["name"])
    assert [{"kind": "ServiceAccount", "name": account["metadata"]["name"]}] == binding["subjects"]
    assert (account["metadata"]["name"], True) == (spec["serviceAccountName"], spec["automountServiceAccountToken"])
    assert [False] * 4 == [
        pod_of(built[overlay])["spec"]["automountServiceAccountToken"] for overlay in ALONE if overlay != "pods"
    ] + [account["automountServiceAccountToken"]]


@pytest.mark.parametrize("path", sorted((FOLDER / "autoscaling").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_autoscalers_are_valid(path):
    """The examples are what KEDA and Kubernetes take, do not scale to zero, and misspelt would not be taken."""
    document = load_yaml(path.read_text(encoding="utf-8"))
    spec = document["spec"]

    assert [] == faults(document)
    assert spec.get("minReplicaCount", spec.get("minReplicas")) == 1
    spec["minReplica"] = 1
    assert faults(document)


@needs_kustomize
def test_the_dashboards_are_the_files(built):
    """Each dashboard is a ConfigMap of its own for Grafana's sidecar, has the file's text, and can be applied."""
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "dashboards" / "json" / "en").glob("*")}
    maps = [
        each
        for each in of_kind(built["metrics-only"], "ConfigMap")
        if "grafana_dashboard" in each["metadata"].get("labels", {})
    ]

    assert [1] * len(maps) == [len(each["data"]) for each in maps]
    assert files == {name: text for each in maps for name, text in each["data"].items()}
    assert max(annotated(each) for each in built["metrics-only"]) < ANNOTATIONS_LIMIT


_WORKLOAD = """
apiVersion: apps/v1
kind: {kind}
metadata: {{name: engine, labels: {{vllm-watch: {label}}}}}
spec:
  selector: {{matchLabels: {{app: engine}}}}
  {more}
  template:
    metadata: {{labels: {{app: engine}}}}
    spec:
      initContainers: [{{name: routing-proxy, image: 'proxy:1.0.0', restartPolicy: Always}}]
      containers: [{{name: vllm, image: 'vllm:1.0.0', command: [vllm, serve, a-model], args: [--port, '8000']}}]
"""


@needs_kustomize
@pytest.mark.parametrize(("kind", "more"), [("Deployment", "replicas: 2"), ("StatefulSet", "serviceName: engine")])
@pytest.mark.parametrize("label", ["sidecar", "no"])
def test_a_command_is_kept_behind_the_program_that_keeps_the_log(tmp_path, kind, more, label):
    """A labelled workload gets the sidecar before its own ones and its command is wrapped; another is left alone."""
    for part in ("deploy/kubernetes/components", "deploy/container"):
        shutil.copytree(ROOT / part, tmp_path / part)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "engine.yaml").write_text(_WORKLOAD.format(kind=kind, more=more, label=label))
    (tmp_path / "mine" / "vllm-watch.yml").write_text("")
    (tmp_path / "mine" / "kustomization.yaml").write_text(
        "resources: [engine.yaml]\ncomponents: [../deploy/kubernetes/components/sidecar-command]\n"
        "configMapGenerator: [{name: vllm-watch, files: [vllm-watch.yml]}]\n"
    )

    objects = build(tmp_path / "mine")
    pod = pod_of(objects)["spec"]

    wrapped = ["python3", "/opt/vllm-watch/keep_log.py", "--log", "/var/log/vllm/vllm.log", "--"]
    assert [*(wrapped if label == "sidecar" else []), "vllm", "serve", "a-model"] == pod["containers"][0]["command"]
    assert ["--port", "8000"] == pod["containers"][0]["args"]
    assert (["vllm-watch"] if label == "sidecar" else []) + ["routing-proxy"] == [
        each["name"] for each in pod["initContainers"]
    ]
    (workload,) = of_kind(objects, kind)
    assert [] == faults(workload)


@pytest.fixture
def beside(tmp_path):
    """Build a kustomization that stands beside a copy of the tree, as the README has it."""
    tree = tmp_path / "vllm-watch"
    for part in ("deploy/kubernetes", "deploy/container", "dashboards"):
        shutil.copytree(ROOT / part, tree / part, ignore=shutil.ignore_patterns("boards", "texts", "*.png"))
    (tmp_path / "mine").mkdir()

    def make(text):
        (tmp_path / "mine" / "kustomization.yaml").write_text(text)
        (tmp_path / "mine" / "vllm-watch.yml").write_text("servers: [{name: mine, metrics: 'http://mine:8000'}]\n")
        return build(tmp_path / "mine")

    return make


def examples(folder="deploy", heading="## Kubernetes"):
    """Return a README's kustomizations."""
    text = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```yaml\n(.*?)^```$", text[text.index(heading) :], re.DOTALL | re.MULTILINE)


@needs_kustomize
def test_the_readmes_kustomization_takes_what_is_the_users(beside):
    """Namespace, image and configuration of one's own get to where they belong."""
    objects = beside(examples()[0])
    pod = pod_of(objects)
    (mounted,) = (volume["configMap"]["name"] for volume in pod["spec"]["volumes"])

    assert {"vllm"} == {each["metadata"]["namespace"] for each in objects}
    assert f"registry.example.com/vllm-watch:{vllm_watch.__version__}" == watch_of(pod)["image"]
    assert ["mine"] == [
        load_yaml(each["data"]["vllm-watch.yml"])["servers"][0]["name"]
        for each in of_kind(objects, "ConfigMap")
        if each["metadata"]["name"] == mounted
    ]
