# SPDX-License-Identifier: Apache-2.0
"""What listens in a network namespace, from the text of ``/proc/net/tcp`` and ``tcp6``. Pure."""

from __future__ import annotations

import ipaddress
import re
import sys

from collections.abc import Iterable, Iterator
from typing import NamedTuple


_LISTENS = "0A"
_LOCAL = re.compile(r"\|-- ([0-9.]+)\n +/32 host LOCAL")


class Listener(NamedTuple):
    """A socket that listens: the address that it is bound to, its port, and its inode."""

    host: str
    port: int
    inode: int


def listeners(lines: Iterable[str]) -> Iterator[Listener]:
    """Yield the listening sockets; other lines, and lines that cannot be read, are skipped."""
    for line in lines:
        if _LISTENS not in line:
            continue
        fields = line.split(maxsplit=10)
        if len(fields) < 10 or fields[3] != _LISTENS:
            continue
        address, _, port = fields[1].partition(":")
        try:
            yield Listener(_host(address), int(port, 16), int(fields[9]))
        except ValueError:
            continue


def own_addresses(text: str) -> list[str]:
    """Return the IPv4 addresses of a network namespace but loopback, from the text of ``/proc/PID/net/fib_trie``."""
    found = dict.fromkeys(_LOCAL.findall(text))
    return [address for address in found if not address.startswith("127.")]


def _host(address: str) -> str:
    """Return an address that the kernel prints as numbers of 32 bits in the machine's byte order."""
    words = [bytes.fromhex(address[at : at + 8]) for at in range(0, len(address), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    host = ipaddress.ip_address(packed)
    mapped = host.ipv4_mapped if isinstance(host, ipaddress.IPv6Address) else None
    return str(mapped or host)
