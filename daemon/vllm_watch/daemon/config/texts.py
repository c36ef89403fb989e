# SPDX-License-Identifier: Apache-2.0
"""
Texts of a configuration and of the command line's options: durations, addresses, URLs, names, paths, GPUs, pods.

Each function that parses or checks raises a `ValueError`; its message is shown after the key path or the option. What a
message repeats of a value is on one line, not long, and without a password or a password's hash.
"""

from __future__ import annotations

import ipaddress
import re

from collections.abc import Callable, Container
from decimal import Decimal
from itertools import chain, count
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit


DEFAULT_LISTEN = "127.0.0.1:9468"
DEFAULT_NAME = "vllm"
COMPLETIONS_PATH = "/v1/completions"
OTLP_PATH = "/v1/metrics"

_NO_NAME = re.compile(r"[^A-Za-z0-9._:/-]+")
_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]*)):([0-9]{1,5})")
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

MAX_SHOWN = 60
"""Characters of a value that a message repeats."""

_HASH = re.compile(r"\$2[a-z]?\$[0-9]{2}\$[./A-Za-z0-9]{1,53}")

_HEX = "[0-9a-f]"
_UUID = re.compile(rf"(?:(gpu|mig)-)?({_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})")
_SERIAL = re.compile(r"amd-([0-9a-z][0-9a-z-]{3,39})", re.ASCII | re.IGNORECASE)
_PCI = re.compile(rf"(?:({_HEX}{{1,8}}):)?({_HEX}{{2}}):({_HEX}{{2}})(?:\.{_HEX})?")
_INDEX = re.compile(r"\d{1,3}", re.ASCII)
_PEAK = re.compile(r"\d{1,19}(\.\d{1,9})?(e\+?\d{1,2})?", re.ASCII | re.IGNORECASE)

_PORT_NAME = re.compile(r"(?=[a-z0-9-]{0,14}[a-z])[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?")


def quote(text: str) -> str:
    """Return a text for a message: in quotes, on one line, not long, without a password."""
    return f'"{shorten(text)}"'


def shorten(text: str) -> str:
    """Return a text for a message, without quotes."""
    kept = without_secrets(text)
    if len(kept) > MAX_SHOWN:
        kept = kept[:MAX_SHOWN] + "…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in kept)


def without_secrets(text: str) -> str:
    """Return a text without what is before an ``@``, which may be a password, and without a password's hash."""
    _, at, rest = text.rpartition("@")
    return _HASH.sub("$…", f"…@{rest}" if at else text)


class ListenAddress(NamedTuple):
    """Where to listen: an empty `host` means all interfaces, port 0 any that is free."""

    host: str
    port: int


def as_name(text: str) -> str:
    """Return a text as a server's name: without characters that a name may not have."""
    return _NO_NAME.sub("-", text).strip("-")[:120] or DEFAULT_NAME


def unique_name(name: str, taken: Container[str]) -> str:
    """Return a name that is not taken: itself, or with the first number behind it from 2 on that is free."""
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each not in taken)


def is_loopback(host: str) -> bool:
    """Whether a host of a URL, without brackets, is this machine whatever its addresses are."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def parse_gpu(text: str) -> str:
    """
    Return a GPU as its driver names it: ``GPU-…`` or ``MIG-…``, ``0000:9b:00``, or a number.

    One of AMD's is named as the rules for AMD's exporter name it: ``AMD-`` and its serial number.

    Raises:
        ValueError: It is none of these.
    """
    lower, serial = text.strip().lower(), _SERIAL.fullmatch(text.strip())
    uuid, pci = _UUID.fullmatch(lower), _PCI.fullmatch(lower)
    if uuid is not None:
        return f"{(uuid[1] or 'gpu').upper()}-{uuid[2]}"
    if serial is not None:
        return f"AMD-{serial[1]}"
    if pci is not None:
        return f"{int(pci[1] or '0', 16):04x}:{pci[2]}:{pci[3]}"
    if _INDEX.fullmatch(lower) is not None:
        return str(int(lower))
    raise ValueError(
        "expected a GPU's UUID such as GPU-…, its number, its PCI address or AMD- and a serial number, got "
        + quote(text)
    )


def parse_port(text: str) -> int | str:
    """Parse the number of a port, or its name in a pod."""
    if re.fullmatch(r"\d{1,5}", text, re.ASCII) and 0 < int(text) <= 65535:
        return int(text)
    if _PORT_NAME.fullmatch(text) is None:
        raise ValueError(f"expected a port's number from 1 to 65535 or its name in the pod, got {quote(text)}")
    return text


def parse_peak_flops(text: str) -> float:
    """Parse a number of operations per second; below 1e9 it is one of tera operations, or a mistake."""
    if _PEAK.fullmatch(text) is None or not 1e9 <= float(text) <= 1e18:
        raise ValueError(f"expected operations per second from 1e9 to 1e18, such as 989e12, got {quote(text)}")
    return float(text)


def parse_completions_url(text: str) -> str:
    """Return the URL where completions are requested."""
    return parse_url(text, path=COMPLETIONS_PATH, instead="api_key_file")


def parse_otlp_url(text: str) -> str:
    """Return the URL where OTLP over HTTP is received."""
    return parse_url(text, path=OTLP_PATH, instead="headers_file")


def parse_prometheus_url(text: str) -> str:
    """Return the URL below which a Prometheus has its API."""
    url = parse_url(text, path="")
    if "?" in url or "#" in url:
        raise ValueError("expected a URL without ? and #: paths of the API are put after it")
    return url


def _matching(pattern: str, expected: str) -> Callable[[str], str]:
    """Return a function that returns a text if the whole of it has a form."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if form.fullmatch(text) is None:
            raise ValueError(f"expected {expected}, got {quote(text)}")
        return text

    return check


check_name = _matching(r"[A-Za-z0-9._:/-]{1,128}", "1 to 128 letters, digits or any of . _ : / -")
check_model = _matching(r"\s*\S.*", "a model's name")
check_unit = _matching(r"[A-Za-z0-9:_.@\\-]{1,256}", "a unit such as vllm.service")
check_host = _matching(
    r"[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?", "a host's name such as gpu1.example.com, without a port"
)
check_url_path = _matching(r"/[A-Za-z0-9._~/%=&?-]{0,255}", "a path such as /metrics")
check_namespace = _matching(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", "a namespace: small letters, digits and -")
check_pod_label = _matching(
    r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9._-]{1,63}", "the name of a pod's label such as llm-d.ai/role"
)


def check_selector(text: str) -> str:
    """Return a label selector, which Kubernetes parses; an empty one, which would be every pod, is none."""
    if not text.strip():
        raise ValueError("expected a label selector such as app=vllm,tier!=test or app in (chat, code)")
    return text.strip()
