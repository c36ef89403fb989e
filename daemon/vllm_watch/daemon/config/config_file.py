# SPDX-License-Identifier: Apache-2.0
"""
The configuration file, and the folder of servers that it names.

All mistakes of the file, or of the files in the folder, are one `ConfigError`; each message names file, line and key
path. Servers are items of the file's list, or single files in the folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from vllm_watch.daemon.config.keys import Mistakes, read_section
from vllm_watch.daemon.config.model import Config, name_is_taken
from vllm_watch.daemon.config.server_config import ServerConfig, with_default_links
from vllm_watch.daemon.config.texts import check_name
from vllm_watch.daemon.config.yaml_node import ConfigNode, read_yaml


SUFFIX = ".yml"


class ServerFiles(NamedTuple):
    """Paths in order of name: `read` are servers; `left_out` have another ending, perhaps by mistake."""

    read: tuple[str, ...]
    left_out: tuple[str, ...]


def load_config(path: str) -> Config:
    """Read and check a file and the folder that it names; `ConfigError` if anything in them is wrong."""
    node = read_yaml(path)
    config = read_section(node, Config)
    values = node.mapping()
    if config.servers_dir is not None:
        config = _with_folder(config, values["servers_dir"], config.servers_dir)
    elif "servers" not in values and config.kubernetes is None:
        raise node.error("needs servers, servers_dir or kubernetes")
    linked = tuple(with_default_links(server, config.links) for server in config.servers)
    return msgspec.structs.replace(config, servers=linked)


def list_server_files(folder: str) -> ServerFiles:
    """
    Return the files of a folder, without hidden ones.

    The ending keeps out what editors and packages leave (``~``, ``.swp``, ``.rpmsave``, ``.dpkg-dist``).

    Raises:
        OSError: The folder cannot be listed.
    """
    paths = sorted(path for path in Path(folder).iterdir() if not path.name.startswith("."))
    return ServerFiles(_as_text(paths, is_server=True), _as_text(paths, is_server=False))


def _as_text(paths: Iterable[Path], *, is_server: bool) -> tuple[str, ...]:
    return tuple(str(path) for path in paths if path.name.endswith(SUFFIX) is is_server)


def _with_folder(config: Config, node: ConfigNode, folder: str) -> Config:
    servers = {server.name: server for server in config.servers}
    files: dict[str, str] = {}
    mistakes = Mistakes()
    for file in _list_folder(node, folder):
        with mistakes.collect():
            written = read_yaml(file)
            server = read_section(written, ServerConfig, otherwise={"name": _name_of_file(written)})
            if server.name in servers:
                raise name_is_taken(written, server.name, files.get(server.name, f"a server in {node.file}"))
            servers[server.name], files[server.name] = server, file
    mistakes.check()
    return msgspec.structs.replace(config, servers=tuple(servers.values()), files=MappingProxyType(files))


def _list_folder(node: ConfigNode, folder: str) -> tuple[str, ...]:
    try:
        return list_server_files(folder).read
    except OSError as error:
        raise node.error(f"{folder} cannot be read: {(error.strerror or str(error)).lower()}") from None


def _name_of_file(node: ConfigNode) -> str:
    """Return the default name of a server, its file's. Where the file has a `name`, the file's own may be any."""
    stem = Path(node.file).stem
    if not node.is_mapping or "name" in node.mapping():
        return stem
    return node.parsed(stem, check_name)
