# SPDX-License-Identifier: Apache-2.0
"""
Checks of user names and passwords.

A check takes the same time for every name: of a user with a cheap hash, of one with a costly hash, or of nobody. A pair
that was right is cached, so that a scrape every few seconds does not repeat the check.
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
"""The length that bcrypt uses; the tools that make hashes drop the rest silently."""
_USUAL_COST = 10

Users = Mapping[str, str]


class Credentials(NamedTuple):
    """The user name and password that a client sends."""

    user: str
    password: bytes


def parse_credentials(authorization: str) -> Credentials | None:
    """Return what an Authorization header holds, or `None` if it is not of basic authentication."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return Credentials(user.decode(), password) if colon else None
    except ValueError:
        return None


class Passwords:
    """Checks passwords; every method may be called from any thread."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._cached: OrderedDict[bytes, None] = OrderedDict()

    def is_cached(self, users: Users, given: Credentials) -> bool:
        """Return at once whether these were right before, with the hash that the user has now."""
        known = users.get(given.user)
        if known is None:
            return False
        key = self._key(given, known)
        with self._lock:
            if key not in self._cached:
                return False
            self._cached.move_to_end(key)
        return True

    def check(self, users: Users, given: Credentials) -> bool:
        """Return whether these are right; takes as long as bcrypt does."""
        highest = max(map(_cost, users.values()), default=_USUAL_COST)
        known = users.get(given.user)
        hashed = known or _hash_of_nobody(highest)
        is_equal = _is_equal(given.password, hashed)
        # Each step of the cost doubles the time: together these add what is missing to the highest cost.
        for cost in range(_cost(hashed), highest):
            _is_equal(given.password, _hash_of_nobody(cost))
        if known is None or not is_equal:
            return False
        self._cache(self._key(given, known))
        return True

    def _cache(self, key: bytes) -> None:
        with self._lock:
            self._cached[key] = None
            if len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)

    def _key(self, given: Credentials, known: str) -> bytes:
        """Return a digest of digests: in one of the joined texts, other parts could give the same text."""
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
    """Return a hash that no password matches, which takes as long to check as one of this cost."""
    return f"$2b${cost:02}${'.' * 53}"
