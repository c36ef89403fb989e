# SPDX-License-Identifier: Apache-2.0
"""
The configuration: what to watch, as frozen values that have been checked.

A file is wrong at one place, and the error names it: file, line, key path. Secrets are never in the configuration,
only the names of the files that hold them. Servers stand in the file's list, or one by one in the files of a folder.
"""

from __future__ import annotations

import difflib
import ipaddress
import re

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from vllm_watch.catalog.series import SERIES
from vllm_watch.config.servers_dir import ServerFiles, list_server_files
from vllm_watch.config.yaml_node import ConfigNode, quote, read_yaml
from vllm_watch.state.facts import CommandFacts
from vllm_watch.support.errors import ConfigError, UsageError


DEFAULT_LISTEN = "127.0.0.1:9468"
DEFAULT_NAME = "vllm"
COMPLETIONS_PATH = "/v1/completions"

RESERVED_LABELS = frozenset({"le", *(label for series in SERIES.values() for label in series.labels)})
"""Labels that vllm-watch's own series have: given by a server's `labels`, they would take those of all servers away."""

Reader = Callable[[ConfigNode], object]
SectionType = TypeVar("SectionType", bound=msgspec.Struct)
Value = TypeVar("Value")


class Key(NamedTuple):
    """
    A key of a file: how its value is read, and what the reference (``daemon/CONFIGURATION.md``) writes about it.

    `expects` names the type of the value, with its bounds; `example` is a value as it is written in YAML. A value that
    is a mapping has a `section`. A key without `example` is known but not supported, and not in the reference.
    """

    read: Reader
    expects: str
    meaning: str
    example: str = ""
    section: Section | None = None


class Section(NamedTuple):
    """The keys of a mapping, and the type whose fields have their defaults."""

    of: type[msgspec.Struct]
    keys: Mapping[str, Key]


_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_NO_NAME = re.compile(r"[^A-Za-z0-9._:/-]+")
_LABEL = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]{0,127}")
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]*)):([0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,256}")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)?")
_UNITS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_PORTS = {"http": 80, "https": 443}


class TlsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Files in PEM format: whom to trust, and what to show."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class MetricsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A vLLM's /metrics; times in seconds, `timeout` for the whole answer and never longer than `interval`."""

    url: str
    interval: float = 5.0
    timeout: float = 4.0
    bearer_token_file: str | None = None
    tls: TlsConfig | None = None


class ProbeConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    A completion of one token that is asked for now and then; times in seconds, `timeout` never longer than `every`.

    `url` is where completions are; without one it is the usual path on the host and port of /metrics. `model` is the
    name to ask for where the server's own word for it will not do.
    """

    every: float = 60.0
    timeout: float = 20.0
    api_key_file: str | None = None
    model: str | None = None
    url: str | None = None


class SloConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What users of a server should get, in seconds."""

    time_to_first_token: float
    time_per_output_token: float


class JournalConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A log that systemd keeps: the name of the unit that writes it."""

    journal: str


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    One vLLM server: there is a log, or metrics, or both.

    The log is either `log`, an absolute path or glob, or `journal`, a unit's name. `command` is what the command line
    of a server that was discovered says; no file gives it.
    """

    name: str
    log: str | None = None
    journal: str | None = None
    metrics: MetricsConfig | None = None
    probe: ProbeConfig | None = None
    slo: SloConfig | None = None
    labels: Mapping[str, str] = MappingProxyType({})
    stall_after: float = 30.0
    command: CommandFacts = CommandFacts()

    @property
    def has_log(self) -> bool:
        """Whether there is a log, of whatever kind."""
        return self.log is not None or self.journal is not None

    @property
    def probe_url(self) -> str | None:
        """Where completions are asked for, or `None` if they are not, or nothing says where they are."""
        if self.probe is None:
            return None
        if self.probe.url is not None or self.metrics is None:
            return self.probe.url
        return urlsplit(self.metrics.url)._replace(path=COMPLETIONS_PATH, query="", fragment="").geturl()


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    All of it; the paths are absolute.

    `allowed_hosts` are names under which the pages may be asked for, beside addresses and the machine's own names.
    `servers` are all of them, those of the list before those of the folder `servers_dir`; `files` says by name in which
    file of the folder a server stands.
    """

    listen: str = DEFAULT_LISTEN
    allowed_hosts: tuple[str, ...] = ()
    web_config_file: str | None = None
    checkpoint: str | None = None
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


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


SLO_PRESETS = {
    "chat": SloConfig(time_to_first_token=0.5, time_per_output_token=0.05),
    "batch": SloConfig(time_to_first_token=2.0, time_per_output_token=0.1),
}


def load_config(path: str) -> Config:
    """Read and check a file and the folder that it names; whatever is wrong with them is a `ConfigError`."""
    place = read_yaml(path)
    config = read_section(place, Config, _CONFIG)
    places = place.mapping()
    if config.servers_dir is not None:
        return _with_folder(config, places["servers_dir"])
    if "servers" not in places:
        raise place.error("needs servers, servers_dir or both")
    return config


def config_from_options(logs: Sequence[str], metrics: Sequence[str], listen: str | None) -> Config:
    """
    Make a configuration of the command line's options.

    The first log and the first URL are of one server, the second ones of the next.
    """
    servers = [_server_of_options(log, url) for log, url in zip_longest(logs, metrics)]
    if len(servers) == 1:
        servers = [msgspec.structs.replace(servers[0], name=DEFAULT_NAME)]
    config = Config(servers=tuple(_with_unique_names(servers)))
    return config if listen is None else with_listen(config, listen)


def with_listen(config: Config, listen: str) -> Config:
    """Return the configuration with the address that ``--listen`` gives."""
    return msgspec.structs.replace(config, listen=_option("--listen", listen, _check_listen))


def as_name(text: str) -> str:
    """Return the name of a server that is made of some text."""
    return _NO_NAME.sub("-", text).strip("-")[:120] or DEFAULT_NAME


# What a text means. Each function raises a ValueError whose message goes behind the key path or the option.


def parse_listen(text: str) -> Address:
    """Parse ``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT``."""
    found = _LISTEN.fullmatch(text)
    if found is None:
        raise ValueError(f"expected HOST:PORT such as {DEFAULT_LISTEN}, got {quote(text)}")
    inside_brackets, host, port = found.groups()
    if inside_brackets is not None and not _is_ipv6(inside_brackets):
        raise ValueError(f"{quote(inside_brackets)} is not an IPv6 address")
    if int(port) > 65535:
        raise ValueError(f"the port {port} is not one from 0 to 65535")
    return Address(inside_brackets or host or "", int(port))


def parse_duration(text: str) -> float:
    """Parse ``500ms``, ``5s``, ``2m``, ``1h`` or a bare number of seconds into seconds."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"expected a duration such as 5s, 500ms or 2m, got {quote(text)}")
    return float(Decimal(found[1]) * _UNITS[found[2] or "s"])


def parse_url(text: str, *, path: str = "/metrics", instead: str = "bearer_token_file") -> str:
    """
    Return a URL, with the usual path if it has none. No message repeats it: it may hold a secret.

    Args:
        text: The URL.
        path: The usual path.
        instead: The key of the configuration for what some would write into the URL.
    """
    # Anywhere, since a password with a / or # in it ends what a parser takes for the host.
    if "@" in text:
        raise ValueError(f"a URL must not contain a user name or password; use {instead}")
    parts = _split_url(text)
    if parts.scheme not in _PORTS:
        raise ValueError("expected a URL that starts with http:// or https://")
    if not parts.hostname:
        raise ValueError("the URL has no host")
    return parts._replace(path=path).geturl() if parts.path in {"", "/"} else text


def _split_url(text: str) -> SplitResult:
    if not text.isprintable() or " " in text or "\\" in text:
        raise ValueError("a URL must not contain blanks, backslashes or control characters")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("the URL's host or port is malformed") from None
    if port == 0:
        raise ValueError("the URL's port is 0")
    return parts


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _check_listen(text: str) -> str:
    parse_listen(text)
    return text


def _check_host(text: str) -> str:
    if _HOST.fullmatch(text) is None:
        raise ValueError(f"expected a host's name such as gpu1.example.com, without a port, got {quote(text)}")
    return text


def _check_name(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"expected 1 to 128 letters, digits or any of . _ : / -, got {quote(text)}")
    return text


def _check_unit(text: str) -> str:
    if _UNIT.fullmatch(text) is None:
        raise ValueError(f"expected a unit such as vllm.service, got {quote(text)}")
    return text


def _check_path(text: str) -> str:
    if not text.strip():
        raise ValueError(f"expected a path, got {quote(text)}")
    if "\0" in text:
        raise ValueError(f"expected a path without NUL, got {quote(text)}")
    return text


# What a place in the file means. Each function raises a ConfigError.


def read_section(
    place: ConfigNode,
    kind: type[SectionType],
    keys: Mapping[str, Key],
    otherwise: Mapping[str, object] = MappingProxyType({}),
) -> SectionType:
    """Read a mapping whose keys are the fields of a type; `otherwise` has the values of keys that are not given."""
    places = place.mapping()
    for key, value in places.items():
        if key not in keys:
            known = [field for field in kind.__struct_fields__ if field in keys]
            raise place.error(_unknown_key(key, known), value.line)
    for field in msgspec.structs.fields(kind):
        if field.required and field.name not in places and field.name not in otherwise:
            raise place.error(f'missing key "{field.name}"')
    given = {key: keys[key].read(value) for key, value in places.items()}
    return msgspec.convert({**otherwise, **given}, kind)


def _unknown_key(key: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(key[:64], known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(known)}"
    return f"unknown key {quote(key)}; {hint}"


def unsupported(what: str) -> Key:
    """Return a key that other programs accept in such a file, and this one rejects."""

    def reject(place: ConfigNode) -> object:
        raise place.error(f"{what} is not supported by this version")

    return Key(reject, "", f"{what} is not supported")


def _duration(shortest: str, longest: str, meaning: str, example: str) -> Key:
    """Return a key whose value is a duration within these bounds."""

    def read(place: ConfigNode) -> float:
        text = place.written()
        seconds = place.parsed(text, parse_duration)
        if not parse_duration(shortest) <= seconds <= parse_duration(longest):
            raise place.error(f"expected a duration from {shortest} to {longest}, got {quote(text)}")
        return seconds

    return Key(read, f"duration, {shortest} to {longest}", meaning, example)


def _path(meaning: str, example: str) -> Key:
    return Key(read_path, "path", meaning, example)


def _read_name(place: ConfigNode) -> str:
    return place.parsed(place.text(), _check_name)


def _read_listen(place: ConfigNode) -> str:
    return place.parsed(place.written(), _check_listen)


def _read_hosts(place: ConfigNode) -> tuple[str, ...]:
    return tuple(each.parsed(each.text(), _check_host) for each in place.items())


def _read_url(place: ConfigNode) -> str:
    return place.parsed(place.text(), parse_url)


def _read_completions_url(place: ConfigNode) -> str:
    return place.parsed(place.text(), lambda text: parse_url(text, path=COMPLETIONS_PATH, instead="api_key_file"))


def _read_model(place: ConfigNode) -> str:
    name = place.text()
    if not name.strip():
        raise place.error(f"expected a model's name, got {quote(name)}")
    return name


def read_path(place: ConfigNode) -> str:
    """Read a path; a relative one starts in the configuration's folder."""
    return str(Path(place.file).absolute().parent / place.parsed(place.text(), _check_path))


def _read_log(place: ConfigNode) -> str | None:
    """Read a path; a mapping holds none, see `_journal_of`."""
    return None if place.is_mapping else read_path(place)


def _journal_of(server: ConfigNode) -> str | None:
    """Return the unit that a server's log names instead of a path."""
    log = server.mapping().get("log")
    if log is None or not log.is_mapping:
        return None
    return read_section(log, JournalConfig, _JOURNAL).journal


def _read_unit(place: ConfigNode) -> str:
    return place.parsed(place.text(), _check_unit)


def _read_tls(place: ConfigNode) -> TlsConfig:
    tls = read_section(place, TlsConfig, _TLS)
    if tls.key_file is not None and tls.cert_file is None:
        raise place.error("key_file needs cert_file")
    return tls


def _read_metrics(place: ConfigNode) -> MetricsConfig:
    """Read a mapping, or the URL alone."""
    if not place.is_mapping:
        return MetricsConfig(url=_read_url(place))
    metrics = read_section(place, MetricsConfig, _METRICS)
    if metrics.timeout <= metrics.interval:
        return metrics
    timeout = place.mapping().get("timeout")
    if timeout is not None:
        raise timeout.error(f"{timeout.written()} is longer than the interval of {metrics.interval:g}s")
    return msgspec.structs.replace(metrics, timeout=0.8 * metrics.interval)


def _read_probe(place: ConfigNode) -> ProbeConfig:
    probe = read_section(place, ProbeConfig, _PROBE)
    if probe.timeout <= probe.every:
        return probe
    timeout = place.mapping().get("timeout")
    if timeout is not None:
        raise timeout.error(f"{timeout.written()} is longer than the {probe.every:g}s from one probe to the next")
    return msgspec.structs.replace(probe, timeout=probe.every)


def _read_slo(place: ConfigNode) -> SloConfig:
    """Read a mapping, or the name of a preset."""
    if place.is_mapping:
        return read_section(place, SloConfig, _SLO)
    name = place.text()
    if name not in SLO_PRESETS:
        fields = " and ".join(SloConfig.__struct_fields__)
        raise place.error(f"expected {', '.join(SLO_PRESETS)} or a mapping of {fields}, got {quote(name)}")
    return SLO_PRESETS[name]


def _read_labels(place: ConfigNode) -> Mapping[str, str]:
    places = place.mapping()
    for name, value in places.items():
        if _LABEL.fullmatch(name) is None:
            raise place.error(
                f"{quote(name)} is not a label name: letters, digits and _, no digit or __ first", value.line
            )
        if name in RESERVED_LABELS:
            raise place.error(f'"{name}" is a label of vllm-watch itself', value.line)
    return {name: value.text() for name, value in places.items()}


def _read_server(place: ConfigNode, otherwise: Mapping[str, object] = MappingProxyType({})) -> ServerConfig:
    server = read_section(place, ServerConfig, _SERVER, otherwise)
    journal = _journal_of(place)
    if server.log is None and journal is None and server.metrics is None:
        raise place.error("needs log, metrics or both")
    if server.probe is not None and server.probe_url is None:
        raise place.mapping()["probe"].error("needs the server's metrics, or a url of its own")
    return msgspec.structs.replace(server, journal=journal, labels=MappingProxyType(dict(server.labels)))


def _read_servers(place: ConfigNode) -> tuple[ServerConfig, ...]:
    places = place.items()
    if not places:
        raise place.error("needs at least one server")
    servers = tuple(_read_server(item) for item in places)
    owners: dict[str, ConfigNode] = {}
    for item, server in zip(places, servers, strict=True):
        owner = owners.setdefault(server.name, item)
        if owner is not item:
            raise _name_is_taken(item, server.name, owner.path)
    return servers


def _name_is_taken(server: ConfigNode, name: str, owner: str) -> ConfigError:
    return server.mapping().get("name", server).error(f"{quote(name)} is already the name of {owner}")


def _with_folder(config: Config, folder: ConfigNode) -> Config:
    """Return the configuration with the servers of its folder."""
    servers = {server.name: server for server in config.servers}
    files: dict[str, str] = {}
    for file in _list_folder(folder, config.servers_dir or "").read:
        place = read_yaml(file)
        server = _read_server(place, {"name": _name_of_file(place)})
        if server.name in servers:
            raise _name_is_taken(place, server.name, files.get(server.name, f"a server in {folder.file}"))
        servers[server.name], files[server.name] = server, file
    return msgspec.structs.replace(config, servers=tuple(servers.values()), files=MappingProxyType(files))


def _list_folder(place: ConfigNode, folder: str) -> ServerFiles:
    try:
        return list_server_files(folder)
    except OSError as error:
        raise place.error(f"{folder} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _name_of_file(place: ConfigNode) -> str:
    """Return what a server is called whose file does not say it; where the file says it, any file's name will do."""
    stem = Path(place.file).stem
    if not place.is_mapping or "name" in place.mapping():
        return stem
    return place.parsed(stem, _check_name)


_TLS = {
    "ca_file": _path("Authorities to trust instead of the usual ones, in PEM format.", "/etc/vllm-watch/ca.pem"),
    "cert_file": _path("The client certificate to present, in PEM format.", "/etc/vllm-watch/client.pem"),
    "key_file": _path("The private key of `cert_file`, in PEM format, unencrypted.", "/etc/vllm-watch/client.key"),
}
_JOURNAL = {
    "journal": Key(_read_unit, "name of a unit", "The systemd unit whose journal is vLLM's log.", "vllm.service"),
}
_METRICS = {
    "url": Key(
        _read_url,
        "URL",
        "vLLM's /metrics. Without a path it is `/metrics`. A user name or password in the URL is an error.",
        "http://127.0.0.1:8000/metrics",
    ),
    "interval": _duration("500ms", "60s", "The time from the start of one scrape to the start of the next.", "5s"),
    "timeout": _duration(
        "100ms",
        "60s",
        "The limit for one whole scrape, however slowly the answer arrives. Not longer than `interval`; "
        "if only `interval` is given and is shorter than 4s, it is 0.8 times `interval`.",
        "4s",
    ),
    "bearer_token_file": _path(
        "A file with the token to send as `Authorization: Bearer`. It is read for each scrape.", "/etc/vllm-watch/token"
    ),
    "tls": Key(
        _read_tls,
        "mapping",
        "How the server is verified and what it is shown, for an `https` URL.",
        "{ca_file: /etc/vllm-watch/ca.pem}",
        Section(TlsConfig, _TLS),
    ),
}
_PROBE = {
    "every": _duration("10s", "1h", "The time from one probe to the next; after failures up to 5 minutes.", "60s"),
    "timeout": _duration(
        "1s",
        "5m",
        "The limit for one whole probe. Not longer than `every`, which also limits the default.",
        "20s",
    ),
    "api_key_file": _path(
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
    "time_to_first_token": _duration("1ms", "1h", "The longest acceptable time to the first token.", "500ms"),
    "time_per_output_token": _duration("1ms", "1h", "The longest acceptable time per output token.", "50ms"),
}
_SERVER = {
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
    "labels": Key(
        _read_labels,
        "mapping of label names to texts",
        "Labels added to every series of this server. Names of vllm-watch's own labels are rejected.",
        "{team: search}",
    ),
    "stall_after": _duration(
        "5s", "1h", "How long nothing may move, while there is work, before an engine is called stalled.", "30s"
    ),
}
_CONFIG = {
    "listen": Key(
        _read_listen,
        "HOST:PORT",
        "The address of the daemon's HTTP server. `[::1]:9468` for IPv6, `:9468` for all interfaces, port 0 for any "
        "free one.",
        DEFAULT_LISTEN,
    ),
    "allowed_hosts": Key(
        _read_hosts,
        "list of host names",
        "Names accepted in the header `Host`, beside addresses and this machine's name: for example a reverse proxy's. "
        "On loopback other names get 421; on other addresses every name is accepted while this list is empty.",
        "[watch.example.com]",
    ),
    "web_config_file": _path(
        "A file with TLS, client certificates and passwords: see [The web configuration file]"
        "(#the-web-configuration-file).",
        "/etc/vllm-watch/web.yml",
    ),
    "checkpoint": _path(
        "Where the position in each log is kept. Without it a restart continues at the end of the log.",
        "/var/lib/vllm-watch/checkpoint.json",
    ),
    "servers": Key(
        _read_servers,
        "list of mappings",
        "The servers, at least one. The file needs `servers`, `servers_dir` or both.",
        "[{name: qwen, log: /var/log/vllm/vllm.log}]",
        Section(ServerConfig, _SERVER),
    ),
    "servers_dir": _path(
        "A folder in which each `*.yml` is one server, with the keys of one item of `servers`. Hidden files and other "
        "endings are not read. The folder may be empty but not missing.",
        "/etc/vllm-watch/servers.d",
    ),
}
CONFIGURATION = Section(Config, _CONFIG)
"""All keys of the configuration file."""


# What the command line's options mean. Each function raises a UsageError.


def _option(option: str, text: str, parse: Callable[[str], Value]) -> Value:
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def _server_of_options(log: str | None, url: str | None) -> ServerConfig:
    path = None if log is None else str(Path(_option("--log", log, _check_path)).absolute())
    metrics = None if url is None else MetricsConfig(url=_option("--metrics", url, parse_url))
    name = _host_and_port(metrics.url) if metrics is not None else Path(path or "").stem
    return ServerConfig(name=as_name(name), log=path, metrics=metrics)


def _host_and_port(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"


def _with_unique_names(servers: Iterable[ServerConfig]) -> Iterable[ServerConfig]:
    taken: set[str] = set()
    for server in servers:
        name, number = server.name, 1
        while name in taken:
            number += 1
            name = f"{server.name}-{number}"
        taken.add(name)
        yield msgspec.structs.replace(server, name=name)
