# SPDX-License-Identifier: Apache-2.0
"""The section of pods that are found by their labels."""

from __future__ import annotations

import re

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from vllm_watch.daemon.config.gpu_section import COST_PER_HOUR
from vllm_watch.daemon.config.model import KubernetesConfig
from vllm_watch.daemon.config.quoting import quote
from vllm_watch.daemon.config.section import Key, Section, duration_key, path_key, read_section
from vllm_watch.daemon.config.server_section import SERVER_KEYS, read_labels, read_scrapes
from vllm_watch.daemon.config.yaml_node import ConfigNode


MAX_SELECTOR = 1000

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_PART}"
_VALUE = rf"(?:{_PART})?"
_TEST = rf"(?:\s*(?:==?|!=)\s*{_VALUE}|\s+(?:not)?in\s*\(\s*{_VALUE}(?:\s*,\s*{_VALUE})*\s*\))?"
_REQUIREMENT = rf"\s*(?:!\s*{_LABEL_KEY}|{_LABEL_KEY}{_TEST})\s*"
_SELECTOR = re.compile(rf"{_REQUIREMENT}(?:,{_REQUIREMENT})*")
_KEY = re.compile(_LABEL_KEY)
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=[a-z0-9-]{0,14}[a-z])[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?")
_PATH = re.compile(r"/[A-Za-z0-9._~/%=&?-]{0,255}")


def check_selector(text: str) -> str:
    """
    Return a label selector.

    Raises:
        ValueError: It is none, or empty: that would be every pod.
    """
    if len(text) > MAX_SELECTOR or _SELECTOR.fullmatch(text) is None:
        raise ValueError(
            f"expected a label selector such as app=vllm,tier!=test or app in (chat, code), got {quote(text)}"
        )
    return text.strip()


def _read_selector(node: ConfigNode) -> str:
    return node.parsed(node.text(), check_selector)


def _read_namespace(node: ConfigNode) -> str:
    text = node.text()
    if _NAMESPACE.fullmatch(text) is None:
        raise node.error(f"expected a namespace: small letters, digits and -, got {quote(text)}")
    return text


def _read_port(node: ConfigNode) -> int | str:
    """Read the number of a port, or its name."""
    text = node.written()
    if re.fullmatch(r"\d{1,5}", text, re.ASCII) and 0 < int(text) <= 65535:
        return int(text)
    if _PORT_NAME.fullmatch(text) is None:
        raise node.error(f"expected a port's number from 1 to 65535 or its name in the pod, got {quote(text)}")
    return text


def _read_path(node: ConfigNode) -> str:
    text = node.text()
    if _PATH.fullmatch(text) is None:
        raise node.error(f"expected a path such as /metrics, got {quote(text)}")
    return text


def _read_scheme(node: ConfigNode) -> str:
    text = node.text()
    if text not in {"http", "https"}:
        raise node.error(f"expected http or https, got {quote(text)}")
    return text


def _read_pod_label(node: ConfigNode) -> str:
    text = node.text()
    if _KEY.fullmatch(text) is None:
        raise node.error(f"expected the name of a pod's label such as llm-d.ai/role, got {quote(text)}")
    return text


def _read_pod_labels(node: ConfigNode) -> Mapping[str, str]:
    return read_labels(node, _read_pod_label)


def _read_kubernetes(node: ConfigNode) -> KubernetesConfig:
    """Read the section, and what must fit together in it."""
    config = read_section(node, KubernetesConfig, _KUBERNETES)
    values = node.mapping()
    if config.probe is not None and config.probe.url is not None:
        raise values["probe"].mapping()["url"].error("every pod would be probed at this one URL; leave it out")
    for label in config.pod_labels:
        if label in config.labels:
            raise values["pod_labels"].mapping()[label].error(f'"{label}" is in labels, too')
    frozen = {name: MappingProxyType(dict(getattr(config, name))) for name in ("labels", "pod_labels")}
    return msgspec.structs.replace(config, **frozen)


def _as_of_a_server(name: str) -> Key:
    """Return a key that is the same for every pod as for a server of the list."""
    key = SERVER_KEYS[name]
    return key._replace(meaning=f"As `{name}` of a server, for every pod.", section=None)


_KUBERNETES = {
    "selector": Key(
        _read_selector,
        "label selector",
        "The pods, as `kubectl get pods --selector` takes it.",
        "app=vllm,environment in (staging, production)",
    ),
    "namespace": Key(
        _read_namespace,
        "name of a namespace",
        "Where the pods are. Without it: the namespace of vllm-watch's own pod, or that of the kubeconfig's context.",
        "vllm",
    ),
    "kubeconfig": path_key(
        "A kubeconfig, whose current context is used. Without it the daemon runs in a pod and uses its service "
        "account.",
        "/etc/vllm-watch/kubeconfig",
    ),
    "every": duration_key("5s", "5m", "The time from one list of the pods to the next.", "10s"),
    "port": Key(
        _read_port,
        "number, or name of a container's port",
        "The port of /metrics. A pod without a port of that name is not watched.",
        "8000",
    ),
    "path": Key(_read_path, "path of a URL", "The path of /metrics.", "/metrics"),
    "scheme": Key(_read_scheme, "`http`, `https`", "How /metrics is asked.", "http"),
    "metrics": Key(
        read_scrapes,
        "mapping",
        "How /metrics is scraped: `interval`, `timeout`, `bearer_token_file` and `tls`, as of a server, for every pod.",
        "{interval: 5s}",
    ),
    "pod_labels": Key(
        _read_pod_labels,
        "mapping of label names to pods' labels",
        "Labels added to every series of a pod, with the value of the pod's own label; a pod without that label has "
        "none.",
        "{role: llm-d.ai/role}",
    ),
    "labels": _as_of_a_server("labels"),
    "probe": _as_of_a_server("probe"),
    "slo": _as_of_a_server("slo"),
    "capacity": _as_of_a_server("capacity"),
    "cost_per_hour": COST_PER_HOUR._replace(meaning="As `cost_per_hour` of a server, for every pod."),
    "stall_after": _as_of_a_server("stall_after"),
}

KUBERNETES = Key(
    _read_kubernetes,
    "mapping",
    "Pods of a Kubernetes namespace to watch, each as a server: see [Pods](#pods). It needs the extra `kubernetes`.",
    "{selector: app=vllm}",
    Section(KubernetesConfig, _KUBERNETES),
)
"""The pods that are watched."""
