# SPDX-License-Identifier: Apache-2.0
"""
Texts of a configuration and of the command line's options: durations, addresses, URLs, names and paths.

Each function raises a `ValueError`; its message is shown after the key path or the option.
"""

from __future__ import annotations

import ipaddress
import re

from decimal import Decimal
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from vllm_watch.daemon.config.quoting import quote


DEFAULT_LISTEN = "127.0.0.1:9468"
DEFAULT_NAME = "vllm"
COMPLETIONS_PATH = "/v1/completions"

_NAME = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_NO_NAME = re.compile(r"[^A-Za-z0-9._:/-]+")
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]*)):([0-9]{1,5})")
_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,256}")
_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_PART = re.compile(rf"({_NUMBER}) ?(ms|s|min|m|h|d)")
_DURATION = re.compile(rf"{_NUMBER}|{_PART.pattern}(?: ?{_PART.pattern})*")
_UNITS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "min": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86_400),
}
_PORTS = {"http": 80, "https": 443}


class ListenAddress(NamedTuple):
    """Where to listen: an empty `host` means all interfaces, port 0 any that is free."""

    host: str
    port: int


def as_name(text: str) -> str:
    """Return a text as a server's name: without characters that a name may not have."""
    return _NO_NAME.sub("-", text).strip("-")[:120] or DEFAULT_NAME


def parse_listen(text: str) -> ListenAddress:
    """Parse ``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT``."""
    found = _LISTEN.fullmatch(text)
    if found is None:
        raise ValueError(f"expected HOST:PORT such as {DEFAULT_LISTEN}, got {quote(text)}")
    inside_brackets, host, port = found.groups()
    if inside_brackets is not None and not _is_ipv6(inside_brackets):
        raise ValueError(f"{quote(inside_brackets)} is not an IPv6 address")
    if int(port) > 65535:
        raise ValueError(f"the port {port} is not one from 0 to 65535")
    return ListenAddress(inside_brackets or host or "", int(port))


def parse_duration(text: str) -> float:
    """Parse ``500ms``, ``5s``, ``2m30s``, ``2 min 30 s``, as durations are printed, or a bare number of seconds."""
    if _DURATION.fullmatch(text) is None:
        raise ValueError(f"expected a duration such as 5s, 500ms or 2m, got {quote(text)}")
    parts = _PART.findall(text) or [(text, "s")]
    return float(sum(Decimal(number) * _UNITS[unit] for number, unit in parts))


def parse_url(text: str, *, path: str = "/metrics", instead: str = "bearer_token_file") -> str:
    """
    Return a URL, with `path` if it has none. No message repeats it: it may contain a secret.

    Args:
        text: The URL.
        path: The default path.
        instead: The configuration key for the secret that some would put into the URL.
    """
    # Rejected anywhere in the text: for a parser, a / or # in a password ends the host.
    if "@" in text:
        raise ValueError(f"a URL must not contain a user name or password; use {instead}")
    parts = split_url(text)
    if parts.scheme not in _PORTS:
        raise ValueError("expected a URL that starts with http:// or https://")
    if not parts.hostname:
        raise ValueError("the URL has no host")
    return parts._replace(path=path).geturl() if parts.path in {"", "/"} else text


def split_url(text: str) -> SplitResult:
    """Return the parts of a URL that a request can be made of."""
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


def check_listen(text: str) -> str:
    """Return an address to listen on, as it is written."""
    parse_listen(text)
    return text


def check_host(text: str) -> str:
    """Return a host name, without a port."""
    if _HOST.fullmatch(text) is None:
        raise ValueError(f"expected a host's name such as gpu1.example.com, without a port, got {quote(text)}")
    return text


def check_name(text: str) -> str:
    """Return a server's name."""
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"expected 1 to 128 letters, digits or any of . _ : / -, got {quote(text)}")
    return text


def check_unit(text: str) -> str:
    """Return the name of a systemd unit."""
    if _UNIT.fullmatch(text) is None:
        raise ValueError(f"expected a unit such as vllm.service, got {quote(text)}")
    return text


def check_path(text: str) -> str:
    """Return a path."""
    if not text.strip():
        raise ValueError(f"expected a path, got {quote(text)}")
    if "\0" in text:
        raise ValueError(f"expected a path without NUL, got {quote(text)}")
    return text


def host_and_port(url: str) -> str:
    """Return ``host:port`` of a URL that `parse_url` accepts."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
