# SPDX-License-Identifier: Apache-2.0
"""
One server of the configuration, as frozen values: what to watch, and the key of the file for each value.

A field has its key, with its bounds and what the reference writes, in its annotation; `checked` has what must fit
together. Times are in seconds. Secrets are never in a configuration, only the names of the files that hold them.
"""

from __future__ import annotations

import re

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from vllm_watch.daemon.catalog.codes import STALL_SECONDS
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.config.keys import (
    Key,
    Mistakes,
    Section,
    duration_key,
    fitting_timeout,
    number_key,
    path_key,
    read_each,
    read_path,
    read_section,
    section_key,
    text_key,
    value_key,
)
from vllm_watch.daemon.config.links import fill_link, missing_places, parse_link, place_values
from vllm_watch.daemon.config.texts import (
    COMPLETIONS_PATH,
    check_model,
    check_name,
    check_unit,
    parse_completions_url,
    parse_gpu,
    parse_peak_flops,
    parse_url,
    quote,
)
from vllm_watch.daemon.config.yaml_node import ConfigNode, read_yaml
from vllm_watch.daemon.support.errors import ConfigError
from vllm_watch_parsers.command_facts import CommandFacts


RESERVED_LABELS = frozenset(
    {"le", *(label for series in SERIES.values() if series.labels[:1] != ("gpu",) for label in series.labels)}
)
"""
Labels of vllm-watch's own series. In a server's `labels` they would replace those of every server's series.

Series of a GPU have none of a server's labels: those that only they have stay free.
"""

MAX_COST_PER_HOUR = 1e6
MAX_TOKENS_PER_SECOND = 1e9

_LABEL = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,127}")
_NEEDED = {
    "unit": "a log with a journal, whose unit has no backslash in its name",
    "host": "metrics, whose host is a name or an IPv4 address",
}
"""What a server must have to fill a placeholder of a link; each has a name."""


class TlsConfig(Section, frozen=True):
    """Files in PEM format: authorities to trust, and the client certificate to present."""

    ca_file: Annotated[
        str | None,
        path_key("Authorities to trust instead of the usual ones, in PEM format.", "/etc/vllm-watch/ca.pem"),
    ] = None
    cert_file: Annotated[
        str | None, path_key("The client certificate to present, in PEM format.", "/etc/vllm-watch/client.pem")
    ] = None
    key_file: Annotated[
        str | None,
        path_key("The private key of `cert_file`, in PEM format, unencrypted.", "/etc/vllm-watch/client.key"),
    ] = None

    def checked(self, node: ConfigNode) -> TlsConfig:
        """Return the section if its key has a certificate."""
        if self.key_file is not None and self.cert_file is None:
            raise node.error("key_file needs cert_file")
        return self


def tls_key() -> Key:
    """Return the key of files for TLS."""
    return section_key(
        TlsConfig,
        "How the server is verified and what it is shown, for an `https` URL.",
        "{ca_file: /etc/vllm-watch/ca.pem}",
    )


class MetricsConfig(Section, frozen=True):
    """A vLLM's /metrics; `timeout` limits a whole scrape and is never longer than `interval`."""

    url: Annotated[
        str,
        text_key(
            parse_url,
            "URL",
            "vLLM's /metrics, or that of the Ray agent on its node. Without a path it is `/metrics`. A user name or "
            "password in the URL is an error.",
            "http://127.0.0.1:8000/metrics",
        ),
    ]
    interval: Annotated[
        float, duration_key("500ms", "60s", "The time from the start of one scrape to the start of the next.", "5s")
    ] = 5.0
    timeout: Annotated[
        float,
        duration_key(
            "100ms",
            "60s",
            "The limit for one whole scrape, however slowly the answer arrives. Not longer than `interval`; "
            "if only `interval` is given and is shorter than 4s, it is 0.8 times `interval`.",
            "4s",
        ),
    ] = 4.0
    bearer_token_file: Annotated[
        str | None,
        path_key(
            "A file with the token to send as `Authorization: Bearer`. It is read for each scrape.",
            "/etc/vllm-watch/token",
        ),
    ] = None
    tls: Annotated[TlsConfig | None, tls_key()] = None

    def checked(self, node: ConfigNode) -> MetricsConfig:
        """Return the section with a timeout that is no longer than the interval."""
        timeout = fitting_timeout(
            self.timeout, node, self.interval, f"the interval of {self.interval:g}s", 0.8 * self.interval
        )
        return msgspec.structs.replace(self, timeout=timeout)


class ProbeConfig(Section, frozen=True):
    """
    A completion of one token, requested at intervals; `timeout` is never longer than `every`.

    `url` is the endpoint for completions; without it, the default path on the host and port of /metrics. `model` is the
    model to request; without it, the name that the server itself gives.
    """

    every: Annotated[
        float,
        duration_key("10s", "1h", "The time from one probe to the next; after failures up to 5 minutes.", "60s"),
    ] = 60.0
    timeout: Annotated[
        float,
        duration_key(
            "1s", "5m", "The limit for one whole probe. Not longer than `every`, which also limits the default.", "20s"
        ),
    ] = 20.0
    api_key_file: Annotated[
        str | None,
        path_key(
            "A file with vLLM's `--api-key`, sent as `Authorization: Bearer` to the probed host only.",
            "/etc/vllm-watch/api-key",
        ),
    ] = None
    model: Annotated[
        str | None,
        text_key(
            check_model,
            "text",
            "The model to ask for. Without it: the name that /metrics, the log or `/v1/models` gives.",
            "Qwen3.6-27B",
        ),
    ] = None
    url: Annotated[
        str | None,
        text_key(
            parse_completions_url,
            "URL",
            f"Where completions are requested. Without it: `{COMPLETIONS_PATH}` on the host and port of `metrics`.",
            f"http://127.0.0.1:8000{COMPLETIONS_PATH}",
        ),
    ] = None

    def checked(self, node: ConfigNode) -> ProbeConfig:
        """Return the section with a timeout that is no longer than the time from one probe to the next."""
        timeout = fitting_timeout(
            self.timeout, node, self.every, f"the {self.every:g}s from one probe to the next", self.every
        )
        return msgspec.structs.replace(self, timeout=timeout)


class SloConfig(Section, frozen=True):
    """The latencies that users of a server should get."""

    time_to_first_token: Annotated[
        float, duration_key("1ms", "1h", "The longest acceptable time to the first token.", "500ms")
    ]
    time_per_output_token: Annotated[
        float, duration_key("1ms", "1h", "The longest acceptable time per output token.", "50ms")
    ]


SLO_PRESETS = {
    "chat": SloConfig(time_to_first_token=0.5, time_per_output_token=0.05),
    "batch": SloConfig(time_to_first_token=2.0, time_per_output_token=0.1),
}


def _preset_of_slo(node: ConfigNode) -> SloConfig:
    name = node.text()
    if name not in SLO_PRESETS:
        fields = " and ".join(SloConfig.__struct_fields__)
        raise node.error(f"expected {', '.join(SLO_PRESETS)} or a mapping of {fields}, got {quote(name)}")
    return SLO_PRESETS[name]


class JournalConfig(Section, frozen=True):
    """A log in systemd's journal: the name of the unit that writes it."""

    journal: Annotated[
        str,
        text_key(check_unit, "name of a unit", "The systemd unit whose journal is vLLM's log.", "vllm.service"),
    ]


def _read_log(node: ConfigNode) -> str | None:
    """Read a path. A mapping has none; it is checked here, and `_journal_of` takes its value."""
    if node.is_mapping:
        read_section(node, JournalConfig)
        return None
    return read_path(node)


def _journal_of(server: ConfigNode) -> str | None:
    """Return the unit that a server's log names instead of a path."""
    log = server.mapping().get("log")
    return None if log is None or not log.is_mapping else read_section(log, JournalConfig).journal


class CapacityConfig(Section, frozen=True):
    """
    What a benchmark has measured of a server, all its engines together, in tokens per second.

    The bounds are 10 % below and above where they are not given. `benchmark` says which one it was.
    """

    tokens_per_second: Annotated[
        float,
        number_key(
            MAX_TOKENS_PER_SECOND, "Tokens that the server generated per second, all engines together.", "18700"
        ),
    ]
    lower: Annotated[
        float | None,
        number_key(MAX_TOKENS_PER_SECOND, "The lower bound; without it 10 % below `tokens_per_second`.", "17800"),
    ] = None
    upper: Annotated[
        float | None,
        number_key(MAX_TOKENS_PER_SECOND, "The upper bound; without it 10 % above `tokens_per_second`.", "19700"),
    ] = None
    prompt_tokens_per_second: Annotated[
        float | None,
        number_key(
            MAX_TOKENS_PER_SECOND, "Prompt tokens that it computed per second meanwhile, without cached ones.", "74900"
        ),
    ] = None
    benchmark: Annotated[
        str | None,
        text_key(str, "text", "Which benchmark it was; for whoever reads this file.", "bench-2026-11.json"),
    ] = None

    def checked(self, node: ConfigNode) -> CapacityConfig:
        """Return the section if its bounds are around what was measured."""
        values, measured = node.mapping(), self.tokens_per_second
        if self.lower is not None and self.lower > measured:
            raise values["lower"].error(f"{values['lower'].written()} is more than tokens_per_second")
        if self.upper is not None and self.upper < measured:
            raise values["upper"].error(f"{values['upper'].written()} is less than tokens_per_second")
        return self


def _capacity_of_file(node: ConfigNode) -> CapacityConfig:
    path = read_path(node)
    try:
        mapping = read_yaml(path)
    except ConfigError as error:
        raise node.error("; ".join(error.messages)) from None
    return read_section(mapping, CapacityConfig)


class LinksConfig(Section, frozen=True):
    """URLs of a server's logs and of its GPUs, with placeholders (`vllm_watch.daemon.config.links`)."""

    logs: Annotated[
        str | None,
        text_key(
            parse_link,
            "URL or path of Grafana",
            "Where the server's log can be read: see [Links to logs and GPUs](#links-to-logs-and-gpus).",
            "/explore?schemaVersion=1&panes=%7B%22a%22:%7B%22datasource%22:%22loki%22,%22queries%22:%5B%7B%22refId%22:%22A%22,"
            "%22expr%22:%22%7Bunit%3D%60{unit}%60%7D%22%7D%5D,%22range%22:%7B%22from%22:%22{from}%22,%22to%22:%22{to}%22%7D%7D%7D",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        text_key(
            parse_link,
            "URL or path of Grafana",
            "A dashboard of the server's GPUs: see [Links to logs and GPUs](#links-to-logs-and-gpus).",
            "/d/Oxed_c6Wz?var-instance={host}:9400&from={from}&to={to}",
        ),
    ] = None

    def given(self) -> Mapping[str, str]:
        """Return the links that there are, by what they lead to."""
        return {name: link for name, link in msgspec.structs.asdict(self).items() if link is not None}


def _read_gpus(node: ConfigNode) -> tuple[str, ...]:
    gpus = read_each(node.items(), lambda gpu: gpu.parsed(gpu.written(), parse_gpu))
    if not gpus:
        raise node.error("needs at least one GPU; without this key the server's processes tell")
    for gpu in gpus:
        if gpus.count(gpu) > 1:
            raise node.error(f"{gpu} is there twice")
    return tuple(gpus)


def read_labels(node: ConfigNode, parse: Callable[[str], str] = str) -> Mapping[str, str]:
    """Read a mapping whose keys are labels of series; `parse` reads each value."""

    def read(item: tuple[str, ConfigNode]) -> tuple[str, str]:
        name, value = item
        if _LABEL.fullmatch(name) is None:
            raise node.error(
                f"{quote(name)} is not a label name: letters, digits and _, no digit or __ first", value.line
            )
        if name in RESERVED_LABELS:
            raise node.error(f'"{name}" is a label of vllm-watch itself', value.line)
        return name, value.parsed(value.text(), parse)

    return MappingProxyType(dict(read_each(node.mapping().items(), read)))


class ServerConfig(Section, frozen=True):
    """
    One vLLM server with a log, metrics or both.

    The log is either `log`, an absolute path or glob, or `journal`, a unit's name. `links` has the daemon's where the
    server has none of its own. `gpus` are UUIDs, numbers or PCI addresses of the GPUs that it uses; empty where its
    processes tell. `cost_per_hour` is in any currency, `peak_flops` in operations per second of one device. `command`
    has the facts from the command line of a discovered server; it is not a key of the file.
    """

    name: Annotated[
        str,
        text_key(
            check_name,
            "1 to 128 letters, digits or any of `. _ : / -`",
            "The label `server` of every series, unique in the daemon. In a file of `servers_dir` the default is the "
            "file's name without `.yml`.",
            "qwen",
        ),
    ]
    log: Annotated[
        str | None,
        Key(
            _read_log,
            "path, glob or mapping",
            "vLLM's log: a file, a glob whose matches are all read, or the journal of a unit. Files of Docker "
            "(json-file) and Kubernetes (CRI) are recognised. A server needs `log`, `metrics` or both.",
            "/var/log/vllm/vllm.log",
            JournalConfig,
        ),
    ] = None
    journal: str | None = None
    metrics: Annotated[
        MetricsConfig | None,
        section_key(
            MetricsConfig,
            "vLLM's /metrics. The URL alone is enough.",
            "http://127.0.0.1:8000/metrics",
            expects="URL or mapping",
            alone="url",
        ),
    ] = None
    probe: Annotated[
        ProbeConfig | None,
        section_key(
            ProbeConfig,
            "A completion of one token, requested at intervals. Without this key there are no probes; `{}` has all "
            "defaults. It needs `metrics` or a `url` of its own.",
            "{every: 60s}",
        ),
    ] = None
    slo: Annotated[
        SloConfig | None,
        section_key(
            SloConfig,
            "The latencies that users of this server should get. Alerts about latency need it. "
            + "; ".join(
                f"`{name}` is {slo.time_to_first_token:g}s and {slo.time_per_output_token:g}s"
                for name, slo in SLO_PRESETS.items()
            )
            + ".",
            "chat",
            expects=f"{', '.join(f'`{name}`' for name in SLO_PRESETS)} or mapping",
            alone=_preset_of_slo,
        ),
    ] = None
    capacity: Annotated[
        CapacityConfig | None,
        section_key(
            CapacityConfig,
            "How many tokens per second the server sustains, by a benchmark: the basis `bench` of its capacity. "
            "`vllm-watch report --save-capacity FILE` writes such a file.",
            "{tokens_per_second: 18700}",
            expects="mapping, or path of a file that holds it",
            alone=_capacity_of_file,
        ),
    ] = None
    links: Annotated[
        LinksConfig,
        section_key(
            LinksConfig,
            "Links of this server's own, with the keys of the file's `links`, which they replace one by one. A "
            "placeholder that the server cannot fill is an error.",
            "{logs: 'https://logs.example.com/?host={host}&from={from}&to={to}'}",
        )._replace(section=None),
    ] = LinksConfig()
    gpus: Annotated[
        tuple[str, ...],
        Key(
            _read_gpus,
            "list of UUIDs, numbers or PCI addresses",
            "The GPUs that the server uses, where its processes do not tell: see [GPUs](#gpus). Numbers are those of "
            "`nvidia-smi`; a UUID needs no driver here.",
            "[GPU-5ac2e1b4-0c7e-4d3a-9f1b-2a3b4c5d6e7f]",
        ),
    ] = ()
    cost_per_hour: Annotated[
        float | None,
        number_key(
            MAX_COST_PER_HOUR,
            "What the server costs in an hour, in any currency. The cost of a million tokens is computed from it.",
            "12.50",
        ),
    ] = None
    peak_flops: Annotated[
        float | None,
        value_key(
            parse_peak_flops,
            "number",
            "How many floating point operations per second a device of the server does at most, at the precision that "
            "the model runs in, without sparsity. With `--enable-mfu-metrics` `flops_utilization_ratio` is computed "
            "from it.",
            "989e12",
        ),
    ] = None
    labels: Annotated[
        Mapping[str, str],
        Key(
            read_labels,
            "mapping of label names to texts",
            "Labels added to every series of this server. Names of vllm-watch's own labels are rejected.",
            "{team: search}",
        ),
    ] = MappingProxyType({})
    stall_after: Annotated[
        float,
        duration_key(
            "5s", "1h", "How long nothing may move, while there is work, before an engine is called stalled.", "30s"
        ),
    ] = STALL_SECONDS
    command: CommandFacts = CommandFacts()

    def checked(self, node: ConfigNode) -> ServerConfig:
        """Return the server with its journal if it has a source, and what its probe and its links need."""
        server = msgspec.structs.replace(self, journal=_journal_of(node))
        if not server.has_log and server.metrics is None:
            raise node.error("needs log, metrics or both")
        if server.probe is not None and server.probe_url is None:
            raise node.mapping()["probe"].error("needs the server's metrics, or a url of its own")
        mistakes = Mistakes()
        for name, link in server.links.given().items():
            for place in missing_places(link, server.places):
                with mistakes.collect():
                    raise node.mapping()["links"].mapping()[name].error(f"{{{place}}} needs {_NEEDED[place]}")
        mistakes.check()
        return server

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

    @property
    def places(self) -> Mapping[str, str]:
        """What the server has for placeholders of links."""
        host = urlsplit(self.metrics.url).hostname if self.metrics is not None else None
        return place_values({"server": self.name, "unit": self.journal, "host": host})


def with_default_links(server: ServerConfig, default: LinksConfig) -> ServerConfig:
    """Return a server with the daemon's links where it has none of its own and can fill their placeholders."""
    usable = {name: link for name, link in default.given().items() if not missing_places(link, server.places)}
    return msgspec.structs.replace(server, links=LinksConfig(**{**usable, **server.links.given()}))


def filled_links(server: ServerConfig) -> Mapping[str, str]:
    """Return a server's links by what they lead to, with only the placeholders of the time left."""
    places = server.places
    return MappingProxyType({name: fill_link(link, places) for name, link in server.links.given().items()})
