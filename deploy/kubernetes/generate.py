# SPDX-License-Identifier: Apache-2.0
"""
Writes what the Prometheus Operator reads from the files that every Prometheus reads: ``make generate``.

A PrometheusRule for each file of ``alerts/rules``, and a PodMonitor with the limits of ``alerts/prometheus``. For each
file of ``alerts/gpu-exporters``, which are optional, a component with a PrometheusRule.
"""

from __future__ import annotations

import sys

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


HERE = Path(__file__).parent
ALERTS = HERE.parents[1] / "alerts"
HEAD = "# SPDX-License-Identifier: Apache-2.0\n# Made by `make generate` from {source}: change that.\n"

LIMITS: Mapping[str, str] = {
    "scrape_interval": "interval",
    "scrape_timeout": "scrapeTimeout",
}
"""Settings of a job that belong to an endpoint, by the operator's names."""

SAMPLE_LIMITS: Mapping[str, str] = {
    "sample_limit": "sampleLimit",
    "body_size_limit": "bodySizeLimit",
    "label_limit": "labelLimit",
    "label_name_length_limit": "labelNameLengthLimit",
    "label_value_length_limit": "labelValueLengthLimit",
}
"""Settings of a job that belong to the PodMonitor."""

POD_LABELS = ("model", "helm-release-name", "llm-d.ai/model", "llm-d.ai/role")
"""Labels of pods that go to their series where they are there: those of production-stack and llm-d."""

Document = dict[str, Any]

_COMPONENT: Document = {
    "apiVersion": "kustomize.config.k8s.io/v1alpha1",
    "kind": "Component",
    "resources": ["prometheusrule.yaml"],
}


def rendered() -> dict[str, str]:
    """
    Return each file's text by its path in this folder.

    Raises:
        KeyError: The job in prometheus.yml lacks one of the settings.
    """
    files = {
        f"base/prometheusrule-{path.stem}.yaml": _rules(path, f"vllm-watch-{path.stem}")
        for path in sorted((ALERTS / "rules").glob("*.yml"))
    }
    for path in sorted((ALERTS / "gpu-exporters").glob("*.yml")):
        name = f"gpus-of-{path.stem.replace('_', '-')}"
        files[f"components/{name}/prometheusrule.yaml"] = _rules(path, f"vllm-watch-{name}")
        files[f"components/{name}/kustomization.yaml"] = _text(path, _COMPONENT)
    return {**files, "base/podmonitor.yaml": _pod_monitor(ALERTS / "prometheus" / "prometheus.yml")}


def _rules(path: Path, name: str) -> str:
    groups = yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    return _text(path, _operators("PrometheusRule", name, {"groups": groups}))


def _pod_monitor(path: Path) -> str:
    (job,) = yaml.safe_load(path.read_text(encoding="utf-8"))["scrape_configs"]
    endpoint = {
        "port": "vllm-watch",
        "path": "/metrics",
        **{theirs: job[ours] for ours, theirs in LIMITS.items()},
        # Without it the job would be the PodMonitor, and the rules know it by this name.
        "relabelings": [{"targetLabel": "job", "replacement": job["job_name"]}],
    }
    spec = {
        "selector": {"matchExpressions": [{"key": "vllm-watch", "operator": "Exists"}]},
        "podTargetLabels": list(POD_LABELS),
        **{theirs: job[ours] for ours, theirs in SAMPLE_LIMITS.items()},
        "podMetricsEndpoints": [endpoint],
    }
    return _text(path, _operators("PodMonitor", "vllm-watch", spec))


def _operators(kind: str, name: str, spec: Document) -> Document:
    return {"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _text(source: Path, document: Document) -> str:
    head = HEAD.format(source=source.relative_to(HERE.parents[1]))
    return head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def main() -> None:
    """Write the files."""
    for name, text in rendered().items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_text(text, encoding="utf-8")
        print(HERE / name, file=sys.stderr)


if __name__ == "__main__":
    main()
