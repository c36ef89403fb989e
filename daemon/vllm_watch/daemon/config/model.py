# SPDX-License-Identifier: Apache-2.0
"""
The whole configuration as frozen values, and the key of the file for each value; its servers are in `server_config`.

Times are in seconds. Secrets are never in a configuration, only the names of the files that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

import msgspec

from vllm_watch.daemon.catalog.codes import STALL_SECONDS
from vllm_watch.daemon.config.keys import (
    Key,
    Mistakes,
    Section,
    duration_key,
    fitting_timeout,
    keys_of,
    list_key,
    path_key,
    read_each,
    read_section,
    section_key,
    text_key,
    value_key,
    words_key,
)
from vllm_watch.daemon.config.server_config import (
    CapacityConfig,
    LinksConfig,
    MetricsConfig,
    ProbeConfig,
    ServerConfig,
    SloConfig,
    TlsConfig,
    read_labels,
    tls_key,
)
from vllm_watch.daemon.config.texts import (
    DEFAULT_LISTEN,
    OTLP_PATH,
    check_host,
    check_listen,
    check_namespace,
    check_pod_label,
    check_selector,
    check_url_path,
    parse_listen,
    parse_otlp_url,
    parse_port,
    parse_prometheus_url,
    quote,
)
from vllm_watch.daemon.config.yaml_node import ConfigNode
from vllm_watch.daemon.support.errors import ConfigError


LONGEST_TIMEOUT = "20s"
"""Of a request to a Prometheus."""


class PrometheusConfig(Section, frozen=True):
    """The Prometheus whose alerts are shown; `timeout` limits a whole request."""

    url: Annotated[
        str,
        text_key(
            parse_prometheus_url,
            "URL",
            "Where Prometheus is, or what speaks like one, with the path that it is served below. A user name or "
            "password in the URL is an error.",
            "http://127.0.0.1:9090",
        ),
    ]
    timeout: Annotated[
        float,
        duration_key(
            "100ms",
            LONGEST_TIMEOUT,
            "The limit for one whole request, however slowly the answer arrives.",
            "5s",
        ),
    ] = 5.0
    bearer_token_file: Annotated[
        str | None,
        path_key(
            "A file with the token to send as `Authorization: Bearer`. It is read for each request.",
            "/etc/vllm-watch/prometheus-token",
        ),
    ] = None
    tls: Annotated[TlsConfig | None, tls_key()] = None


class OtlpConfig(Section, frozen=True):
    """Where the series are pushed over OTLP; `timeout` is never longer than `interval`."""

    endpoint: Annotated[
        str,
        text_key(
            parse_otlp_url,
            "URL",
            f"Where OTLP over HTTP is received; without a path it is `{OTLP_PATH}`. A user name or password in the URL "
            "is an error.",
            "http://127.0.0.1:4318/v1/metrics",
        ),
    ]
    interval: Annotated[float, duration_key("5s", "1h", "From one export to the next.", "60s")] = 60.0
    timeout: Annotated[
        float,
        duration_key(
            "100ms",
            "60s",
            "The limit for one whole export, however slowly the endpoint answers; at most `interval`.",
            "10s",
        ),
    ] = 10.0
    headers_file: Annotated[
        str | None,
        path_key(
            "A file with headers to send, one `Name: value` on each line, such as `Authorization: Bearer …`. It is "
            "read for each export.",
            "/etc/vllm-watch/otlp-headers",
        ),
    ] = None
    tls: Annotated[TlsConfig | None, tls_key()] = None

    def checked(self, node: ConfigNode) -> OtlpConfig:
        """Return the section with a timeout that is no longer than the interval."""
        timeout = fitting_timeout(
            self.timeout, node, self.interval, f"the interval of {self.interval:g}s", self.interval
        )
        return msgspec.structs.replace(self, timeout=timeout)


class GpuConfig(Section, frozen=True):
    """How the machine's GPUs are read."""

    read: Annotated[
        str,
        words_key(
            ("auto", "always", "never"),
            "Whether the driver's library is read: `auto`, if the extra `gpu` is installed; `always`, so that its "
            "absence is reported; `never`.",
        ),
    ] = "auto"
    interval: Annotated[
        float, duration_key("1s", "60s", "The time from one reading of all GPUs to the next.", "5s")
    ] = 5.0
    kernel_log: Annotated[
        str,
        words_key(
            ("journal", "/dev/kmsg", "never"),
            "Where the kernel's messages about GPUs (Xid) are read: the journal, `/dev/kmsg` or nowhere.",
        ),
    ] = "journal"


def _gpu_off(node: ConfigNode) -> GpuConfig:
    if node.written() != "off":
        raise node.error(f"expected off or a mapping, got {quote(node.written())}")
    return GpuConfig(read="never", kernel_log="never")


def _as_of_a_server(name: str) -> Key:
    """Return a key that is the same for every pod as for a server of the list."""
    return keys_of(ServerConfig)[name]._replace(meaning=f"As `{name}` of a server, for every pod.", section=None)


def _read_scrapes(node: ConfigNode) -> MetricsConfig:
    """Read how pods are scraped: their URLs are not in the file, and the one here is empty."""
    return read_section(node, MetricsConfig, fixed={"url": ""})


def _read_pod_labels(node: ConfigNode) -> Mapping[str, str]:
    return read_labels(node, check_pod_label)


class KubernetesConfig(Section, frozen=True):
    """
    The pods that are watched, each a server.

    `selector` is a label selector as `kubectl --selector` takes it. Without `namespace` it is the pod's own, or that of
    the kubeconfig's context. `port` is a number or the name of a container's port. `pod_labels` maps labels of series
    to labels of pods. The other fields are those of each server; `metrics` has an empty URL.
    """

    selector: Annotated[
        str,
        text_key(
            check_selector,
            "label selector",
            "The pods, as `kubectl get pods --selector` takes it.",
            "app=vllm,environment in (staging, production)",
        ),
    ]
    namespace: Annotated[
        str | None,
        text_key(
            check_namespace,
            "name of a namespace",
            "Where the pods are. Without it: the namespace of vllm-watch's own pod, or that of the kubeconfig's "
            "context.",
            "vllm",
        ),
    ] = None
    kubeconfig: Annotated[
        str | None,
        path_key(
            "A kubeconfig, whose current context is used. Without it the daemon runs in a pod and uses its service "
            "account.",
            "/etc/vllm-watch/kubeconfig",
        ),
    ] = None
    every: Annotated[float, duration_key("5s", "5m", "The time from one list of the pods to the next.", "10s")] = 10.0
    port: Annotated[
        int | str,
        value_key(
            parse_port,
            "number, or name of a container's port",
            "The port of /metrics. A pod without a port of that name is not watched.",
            "8000",
        ),
    ] = 8000
    path: Annotated[str, text_key(check_url_path, "path of a URL", "The path of /metrics.", "/metrics")] = "/metrics"
    scheme: Annotated[str, words_key(("http", "https"), "How /metrics is asked.")] = "http"
    metrics: Annotated[
        MetricsConfig,
        Key(
            _read_scrapes,
            "mapping",
            "How /metrics is scraped: `interval`, `timeout`, `bearer_token_file` and `tls`, as of a server, for every "
            "pod.",
            "{interval: 5s}",
        ),
    ] = MetricsConfig(url="")
    pod_labels: Annotated[
        Mapping[str, str],
        Key(
            _read_pod_labels,
            "mapping of label names to pods' labels",
            "Labels added to every series of a pod, with the value of the pod's own label; a pod without that label "
            "has none.",
            "{role: llm-d.ai/role}",
        ),
    ] = MappingProxyType({})
    labels: Annotated[Mapping[str, str], _as_of_a_server("labels")] = MappingProxyType({})
    probe: Annotated[ProbeConfig | None, _as_of_a_server("probe")] = None
    slo: Annotated[SloConfig | None, _as_of_a_server("slo")] = None
    capacity: Annotated[CapacityConfig | None, _as_of_a_server("capacity")] = None
    cost_per_hour: Annotated[float | None, _as_of_a_server("cost_per_hour")] = None
    stall_after: Annotated[float, _as_of_a_server("stall_after")] = STALL_SECONDS

    def checked(self, node: ConfigNode) -> KubernetesConfig:
        """Return the section if it has no URL for all pods, and no label twice."""
        values = node.mapping()
        if self.probe is not None and self.probe.url is not None:
            raise values["probe"].mapping()["url"].error("every pod would be probed at this one URL; leave it out")
        for label in self.pod_labels:
            if label in self.labels:
                raise values["pod_labels"].mapping()[label].error(f'"{label}" is in labels, too')
        return self


def _read_servers(node: ConfigNode) -> tuple[ServerConfig, ...]:
    """Read the list of servers; each needs a name of its own."""
    values = node.items()
    if not values:
        raise node.error("needs at least one server")
    servers = read_each(values, lambda value: read_section(value, ServerConfig))
    owners: dict[str, ConfigNode] = {}
    mistakes = Mistakes()
    for item, server in zip(values, servers, strict=True):
        owner = owners.setdefault(server.name, item)
        with mistakes.collect():
            if owner is not item:
                raise name_is_taken(item, server.name, owner.path)
    mistakes.check()
    return tuple(servers)


def name_is_taken(server: ConfigNode, name: str, owner: str) -> ConfigError:
    """Return the error of a server whose name is that of another."""
    return server.mapping().get("name", server).error(f"{quote(name)} is already the name of {owner}")


class Config(Section, frozen=True):
    """
    The whole configuration; its paths are absolute.

    `allowed_hosts` are names accepted in the header `Host`, beside addresses and the machine's own names. `servers`
    are those of the list, then those of the folder `servers_dir`; `files` maps the names of the latter to their files.
    `links` are already in the servers.
    """

    listen: Annotated[
        str,
        value_key(
            check_listen,
            "HOST:PORT",
            "The address of the daemon's HTTP server. `[::1]:9468` for IPv6, `:9468` for all interfaces, port 0 for "
            "any free one.",
            DEFAULT_LISTEN,
        ),
    ] = DEFAULT_LISTEN
    allowed_hosts: Annotated[
        tuple[str, ...],
        list_key(
            check_host,
            "list of host names",
            "Names accepted in the header `Host`, beside addresses and this machine's name: for example a reverse "
            "proxy's. On loopback other names get 421; on other addresses every name is accepted while this list is "
            "empty.",
            "[watch.example.com]",
        ),
    ] = ()
    web_config_file: Annotated[
        str | None,
        path_key(
            "A file with TLS, client certificates and passwords: see [The web configuration file]"
            "(#the-web-configuration-file).",
            "/etc/vllm-watch/web.yml",
        ),
    ] = None
    checkpoint: Annotated[
        str | None,
        path_key(
            "Where the position in each log is kept, and what is known of each server. Without it a restart continues "
            "at the end of the log.",
            "/var/lib/vllm-watch/checkpoint.json",
        ),
    ] = None
    links: Annotated[
        LinksConfig,
        section_key(
            LinksConfig,
            "Links of all servers, which dashboards and the status page show beside what happened. A server that "
            "cannot fill a placeholder of one does not have it.",
            "{gpu: '/d/Oxed_c6Wz?var-instance={host}:9400&from={from}&to={to}'}",
        ),
    ] = LinksConfig()
    prometheus: Annotated[
        PrometheusConfig | None,
        section_key(
            PrometheusConfig,
            "The Prometheus that evaluates vllm-watch's rules: the status page and the snapshot show its alerts. The "
            "URL alone is enough. See [Alerts of a Prometheus](#alerts-of-a-prometheus).",
            "http://127.0.0.1:9090",
            expects="URL or mapping",
            alone="url",
        ),
    ] = None
    otlp: Annotated[
        OtlpConfig | None,
        section_key(
            OtlpConfig,
            "Pushes all series over OTLP, as /metrics shows them at that moment; needs the extra `otlp`. The URL alone "
            "is enough. See [Pushing over OTLP](#pushing-over-otlp).",
            "http://127.0.0.1:4318",
            expects="URL or mapping",
            alone="endpoint",
        ),
    ] = None
    gpu: Annotated[
        GpuConfig,
        section_key(
            GpuConfig,
            "How this machine's GPUs are read: see [GPUs](#gpus). `off` reads neither the driver nor the kernel's "
            "messages.",
            "{interval: 10s}",
            expects="`off` or mapping",
            alone=_gpu_off,
        ),
    ] = GpuConfig()
    kubernetes: Annotated[
        KubernetesConfig | None,
        section_key(
            KubernetesConfig,
            "Pods of a Kubernetes namespace to watch, each as a server: see [Pods](#pods). It needs the extra "
            "`kubernetes`.",
            "{selector: app=vllm}",
        ),
    ] = None
    servers: Annotated[
        tuple[ServerConfig, ...],
        Key(
            _read_servers,
            "list of mappings",
            "The servers, at least one. The file needs `servers`, `servers_dir` or `kubernetes`; it may have all "
            "three.",
            "[{name: qwen, log: /var/log/vllm/vllm.log}]",
            ServerConfig,
        ),
    ] = ()
    servers_dir: Annotated[
        str | None,
        path_key(
            "A folder in which each `*.yml` is one server, with the keys of one item of `servers`. Hidden files and "
            "other endings are not read. The folder may be empty but not missing.",
            "/etc/vllm-watch/servers.d",
        ),
    ] = None
    files: Mapping[str, str] = MappingProxyType({})

    @property
    def host(self) -> str:
        """The address to listen on; empty means all interfaces."""
        return parse_listen(self.listen).host

    @property
    def port(self) -> int:
        """The port to listen on; 0 means any that is free."""
        return parse_listen(self.listen).port
