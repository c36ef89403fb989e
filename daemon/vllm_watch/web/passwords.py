# SPDX-License-Identifier: Apache-2.0
"""
Whether a user and a password fit.

A check costs the same whoever is asked for: a user with a cheap hash, one with a costly hash, or nobody. What fitted is
remembered, so that a scrape every few seconds does not pay for it again.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import threading

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import bcrypt


MAX_CACHED = 128

_MAX_BYTES = 72
"""What bcrypt looks at; the tools that make hashes leave out the rest without a word."""
_USUAL_COST = 10

Users = Mapping[str, str]


class Credentials(NamedTuple):
    """What a client says of itself."""

    user: str
    password: bytes


def parse_credentials(authorization: str) -> Credentials | None:
    """Return what an Authorization header says, or `None` if it is not of basic authentication."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return Credentials(user.decode(), password) if colon else None
    except ValueError:
        return None


class Passwords:
    """Checks passwords; every method may be called in any thread."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._remembered: OrderedDict[bytes, None] = OrderedDict()

    def remembers(self, users: Users, given: Credentials) -> bool:
        """Tell at once whether these fitted before, with the hash that the user has now."""
        known = users.get(given.user)
        if known is None:
            return False
        key = self._key(given, known)
        with self._lock:
            if key not in self._remembered:
                return False
            self._remembered.move_to_end(key)
        return True

    def fit(self, users: Users, given: Credentials) -> bool:
        """Tell whether these fit; takes as long as bcrypt does."""
        highest = max(map(_cost, users.values()), default=_USUAL_COST)
        known = users.get(given.user)
        hashed = known or _hash_of_nobody(highest)
        is_equal = _is_equal(given.password, hashed)
        # Each step of the cost doubles the time: these are together what is missing to the highest.
        for cost in range(_cost(hashed), highest):
            _is_equal(given.password, _hash_of_nobody(cost))
        if known is None or not is_equal:
            return False
        self._remember(self._key(given, known))
        return True

    def _remember(self, key: bytes) -> None:
        with self._lock:
            self._remembered[key] = None
            if len(self._remembered) > MAX_CACHED:
                self._remembered.popitem(last=False)

    def _key(self, given: Credentials, known: str) -> bytes:
        """Return a digest of digests: one of joined texts would not tell where one ends and the next begins."""
        parts = (given.user.encode(), known.encode(), given.password)
        return self._digest(b"".join(self._digest(part) for part in parts))

    def _digest(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, digest_size=32, key=self._secret).digest()


def _is_equal(password: bytes, known: str) -> bool:
    try:
        return bcrypt.checkpw(password[:_MAX_BYTES], known.encode())
    except ValueError:
        return False


def _cost(hashed: str) -> int:
    return int(hashed.split("$")[2])


def _hash_of_nobody(cost: int) -> str:
    """Return what no password fits, and what it costs to find that out."""
    return f"$2b${cost:02}${'.' * 53}"
