# SPDX-License-Identifier: Apache-2.0
"""
Configuration files: a sentence that names the place and no secret, or values that can be written and read again.

Input that begins with the comment ``#web`` is a web configuration file, any other a configuration.
"""

from __future__ import annotations

import re

from pathlib import Path
from urllib.parse import urlsplit

import yaml

from tests.fuzz import seeds as sources
from tests.fuzz.targets import scratch_folder

from vllm_watch.daemon.config.config_file import load_config
from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.config.server_config import RESERVED_LABELS, ServerConfig
from vllm_watch.daemon.config.web import HEADERS, WebConfig, load_web_config
from vllm_watch.daemon.support.errors import ConfigError


WEB = b"#web"
SECRET = b"hunter2"
HASH = b"$2y$10$" + b"a" * 53
NO_CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
MAX_MESSAGE = 600

_PLACE = re.compile(r":([1-9][0-9]*): ")
_NAMES_A_FILE = re.compile(r":[0-9]+: [a-z_0-9.\[\]]+: /.* cannot be read: ")
_A_HASH = re.compile(r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{10}")
_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

TOKENS = (
    b"servers:\n", b"  - name: ", b"    log: ", b"{journal: vllm.service}", b"    metrics: ", b"url: ", b"interval: ",
    b"timeout: ", b"bearer_token_file: ", b"tls: {", b"ca_file: ", b"cert_file: ", b"key_file: ", b"slo: chat",
    b"labels: {", b"stall_after: ", b"probe: ", b"listen: ", b"web_config_file: ", b"checkpoint: ", b"http://",
    b"https://", b"127.0.0.1:9468", b"[::1]:0", b"5s", b"500ms", b"1h", b"0.7", b"1e3", b"1:30", b"yes", b"null", b"~",
    b"!!python/object:os.system ", b"&a ", b"*a", b"<<: ", b"---\n", b"...\n", b"%YAML 1.1\n", b"%TAG ! tag:a,2000:\n",
    b"|\n", b">-\n", b"? ", b"\t", b'"\\x00"', b'"\\ud800"', b'"\\U00110000"', b"'", b'"', b"{", b"[", b"]", b"}",
    b": ", b"- ", b"#", b"\xef\xbb\xbf", b"\xff\xfe", b"\x85", "\u2028".encode(), SECRET + b"@",
    b"user:" + SECRET + b"@host/", HASH, WEB + b"\n", b"tls_server_config:\n", b"http_server_config:\n",
    b"basic_auth_users:\n", b"client_auth_type: ", b"min_version: TLS13", b"headers: {", b"http2: false",
    b"client_ca_file: ", b"time_to_first_token: ", b"time_per_output_token: ", b"\xe2\x80\xae",
)  # fmt: skip

_WEB_SEEDS = (
    b"tls_server_config:\n  cert_file: server.pem\n  key_file: server.pem\n  min_version: TLS13\n",
    b"tls_server_config:\n  cert_file: server.pem\n  key_file: x\n  client_auth_type: RequireAndVerifyClientCert\n",
    b"basic_auth_users: {prometheus: " + HASH + b", 7: " + HASH + b"}\n",
    b"basic_auth_users:\n  alice: " + HASH.replace(b"10", b"31") + b"\n",
    b"http_server_config: {http2: false, headers: {X-Frame-Options: deny}}\n",
    b"http_server_config:\n  headers:\n    Strict-Transport-Security: max-age=1\n",
    b"rate_limit: {burst: 1}\n",
)


def seeds() -> list[bytes]:
    """Return the files of the configuration's tests, and some of the other kind."""
    return [*sources.configurations(), *(WEB + b"\n" + text for text in _WEB_SEEDS)]


def check(data: bytes) -> None:
    """Raise AssertionError where a file is read wrongly, or refused in the wrong words."""
    file = scratch_folder() / "file.yml"
    file.write_bytes(data)
    certificate = file.with_name("server.pem")
    if not certificate.exists():
        certificate.write_bytes(NO_CERTIFICATE)
    try:
        if data.startswith(WEB):
            _check_web(load_web_config(str(file)))
        else:
            _check_config(load_config(str(file)), file)
    except ConfigError as error:
        messages = error.messages
        assert messages
        for message in messages:
            _check_sentence(message, str(file), data)


def _check_sentence(message: str, file: str, data: bytes) -> None:
    assert message.startswith(file)
    said = message.removeprefix(file)
    assert said.isprintable()
    assert len(said) <= MAX_MESSAGE
    place = _PLACE.match(said)
    if place is not None:
        # YAML ends lines at Unicode's line ends, too; an editor that does not counts fewer.
        breaks = len(data.decode("utf-8", "replace").replace("\r\n", "\n").splitlines())
        assert int(place[1]) <= breaks + 1
    else:
        assert said in {": the file is empty", ": larger than 1 MiB"}
    if _NAMES_A_FILE.match(said):
        return  # A path that does not exist is no secret, and whoever mends it needs it whole.
    assert _A_HASH.search(said) is None
    if SECRET in data and all(rest.startswith(b"@") for rest in data.split(SECRET)[1:]):
        assert SECRET.decode() not in said


def _check_config(config: Config, file: Path) -> None:
    """A configuration that is read holds what it may, and can be written and read again."""
    assert 0 <= config.port <= 65535
    assert config.host == "" or not config.host.isspace()
    names = [server.name for server in config.servers]
    assert names or config.kubernetes is not None
    assert len(names) == len(set(names))
    for server in config.servers:
        _check_server(server)
    for path in (config.web_config_file, config.checkpoint):
        assert path is None or Path(path).is_absolute()
    file.write_text(yaml.safe_dump(_as_written(config)), encoding="utf-8")
    again = load_config(str(file))
    assert _as_written(again) == _as_written(config)


def _check_server(server: ServerConfig) -> None:
    assert _NAME.fullmatch(server.name)
    assert server.has_log or server.metrics
    assert server.log is None or (Path(server.log).is_absolute() and server.journal is None)
    assert 5 <= server.stall_after <= 3600
    for name, value in server.labels.items():
        assert _LABEL.fullmatch(name)
        assert not name.startswith("__")
        assert name not in RESERVED_LABELS
        assert value.isprintable()
    if server.slo is not None:
        assert 0.001 <= min(server.slo.time_to_first_token, server.slo.time_per_output_token)
        assert max(server.slo.time_to_first_token, server.slo.time_per_output_token) <= 3600
    if server.metrics is not None:
        assert 0.1 <= server.metrics.timeout <= server.metrics.interval <= 60
        parts = urlsplit(server.metrics.url)
        assert parts.scheme in {"http", "https"}
        assert parts.hostname
        assert "@" not in server.metrics.url
        assert parts.port is None or 0 < parts.port < 65536


def _as_written(config: Config) -> dict:
    """Return a configuration as it could stand in a file."""
    top = {"listen": config.listen, "web_config_file": config.web_config_file, "checkpoint": config.checkpoint}
    return {**_given(top), "servers": [_server_as_written(server) for server in config.servers]}


def _given(fields: dict) -> dict:
    return {name: value for name, value in fields.items() if value is not None}


def _server_as_written(server: ServerConfig) -> dict:
    written = {"name": server.name, "stall_after": _seconds(server.stall_after), "labels": dict(server.labels)}
    written["log"] = {"journal": server.journal} if server.journal else server.log
    if server.slo is not None:
        written["slo"] = {name: _seconds(getattr(server.slo, name)) for name in server.slo.__struct_fields__}
    if server.metrics is not None:
        metrics = {name: getattr(server.metrics, name) for name in ("url", "bearer_token_file")}
        times = {name: _seconds(getattr(server.metrics, name)) for name in ("interval", "timeout")}
        tls = server.metrics.tls
        files = {name: getattr(tls, name) for name in tls.__struct_fields__} if tls else None
        written["metrics"] = _given({**metrics, **times, "tls": _given(files) if files is not None else None})
    return _given(written)


def _seconds(seconds: float) -> str:
    return f"{seconds:.9f}s"


def _check_web(web: WebConfig) -> None:
    assert web.tls is None
    assert set(web.headers) <= set(HEADERS)
    assert all(text.isascii() and text.isprintable() and text for text in web.headers.values())
    for name, written in web.users.items():
        assert name.isprintable()
        assert name
        assert ":" not in name
        assert len(written) == 60
        assert 4 <= int(written[4:6]) <= 14
