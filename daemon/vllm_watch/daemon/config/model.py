# SPDX-License-Identifier: Apache-2.0
"""
The configuration as frozen values: what to watch, and how the daemon serves.

Secrets are never in it, only the names of the files that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

import msgspec

from vllm_watch.daemon.catalog.codes import STALL_SECONDS
from vllm_watch.daemon.config.texts import COMPLETIONS_PATH, DEFAULT_LISTEN, parse_listen
from vllm_watch_parsers.command_facts import CommandFacts


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Files in PEM format: authorities to trust, and the client certificate to present."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A vLLM's /metrics. Times in seconds; `timeout` limits a whole scrape and is never longer than `interval`."""

    url: str
    interval: float = 5.0
    timeout: float = 4.0
    bearer_token_file: str | None = None
    tls: TlsConfig | None = None


class ProbeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    A completion of one token, requested at intervals. Times in seconds; `timeout` is never longer than `every`.

    `url` is the endpoint for completions; without it, the default path on the host and port of /metrics. `model` is the
    model to request; without it, the name that the server itself gives.
    """

    every: float = 60.0
    timeout: float = 20.0
    api_key_file: str | None = None
    model: str | None = None
    url: str | None = None


class SloConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The latencies that users of a server should get, in seconds."""

    time_to_first_token: float
    time_per_output_token: float


class JournalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A log in systemd's journal: the name of the unit that writes it."""

    journal: str


class CapacityConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    What a benchmark has measured of a server, all its engines together, in tokens per second.

    The bounds are 10 % below and above where they are not given. `benchmark` says which one it was.
    """

    tokens_per_second: float
    lower: float | None = None
    upper: float | None = None
    prompt_tokens_per_second: float | None = None
    benchmark: str | None = None


class LinksConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """URLs of a server's logs and of its GPUs, with placeholders (`vllm_watch.daemon.config.links`)."""

    logs: str | None = None
    gpu: str | None = None


class GpuConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    How the machine's GPUs are read. Times in seconds.

    `read` is whether the driver's library is read: ``auto``, if the extra is installed, ``always`` or ``never``.
    `kernel_log` is where Xid messages are read: ``journal``, ``/dev/kmsg`` or ``never``.
    """

    read: str = "auto"
    interval: float = 5.0
    kernel_log: str = "journal"


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    One vLLM server with a log, metrics or both.

    The log is either `log`, an absolute path or glob, or `journal`, a unit's name. `links` has the daemon's where the
    server has none of its own. `gpus` are UUIDs, numbers or PCI addresses of the GPUs that it uses; empty where its
    processes tell. `cost_per_hour` is in any currency, `peak_flops` in operations per second of one device. `command`
    has the facts from the command line of a discovered server; it is not a key of the file.
    """

    name: str
    log: str | None = None
    journal: str | None = None
    metrics: MetricsConfig | None = None
    probe: ProbeConfig | None = None
    slo: SloConfig | None = None
    capacity: CapacityConfig | None = None
    links: LinksConfig = LinksConfig()
    gpus: tuple[str, ...] = ()
    cost_per_hour: float | None = None
    peak_flops: float | None = None
    labels: Mapping[str, str] = MappingProxyType({})
    stall_after: float = STALL_SECONDS
    command: CommandFacts = CommandFacts()

    @property
    def has_log(self) -> bool:
        """Whether there is a log: a file, a glob or a journal."""
        return self.log is not None or self.journal is not None

    @property
    def probe_url(self) -> str | None:
        """The URL of probes, or `None` if there are no probes or their URL is not known."""
        if self.probe is None:
            return None
        if self.probe.url is not None or self.metrics is None:
            return self.probe.url
        return urlsplit(self.metrics.url)._replace(path=COMPLETIONS_PATH, query="", fragment="").geturl()


class PrometheusConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The Prometheus whose alerts are shown; `timeout` limits a whole request, in seconds."""

    url: str
    timeout: float = 5.0
    bearer_token_file: str | None = None
    tls: TlsConfig | None = None


class OtlpConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where the series are pushed over OTLP; `interval` and `timeout` are in seconds."""

    endpoint: str
    interval: float = 60.0
    timeout: float = 10.0
    headers_file: str | None = None
    tls: TlsConfig | None = None


class KubernetesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    The pods that are watched, each a server. Times in seconds.

    `selector` is a label selector as `kubectl --selector` takes it. Without `namespace` it is the pod's own, or that of
    the kubeconfig's context. `port` is a number or the name of a container's port. `pod_labels` maps labels of series
    to labels of pods. The other fields are those of each server; `metrics` has an empty URL.
    """

    selector: str
    namespace: str | None = None
    kubeconfig: str | None = None
    every: float = 10.0
    port: int | str = 8000
    path: str = "/metrics"
    scheme: str = "http"
    pod_labels: Mapping[str, str] = MappingProxyType({})
    metrics: MetricsConfig = MetricsConfig(url="")
    probe: ProbeConfig | None = None
    slo: SloConfig | None = None
    capacity: CapacityConfig | None = None
    cost_per_hour: float | None = None
    labels: Mapping[str, str] = MappingProxyType({})
    stall_after: float = STALL_SECONDS


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    The whole configuration; its paths are absolute.

    `allowed_hosts` are names accepted in the header `Host`, beside addresses and the machine's own names. `servers`
    are those of the list, then those of the folder `servers_dir`; `files` maps the names of the latter to their files.
    `links` are already in the servers.
    """

    listen: str = DEFAULT_LISTEN
    allowed_hosts: tuple[str, ...] = ()
    web_config_file: str | None = None
    checkpoint: str | None = None
    links: LinksConfig = LinksConfig()
    prometheus: PrometheusConfig | None = None
    otlp: OtlpConfig | None = None
    gpu: GpuConfig = GpuConfig()
    kubernetes: KubernetesConfig | None = None
    servers: tuple[ServerConfig, ...] = ()
    servers_dir: str | None = None
    files: Mapping[str, str] = MappingProxyType({})

    @property
    def host(self) -> str:
        """The address to listen on; empty means all interfaces."""
        return parse_listen(self.listen).host

    @property
    def port(self) -> int:
        """The port to listen on; 0 means any that is free."""
        return parse_listen(self.listen).port


SLO_PRESETS = {
    "chat": SloConfig(time_to_first_token=0.5, time_per_output_token=0.05),
    "batch": SloConfig(time_to_first_token=2.0, time_per_output_token=0.1),
}
