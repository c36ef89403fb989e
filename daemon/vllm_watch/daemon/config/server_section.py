# SPDX-License-Identifier: Apache-2.0
"""The section of one server: its keys, how they are read, and which of them belong together."""

from __future__ import annotations

import re

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.config.gpu_section import COST_PER_HOUR, GPUS, PEAK_FLOPS
from vllm_watch.daemon.config.links import missing_places, parse_link
from vllm_watch.daemon.config.model import (
    SLO_PRESETS,
    CapacityConfig,
    JournalConfig,
    LinksConfig,
    MetricsConfig,
    ProbeConfig,
    ServerConfig,
    SloConfig,
    TlsConfig,
)
from vllm_watch.daemon.config.quoting import quote
from vllm_watch.daemon.config.section import Key, Section, duration_key, path_key, read_each, read_path, read_section
from vllm_watch.daemon.config.texts import COMPLETIONS_PATH, check_name, check_unit, parse_url
from vllm_watch.daemon.config.yaml_node import ConfigNode, read_yaml
from vllm_watch.daemon.support.errors import ConfigError


RESERVED_LABELS = frozenset(
    {"le", *(label for series in SERIES.values() if series.labels[:1] != ("gpu",) for label in series.labels)}
)
"""
Labels of vllm-watch's own series. In a server's `labels` they would replace those of every server's series.

Series of a GPU have none of a server's labels: those that only they have stay free.
"""

MAX_TOKENS_PER_SECOND = 1e9
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,12})?", re.ASCII)
_LABEL = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,127}")


def _read_name(node: ConfigNode) -> str:
    return node.parsed(node.text(), check_name)


def _read_url(node: ConfigNode) -> str:
    return node.parsed(node.text(), parse_url)


def _read_completions_url(node: ConfigNode) -> str:
    return node.parsed(node.text(), lambda text: parse_url(text, path=COMPLETIONS_PATH, instead="api_key_file"))


def _read_model(node: ConfigNode) -> str:
    name = node.text()
    if not name.strip():
        raise node.error(f"expected a model's name, got {quote(name)}")
    return name


def _read_words(node: ConfigNode) -> str:
    return node.text()


def _read_log(node: ConfigNode) -> str | None:
    """Read a path. A mapping has none; it is checked here, and `_journal_of` takes its value."""
    if node.is_mapping:
        _read_journal(node)
        return None
    return read_path(node)


def _read_journal(node: ConfigNode) -> str:
    return read_section(node, JournalConfig, _JOURNAL).journal


def _journal_of(server: ConfigNode) -> str | None:
    """Return the unit that a server's log names instead of a path."""
    log = server.mapping().get("log")
    return None if log is None or not log.is_mapping else _read_journal(log)


def _read_unit(node: ConfigNode) -> str:
    return node.parsed(node.text(), check_unit)


def _read_tls(node: ConfigNode) -> TlsConfig:
    tls = read_section(node, TlsConfig, _TLS)
    if tls.key_file is not None and tls.cert_file is None:
        raise node.error("key_file needs cert_file")
    return tls


def _read_metrics(node: ConfigNode) -> MetricsConfig:
    """Read a mapping, or the URL alone."""
    if not node.is_mapping:
        return MetricsConfig(url=_read_url(node))
    return _with_timeout(node, read_section(node, MetricsConfig, _METRICS))


def read_scrapes(node: ConfigNode) -> MetricsConfig:
    """Read how servers are scraped whose URLs are not in the file; the one here is empty."""
    return _with_timeout(node, read_section(node, MetricsConfig, SCRAPES, {"url": ""}))


def _with_timeout(node: ConfigNode, metrics: MetricsConfig) -> MetricsConfig:
    """Return what was read, with a timeout that is no longer than the interval."""
    if metrics.timeout <= metrics.interval:
        return metrics
    timeout = node.mapping().get("timeout")
    if timeout is not None:
        raise timeout.error(f"{timeout.written()} is longer than the interval of {metrics.interval:g}s")
    return msgspec.structs.replace(metrics, timeout=0.8 * metrics.interval)


def _read_probe(node: ConfigNode) -> ProbeConfig:
    probe = read_section(node, ProbeConfig, _PROBE)
    if probe.timeout <= probe.every:
        return probe
    timeout = node.mapping().get("timeout")
    if timeout is not None:
        raise timeout.error(f"{timeout.written()} is longer than the {probe.every:g}s from one probe to the next")
    return msgspec.structs.replace(probe, timeout=probe.every)


def _read_slo(node: ConfigNode) -> SloConfig:
    """Read a mapping, or the name of a preset."""
    if node.is_mapping:
        return read_section(node, SloConfig, _SLO)
    name = node.text()
    if name not in SLO_PRESETS:
        fields = " and ".join(SloConfig.__struct_fields__)
        raise node.error(f"expected {', '.join(SLO_PRESETS)} or a mapping of {fields}, got {quote(name)}")
    return SLO_PRESETS[name]


def read_capacity(node: ConfigNode) -> CapacityConfig:
    """Read a mapping, or the path of a file that holds it."""
    mapping = node if node.is_mapping else _read_file(node)
    capacity = read_section(mapping, CapacityConfig, CAPACITY)
    values, measured = mapping.mapping(), capacity.tokens_per_second
    if capacity.lower is not None and capacity.lower > measured:
        raise values["lower"].error(f"{values['lower'].written()} is more than tokens_per_second")
    if capacity.upper is not None and capacity.upper < measured:
        raise values["upper"].error(f"{values['upper'].written()} is less than tokens_per_second")
    return capacity


def _read_file(node: ConfigNode) -> ConfigNode:
    """Return what is in the file that a value names."""
    path = read_path(node)
    try:
        return read_yaml(path)
    except ConfigError as error:
        raise node.error("; ".join(error.messages)) from None


def _read_tokens(node: ConfigNode) -> float:
    """Read a number of tokens per second."""
    text = node.written()
    if _NUMBER.fullmatch(text) is None or not 0 < float(text) <= MAX_TOKENS_PER_SECOND:
        raise node.error(f"expected a number above 0, up to {MAX_TOKENS_PER_SECOND:,.0f}, got {quote(text)}")
    return float(text)


def _tokens_key(meaning: str, example: str) -> Key:
    return Key(_read_tokens, "number", meaning, example)


def _read_link(node: ConfigNode) -> str:
    return node.parsed(node.text(), parse_link)


def read_links(node: ConfigNode) -> LinksConfig:
    """Read the links of a server, or those of all servers."""
    return read_section(node, LinksConfig, LINKS)


def _check_links(node: ConfigNode, server: ServerConfig) -> None:
    """Raise `ConfigError` for a link of the server's own that it cannot fill."""
    links = node.mapping().get("links")

    def check(item: tuple[str, ConfigNode]) -> None:
        name, link = item
        for place in missing_places(getattr(server.links, name), server):
            raise link.error(f"{{{place}}} needs {_NEEDED[place]}")

    read_each(links.mapping().items() if links is not None else (), check)


def read_labels(node: ConfigNode, read_value: Callable[[ConfigNode], str] = _read_words) -> Mapping[str, str]:
    """Read a mapping whose keys are labels of series; `read_value` reads each value."""

    def read(item: tuple[str, ConfigNode]) -> tuple[str, str]:
        name, value = item
        if _LABEL.fullmatch(name) is None:
            raise node.error(
                f"{quote(name)} is not a label name: letters, digits and _, no digit or __ first", value.line
            )
        if name in RESERVED_LABELS:
            raise node.error(f'"{name}" is a label of vllm-watch itself', value.line)
        return name, read_value(value)

    return dict(read_each(node.mapping().items(), read))


def read_server(node: ConfigNode, otherwise: Mapping[str, object] = MappingProxyType({})) -> ServerConfig:
    """Read one server; `otherwise` has the values of keys that are not given."""
    server = read_section(node, ServerConfig, SERVER_KEYS, otherwise)
    journal = _journal_of(node)
    if server.log is None and journal is None and server.metrics is None:
        raise node.error("needs log, metrics or both")
    if server.probe is not None and server.probe_url is None:
        raise node.mapping()["probe"].error("needs the server's metrics, or a url of its own")
    server = msgspec.structs.replace(server, journal=journal, labels=MappingProxyType(dict(server.labels)))
    _check_links(node, server)
    return server


_TLS = {
    "ca_file": path_key("Authorities to trust instead of the usual ones, in PEM format.", "/etc/vllm-watch/ca.pem"),
    "cert_file": path_key("The client certificate to present, in PEM format.", "/etc/vllm-watch/client.pem"),
    "key_file": path_key("The private key of `cert_file`, in PEM format, unencrypted.", "/etc/vllm-watch/client.key"),
}
TLS = Key(
    _read_tls,
    "mapping",
    "How the server is verified and what it is shown, for an `https` URL.",
    "{ca_file: /etc/vllm-watch/ca.pem}",
    Section(TlsConfig, _TLS),
)
_JOURNAL = {
    "journal": Key(_read_unit, "name of a unit", "The systemd unit whose journal is vLLM's log.", "vllm.service"),
}
_METRICS = {
    "url": Key(
        _read_url,
        "URL",
        "vLLM's /metrics, or that of the Ray agent on its node. Without a path it is `/metrics`. A user name or "
        "password in the URL is an error.",
        "http://127.0.0.1:8000/metrics",
    ),
    "interval": duration_key("500ms", "60s", "The time from the start of one scrape to the start of the next.", "5s"),
    "timeout": duration_key(
        "100ms",
        "60s",
        "The limit for one whole scrape, however slowly the answer arrives. Not longer than `interval`; "
        "if only `interval` is given and is shorter than 4s, it is 0.8 times `interval`.",
        "4s",
    ),
    "bearer_token_file": path_key(
        "A file with the token to send as `Authorization: Bearer`. It is read for each scrape.", "/etc/vllm-watch/token"
    ),
    "tls": TLS,
}
SCRAPES = {name: key for name, key in _METRICS.items() if name != "url"}
"""The keys of scrapes of servers whose URLs are found elsewhere."""

_PROBE = {
    "every": duration_key("10s", "1h", "The time from one probe to the next; after failures up to 5 minutes.", "60s"),
    "timeout": duration_key(
        "1s",
        "5m",
        "The limit for one whole probe. Not longer than `every`, which also limits the default.",
        "20s",
    ),
    "api_key_file": path_key(
        "A file with vLLM's `--api-key`, sent as `Authorization: Bearer` to the probed host only.",
        "/etc/vllm-watch/api-key",
    ),
    "model": Key(
        _read_model,
        "text",
        "The model to ask for. Without it: the name that /metrics, the log or `/v1/models` gives.",
        "Qwen3.6-27B",
    ),
    "url": Key(
        _read_completions_url,
        "URL",
        f"Where completions are requested. Without it: `{COMPLETIONS_PATH}` on the host and port of `metrics`.",
        f"http://127.0.0.1:8000{COMPLETIONS_PATH}",
    ),
}
_SLO = {
    "time_to_first_token": duration_key("1ms", "1h", "The longest acceptable time to the first token.", "500ms"),
    "time_per_output_token": duration_key("1ms", "1h", "The longest acceptable time per output token.", "50ms"),
}
CAPACITY = {
    "tokens_per_second": _tokens_key("Tokens that the server generated per second, all engines together.", "18700"),
    "lower": _tokens_key("The lower bound; without it 10 % below `tokens_per_second`.", "17800"),
    "upper": _tokens_key("The upper bound; without it 10 % above `tokens_per_second`.", "19700"),
    "prompt_tokens_per_second": _tokens_key(
        "Prompt tokens that it computed per second meanwhile, without cached ones.", "74900"
    ),
    "benchmark": Key(_read_words, "text", "Which benchmark it was; for whoever reads this file.", "bench-2026-11.json"),
}
_NEEDED = {
    "unit": "a log with a journal, whose unit has no backslash in its name",
    "host": "metrics, whose host is a name or an IPv4 address",
}
"""What a server must have to fill a placeholder; each has a name."""

LINKS = {
    "logs": Key(
        _read_link,
        "URL or path of Grafana",
        "Where the server's log can be read: see [Links to logs and GPUs](#links-to-logs-and-gpus).",
        "/explore?schemaVersion=1&panes=%7B%22a%22:%7B%22datasource%22:%22loki%22,%22queries%22:%5B%7B%22refId%22:%22A%22,"
        "%22expr%22:%22%7Bunit%3D%60{unit}%60%7D%22%7D%5D,%22range%22:%7B%22from%22:%22{from}%22,%22to%22:%22{to}%22%7D%7D%7D",
    ),
    "gpu": Key(
        _read_link,
        "URL or path of Grafana",
        "A dashboard of the server's GPUs: see [Links to logs and GPUs](#links-to-logs-and-gpus).",
        "/d/Oxed_c6Wz?var-instance={host}:9400&from={from}&to={to}",
    ),
}

SERVER_KEYS = {
    "name": Key(
        _read_name,
        "1 to 128 letters, digits or any of `. _ : / -`",
        "The label `server` of every series, unique in the daemon. In a file of `servers_dir` the default is the "
        "file's name without `.yml`.",
        "qwen",
    ),
    "log": Key(
        _read_log,
        "path, glob or mapping",
        "vLLM's log: a file, a glob whose matches are all read, or the journal of a unit. Files of Docker (json-file) "
        "and Kubernetes (CRI) are recognised. A server needs `log`, `metrics` or both.",
        "/var/log/vllm/vllm.log",
        Section(JournalConfig, _JOURNAL),
    ),
    "metrics": Key(
        _read_metrics,
        "URL or mapping",
        "vLLM's /metrics. The URL alone is enough.",
        "http://127.0.0.1:8000/metrics",
        Section(MetricsConfig, _METRICS),
    ),
    "probe": Key(
        _read_probe,
        "mapping",
        "A completion of one token, requested at intervals. Without this key there are no probes; `{}` has all "
        "defaults. It needs `metrics` or a `url` of its own.",
        "{every: 60s}",
        Section(ProbeConfig, _PROBE),
    ),
    "slo": Key(
        _read_slo,
        f"{', '.join(f'`{name}`' for name in SLO_PRESETS)} or mapping",
        "The latencies that users of this server should get. Alerts about latency need it. "
        + "; ".join(
            f"`{name}` is {slo.time_to_first_token:g}s and {slo.time_per_output_token:g}s"
            for name, slo in SLO_PRESETS.items()
        )
        + ".",
        "chat",
        Section(SloConfig, _SLO),
    ),
    "capacity": Key(
        read_capacity,
        "mapping, or path of a file that holds it",
        "How many tokens per second the server sustains, by a benchmark: the basis `bench` of its capacity. "
        "`vllm-watch report --save-capacity FILE` writes such a file.",
        "{tokens_per_second: 18700}",
        Section(CapacityConfig, CAPACITY),
    ),
    "links": Key(
        read_links,
        "mapping",
        "Links of this server's own, with the keys of the file's `links`, which they replace one by one. A placeholder "
        "that the server cannot fill is an error.",
        "{logs: 'https://logs.example.com/?host={host}&from={from}&to={to}'}",
    ),
    "gpus": GPUS,
    "cost_per_hour": COST_PER_HOUR,
    "peak_flops": PEAK_FLOPS,
    "labels": Key(
        read_labels,
        "mapping of label names to texts",
        "Labels added to every series of this server. Names of vllm-watch's own labels are rejected.",
        "{team: search}",
    ),
    "stall_after": duration_key(
        "5s", "1h", "How long nothing may move, while there is work, before an engine is called stalled.", "30s"
    ),
}
