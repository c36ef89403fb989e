# SPDX-License-Identifier: Apache-2.0
"""
The whole configuration as frozen values, and the key of the file for each value; its servers are in `server_config`.

Times are in seconds. Secrets are never in a configuration, only the names of the files that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

from vllm_watch.daemon.catalog.codes import STALL_SECONDS
from vllm_watch.daemon.config.keys import (
    Mistakes,
    Reader,
    Section,
    duration_key,
    keys_of,
    list_key,
    read_each,
    read_path,
    read_section,
    section_key,
    text_key,
    value_key,
    with_fitting_timeout,
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
)
from vllm_watch.daemon.config.texts import (
    DEFAULT_LISTEN,
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
from vllm_watch.daemon.support.errors import ConfigError


if TYPE_CHECKING:
    from vllm_watch.daemon.config.yaml_node import ConfigNode


LONGEST_TIMEOUT = "20s"
"""Of a request to a Prometheus."""


class PrometheusConfig(Section, frozen=True):
    """The Prometheus whose alerts are shown; `timeout` limits a whole request."""

    url: Annotated[str, text_key(parse_prometheus_url)]
    timeout: Annotated[float, duration_key("100ms", LONGEST_TIMEOUT)] = 5.0
    bearer_token_file: Annotated[str | None, read_path] = None
    tls: Annotated[TlsConfig | None, section_key(TlsConfig)] = None


class OtlpConfig(Section, frozen=True):
    """Where the series are pushed over OTLP; `timeout` is never longer than `interval`."""

    endpoint: Annotated[str, text_key(parse_otlp_url)]
    interval: Annotated[float, duration_key("5s", "1h")] = 60.0
    timeout: Annotated[float, duration_key("100ms", "60s")] = 10.0
    headers_file: Annotated[str | None, read_path] = None
    tls: Annotated[TlsConfig | None, section_key(TlsConfig)] = None

    def checked(self, node: ConfigNode) -> OtlpConfig:
        """Return the section with a timeout that is no longer than the interval."""
        return with_fitting_timeout(self, node, self.interval, f"the interval of {self.interval:g}s", self.interval)


class GpuConfig(Section, frozen=True):
    """How the machine's GPUs are read."""

    read: Annotated[str, words_key("auto", "always", "never")] = "auto"
    interval: Annotated[float, duration_key("1s", "60s")] = 5.0
    kernel_log: Annotated[str, words_key("journal", "never")] = "journal"


def _gpu_off(node: ConfigNode) -> GpuConfig:
    if node.written() != "off":
        raise node.error(f"expected off or a mapping, got {quote(node.written())}")
    return GpuConfig(read="never", kernel_log="never")


def _as_of_a_server(name: str) -> Reader:
    """Return the reader of a key that is the same for every pod as for a server of the list."""
    return keys_of(ServerConfig)[name]


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

    selector: Annotated[str, text_key(check_selector)]
    namespace: Annotated[str | None, text_key(check_namespace)] = None
    kubeconfig: Annotated[str | None, read_path] = None
    every: Annotated[float, duration_key("5s", "5m")] = 10.0
    port: Annotated[int | str, value_key(parse_port)] = 8000
    path: Annotated[str, text_key(check_url_path)] = "/metrics"
    scheme: Annotated[str, words_key("http", "https")] = "http"
    metrics: Annotated[MetricsConfig, _read_scrapes] = MetricsConfig(url="")
    pod_labels: Annotated[Mapping[str, str], _read_pod_labels] = MappingProxyType({})
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

    listen: Annotated[str, value_key(check_listen)] = DEFAULT_LISTEN
    allowed_hosts: Annotated[tuple[str, ...], list_key(check_host)] = ()
    web_config_file: Annotated[str | None, read_path] = None
    checkpoint: Annotated[str | None, read_path] = None
    links: Annotated[LinksConfig, section_key(LinksConfig)] = LinksConfig()
    prometheus: Annotated[PrometheusConfig | None, section_key(PrometheusConfig, alone="url")] = None
    otlp: Annotated[OtlpConfig | None, section_key(OtlpConfig, alone="endpoint")] = None
    gpu: Annotated[GpuConfig, section_key(GpuConfig, alone=_gpu_off)] = GpuConfig()
    kubernetes: Annotated[KubernetesConfig | None, section_key(KubernetesConfig)] = None
    servers: Annotated[tuple[ServerConfig, ...], _read_servers] = ()
    servers_dir: Annotated[str | None, read_path] = None
    files: Mapping[str, str] = MappingProxyType({})

    @property
    def host(self) -> str:
        """The address to listen on; empty means all interfaces."""
        return parse_listen(self.listen).host

    @property
    def port(self) -> int:
        """The port to listen on; 0 means any that is free."""
        return parse_listen(self.listen).port
