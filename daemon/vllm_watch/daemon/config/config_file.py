# SPDX-License-Identifier: Apache-2.0
"""
The configuration file, and the folder of servers that it names.

All mistakes of the file, or of the files in the folder, are one `ConfigError`; each message names file, line and key
path. Servers are items of the file's list, or single files in the folder.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType

import msgspec

from vllm_watch.daemon.config.gpu_section import GPU
from vllm_watch.daemon.config.kubernetes_section import KUBERNETES
from vllm_watch.daemon.config.links import with_default_links
from vllm_watch.daemon.config.model import Config, LinksConfig, ServerConfig
from vllm_watch.daemon.config.otlp_section import OTLP
from vllm_watch.daemon.config.prometheus_section import PROMETHEUS
from vllm_watch.daemon.config.quoting import quote
from vllm_watch.daemon.config.section import Key, Mistakes, Section, path_key, read_each, read_section
from vllm_watch.daemon.config.server_section import LINKS, SERVER_KEYS, read_links, read_server
from vllm_watch.daemon.config.servers_dir import ServerFiles, list_server_files
from vllm_watch.daemon.config.texts import DEFAULT_LISTEN, check_host, check_listen, check_name
from vllm_watch.daemon.config.yaml_node import ConfigNode, read_yaml
from vllm_watch.daemon.support.errors import ConfigError


def load_config(path: str) -> Config:
    """Read and check a file and the folder that it names; `ConfigError` if anything in them is wrong."""
    node = read_yaml(path)
    config = read_section(node, Config, _CONFIG)
    values = node.mapping()
    if config.servers_dir is not None:
        config = _with_folder(config, values["servers_dir"])
    elif "servers" not in values and config.kubernetes is None:
        raise node.error("needs servers, servers_dir or kubernetes")
    linked = tuple(with_default_links(server, config.links) for server in config.servers)
    return msgspec.structs.replace(config, servers=linked)


def _with_folder(config: Config, folder: ConfigNode) -> Config:
    """Return the configuration with the servers of its folder."""
    servers = {server.name: server for server in config.servers}
    files: dict[str, str] = {}
    mistakes = Mistakes()
    for file in _list_folder(folder, config.servers_dir or "").read:
        with mistakes.collect():
            node = read_yaml(file)
            server = read_server(node, {"name": _name_of_file(node)})
            if server.name in servers:
                raise _name_is_taken(node, server.name, files.get(server.name, f"a server in {folder.file}"))
            servers[server.name], files[server.name] = server, file
    mistakes.check()
    return msgspec.structs.replace(config, servers=tuple(servers.values()), files=MappingProxyType(files))


def _list_folder(node: ConfigNode, folder: str) -> ServerFiles:
    try:
        return list_server_files(folder)
    except OSError as error:
        raise node.error(f"{folder} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _name_of_file(node: ConfigNode) -> str:
    """Return the default name of a server, its file's. Where the file has a `name`, the file's own may be any."""
    stem = Path(node.file).stem
    if not node.is_mapping or "name" in node.mapping():
        return stem
    return node.parsed(stem, check_name)


def _read_listen(node: ConfigNode) -> str:
    return node.parsed(node.written(), check_listen)


def _read_hosts(node: ConfigNode) -> tuple[str, ...]:
    return tuple(read_each(node.items(), lambda each: each.parsed(each.text(), check_host)))


def _read_servers(node: ConfigNode) -> tuple[ServerConfig, ...]:
    """Read the list of servers; each needs a name of its own."""
    values = node.items()
    if not values:
        raise node.error("needs at least one server")
    servers = read_each(values, read_server)
    owners: dict[str, ConfigNode] = {}
    mistakes = Mistakes()
    for item, server in zip(values, servers, strict=True):
        owner = owners.setdefault(server.name, item)
        with mistakes.collect():
            if owner is not item:
                raise _name_is_taken(item, server.name, owner.path)
    mistakes.check()
    return tuple(servers)


def _name_is_taken(server: ConfigNode, name: str, owner: str) -> ConfigError:
    return server.mapping().get("name", server).error(f"{quote(name)} is already the name of {owner}")


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
    "web_config_file": path_key(
        "A file with TLS, client certificates and passwords: see [The web configuration file]"
        "(#the-web-configuration-file).",
        "/etc/vllm-watch/web.yml",
    ),
    "checkpoint": path_key(
        "Where the position in each log is kept, and what is known of each server. Without it a restart continues at "
        "the end of the log.",
        "/var/lib/vllm-watch/checkpoint.json",
    ),
    "links": Key(
        read_links,
        "mapping",
        "Links of all servers, which dashboards and the status page show beside what happened. A server that cannot "
        "fill a placeholder of one does not have it.",
        "{gpu: '/d/Oxed_c6Wz?var-instance={host}:9400&from={from}&to={to}'}",
        Section(LinksConfig, LINKS),
    ),
    "prometheus": PROMETHEUS,
    "otlp": OTLP,
    "gpu": GPU,
    "kubernetes": KUBERNETES,
    "servers": Key(
        _read_servers,
        "list of mappings",
        "The servers, at least one. The file needs `servers`, `servers_dir` or `kubernetes`; it may have all three.",
        "[{name: qwen, log: /var/log/vllm/vllm.log}]",
        Section(ServerConfig, SERVER_KEYS),
    ),
    "servers_dir": path_key(
        "A folder in which each `*.yml` is one server, with the keys of one item of `servers`. Hidden files and other "
        "endings are not read. The folder may be empty but not missing.",
        "/etc/vllm-watch/servers.d",
    ),
}
CONFIGURATION = Section(Config, _CONFIG)
"""All keys of the configuration file."""
