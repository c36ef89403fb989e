# SPDX-License-Identifier: Apache-2.0
"""Authentication of requests: passwords are checked outside the event loop, since a check would block it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from tornado.ioloop import IOLoop

from vllm_watch.daemon.web.passwords import Credentials, Passwords, Users, parse_credentials


MAX_PENDING = 64
"""How many passwords may wait to be checked; more would be checked long after their clients have gone."""
_THREADS = 2


class Verdict(Enum):
    """What becomes of a request."""

    ADMITTED = "admitted"
    DENIED = "denied"
    BUSY = "busy"


Decided = Callable[[Verdict], None]


class Authenticator:
    """Admits or denies requests; to be used in the event loop's thread."""

    def __init__(self) -> None:
        self._passwords = Passwords()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="password")
        self._pending = 0

    def authenticate(self, users: Users, authorization: str, decided: Decided) -> None:
        """Call `decided` with the verdict, at once or when the password has been checked."""
        given = parse_credentials(authorization)
        if not users or (given is not None and self._passwords.is_cached(users, given)):
            decided(Verdict.ADMITTED)
        elif given is None:
            decided(Verdict.DENIED)
        elif self._pending >= MAX_PENDING:
            decided(Verdict.BUSY)
        else:
            self._check(users, given, decided)

    def close(self) -> None:
        """Check nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check(self, users: Users, given: Credentials, decided: Decided) -> None:
        self._pending += 1
        check = self._threads.submit(self._passwords.check, users, given)

        def checked(is_right: bool) -> None:  # noqa: FBT001 - What the check returned.
            self._pending -= 1
            decided(Verdict.ADMITTED if is_right else Verdict.DENIED)

        IOLoop.current().add_future(check, lambda done: checked(done.result()))
