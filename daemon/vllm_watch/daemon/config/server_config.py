# SPDX-License-Identifier: Apache-2.0
"""
One server of the configuration, as frozen values: what to watch, and how each value is read from the file.

A field has the function that reads it, with its bounds, in its annotation; `checked` has what must fit together. Times
are in seconds. Secrets are never in a configuration, only the names of the files that hold them.
"""

from __future__ import annotations

import re

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec

from vllm_watch.daemon.catalog.codes import STALL_SECONDS
from vllm_watch.daemon.catalog.series import SERIES
from vllm_watch.daemon.config.keys import (
    Section,
    duration_key,
    number_key,
    read_each,
    read_path,
    read_section,
    section_key,
    text_key,
    value_key,
    with_fitting_timeout,
)
from vllm_watch.daemon.config.links import fill_link, parse_link, place_values
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
from vllm_watch.daemon.support.errors import ConfigError
from vllm_watch_parsers.flags import CommandFacts


if TYPE_CHECKING:
    from vllm_watch.daemon.config.yaml_node import ConfigNode


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


class TlsConfig(Section, frozen=True):
    """Files in PEM format: authorities to trust, and the client certificate to present."""

    ca_file: Annotated[str | None, read_path] = None
    cert_file: Annotated[str | None, read_path] = None
    key_file: Annotated[str | None, read_path] = None

    def checked(self, node: ConfigNode) -> TlsConfig:
        """Return the section if its key has a certificate."""
        if self.key_file is not None and self.cert_file is None:
            raise node.error("key_file needs cert_file")
        return self


class MetricsConfig(Section, frozen=True):
    """A vLLM's /metrics; `timeout` limits a whole scrape and is never longer than `interval`."""

    url: Annotated[str, text_key(parse_url)]
    interval: Annotated[float, duration_key("500ms", "60s")] = 5.0
    timeout: Annotated[float, duration_key("100ms", "60s")] = 4.0
    bearer_token_file: Annotated[str | None, read_path] = None
    tls: Annotated[TlsConfig | None, section_key(TlsConfig)] = None

    def checked(self, node: ConfigNode) -> MetricsConfig:
        """Return the section with a timeout that is no longer than the interval."""
        return with_fitting_timeout(
            self, node, self.interval, f"the interval of {self.interval:g}s", 0.8 * self.interval
        )


class ProbeConfig(Section, frozen=True):
    """
    A completion of one token, requested at intervals; `timeout` is never longer than `every`.

    `url` is the endpoint for completions; without it, the default path on the host and port of /metrics. `model` is the
    model to request; without it, the name that the server itself gives.
    """

    every: Annotated[float, duration_key("10s", "1h")] = 60.0
    timeout: Annotated[float, duration_key("1s", "5m")] = 20.0
    api_key_file: Annotated[str | None, read_path] = None
    model: Annotated[str | None, text_key(check_model)] = None
    url: Annotated[str | None, text_key(parse_completions_url)] = None

    def checked(self, node: ConfigNode) -> ProbeConfig:
        """Return the section with a timeout that is no longer than the time from one probe to the next."""
        return with_fitting_timeout(
            self, node, self.every, f"the {self.every:g}s from one probe to the next", self.every
        )


class SloConfig(Section, frozen=True):
    """The latencies that users of a server should get."""

    time_to_first_token: Annotated[float, duration_key("1ms", "1h")]
    time_per_output_token: Annotated[float, duration_key("1ms", "1h")]


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

    journal: Annotated[str, text_key(check_unit)]


def _read_log(node: ConfigNode) -> str | None:
    """Read a path. A mapping has none; it is checked here, and `_journal_of` takes its value."""
    if node.is_mapping:
        read_section(node, JournalConfig)
        return None
    return read_path(node)


def _journal_of(server: ConfigNode) -> str | None:
    log = server.mapping().get("log")
    return None if log is None or not log.is_mapping else read_section(log, JournalConfig).journal


class CapacityConfig(Section, frozen=True):
    """
    What a benchmark has measured of a server, all its engines together, in tokens per second.

    The bounds are 10 % below and above where they are not given. `benchmark` says which one it was.
    """

    tokens_per_second: Annotated[float, number_key(MAX_TOKENS_PER_SECOND)]
    lower: Annotated[float | None, number_key(MAX_TOKENS_PER_SECOND)] = None
    upper: Annotated[float | None, number_key(MAX_TOKENS_PER_SECOND)] = None
    prompt_tokens_per_second: Annotated[float | None, number_key(MAX_TOKENS_PER_SECOND)] = None
    benchmark: Annotated[str | None, text_key()] = None

    def checked(self, node: ConfigNode) -> CapacityConfig:
        """Return the section if its bounds are around what was measured."""
        values, measured = node.mapping(), self.tokens_per_second
        if self.lower is not None and self.lower > measured:
            raise values["lower"].error(f"{values['lower'].written()} is more than tokens_per_second")
        if self.upper is not None and self.upper < measured:
            raise values["upper"].error(f"{values['upper'].written()} is less than tokens_per_second")
        return self


def _capacity_of_file(node: ConfigNode) -> CapacityConfig:
    from vllm_watch.daemon.config.yaml_node import read_yaml  # noqa: PLC0415  # Without a file YAML is not needed.

    path = read_path(node)
    try:
        mapping = read_yaml(path)
    except ConfigError as error:
        raise node.error("; ".join(error.messages)) from None
    return read_section(mapping, CapacityConfig)


class LinksConfig(Section, frozen=True):
    """URLs of a server's logs and of its GPUs, with placeholders (`vllm_watch.daemon.config.links`)."""

    logs: Annotated[str | None, text_key(parse_link)] = None
    gpu: Annotated[str | None, text_key(parse_link)] = None

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

    name: Annotated[str, text_key(check_name)]
    log: Annotated[str | None, _read_log] = None
    journal: str | None = None
    metrics: Annotated[MetricsConfig | None, section_key(MetricsConfig, alone="url")] = None
    probe: Annotated[ProbeConfig | None, section_key(ProbeConfig)] = None
    slo: Annotated[SloConfig | None, section_key(SloConfig, alone=_preset_of_slo)] = None
    capacity: Annotated[CapacityConfig | None, section_key(CapacityConfig, alone=_capacity_of_file)] = None
    links: Annotated[LinksConfig, section_key(LinksConfig)] = LinksConfig()
    gpus: Annotated[tuple[str, ...], _read_gpus] = ()
    cost_per_hour: Annotated[float | None, number_key(MAX_COST_PER_HOUR)] = None
    peak_flops: Annotated[float | None, value_key(parse_peak_flops)] = None
    labels: Annotated[Mapping[str, str], read_labels] = MappingProxyType({})
    stall_after: Annotated[float, duration_key("5s", "1h")] = STALL_SECONDS
    command: CommandFacts = CommandFacts()

    def checked(self, node: ConfigNode) -> ServerConfig:
        """Return the server with its journal if it has a source, and what its probe needs."""
        server = msgspec.structs.replace(self, journal=_journal_of(node))
        if not server.has_log and server.metrics is None:
            raise node.error("needs log, metrics or both")
        if server.probe is not None and server.probe_url is None:
            raise node.mapping()["probe"].error("needs the server's metrics, or a url of its own")
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


def with_default_links(server: ServerConfig, default: LinksConfig) -> ServerConfig:
    """Return a server with the daemon's links where it has none of its own."""
    return msgspec.structs.replace(server, links=LinksConfig(**{**default.given(), **server.links.given()}))


def filled_links(server: ServerConfig) -> Mapping[str, str]:
    """Return a server's links that it can fill, by what they lead to, with only the placeholders of the time left."""
    host = urlsplit(server.metrics.url).hostname if server.metrics is not None else None
    places = place_values({"server": server.name, "unit": server.journal, "host": host})
    filled = {name: fill_link(link, places) for name, link in server.links.given().items()}
    return MappingProxyType({name: link for name, link in filled.items() if link is not None})
