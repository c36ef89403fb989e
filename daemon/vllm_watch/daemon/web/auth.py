# SPDX-License-Identifier: Apache-2.0
"""
Who may see the pages: HTTP basic authentication, with the users of the web configuration file.

bcrypt is slow on purpose. So passwords are checked outside the event loop, and one that was right is remembered: a
scrape every few seconds does not repeat the check.
"""

from __future__ import annotations

import base64
import hashlib
import secrets

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import bcrypt

from tornado.ioloop import IOLoop


MAX_PENDING = 64
"""The most passwords that wait to be checked: more would be checked long after their clients have gone."""
MAX_REMEMBERED = 128
_THREADS = 2
_MAX_BYTES = 72
"""The length that bcrypt uses; the tools that make hashes drop the rest silently."""
_NOBODYS_HASH = f"$2b$10${'.' * 53}"
"""No password matches it; a user name that does not exist takes as long to refuse as one that does."""

Users = Mapping[str, str]
"""The hash of each user's password."""


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
    """Checks passwords; any thread may call its methods."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._right: dict[tuple[str, str, bytes], None] = {}
        """Users, their hashes, and digests of the passwords that were right."""

    def is_remembered(self, users: Users, given: Credentials) -> bool:
        """Return at once whether these were right before, with the hash that the user has now."""
        return given.user in users and self._key(given, users[given.user]) in self._right

    def check(self, users: Users, given: Credentials) -> bool:
        """Return whether these are right; takes as long as bcrypt does."""
        hashed = users.get(given.user)
        is_right = False
        with suppress(ValueError):
            is_right = bcrypt.checkpw(given.password[:_MAX_BYTES], (hashed or _NOBODYS_HASH).encode())
        if hashed is None or not is_right:
            return False
        if len(self._right) >= MAX_REMEMBERED:
            self._right.clear()
        self._right[self._key(given, hashed)] = None
        return True

    def _key(self, given: Credentials, hashed: str) -> tuple[str, str, bytes]:
        return given.user, hashed, hashlib.blake2b(given.password, key=self._secret).digest()


class Authenticator:
    """Admits or denies requests; to be used in the event loop's thread."""

    def __init__(self) -> None:
        self._passwords = Passwords()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="password")
        self._pending = 0

    def authenticate(self, users: Users, authorization: str, decided: Callable[[bool | None], None]) -> None:
        """
        Call `decided` with whether the request is admitted, at once or when the password has been checked.

        It is called with `None` if too many passwords wait to be checked.
        """
        given = parse_credentials(authorization)
        if not users or given is None or self._passwords.is_remembered(users, given):
            decided(not users or given is not None)
            return
        if self._pending >= MAX_PENDING:
            decided(None)
            return

        def checked(is_right: bool) -> None:  # noqa: FBT001 - What the check returned.
            self._pending -= 1
            decided(is_right)

        self._pending += 1
        check = self._threads.submit(self._passwords.check, users, given)
        IOLoop.current().add_future(check, lambda done: checked(done.result()))

    def close(self) -> None:
        """Check nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
