# SPDX-License-Identifier: Apache-2.0
"""Who may see the pages: decided beside the event loop, since a password's check would hold it up."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from tornado.ioloop import IOLoop

from vllm_watch.web.passwords import Credentials, Passwords, Users, parse_credentials


MAX_PENDING = 64
"""Passwords that wait for their check: the clients may be gone long before it."""
_THREADS = 2


class Verdict(Enum):
    """What becomes of a request."""

    ADMITTED = "admitted"
    DENIED = "denied"
    BUSY = "busy"


Tell = Callable[[Verdict], None]


class Gate:
    """Decides about requests; to be used in the event loop's thread."""

    def __init__(self) -> None:
        self._passwords = Passwords()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="password")
        self._pending = 0

    def decide(self, users: Users, authorization: str, tell: Tell) -> None:
        """Tell the verdict, at once or when the password has been checked."""
        given = parse_credentials(authorization)
        if not users or (given is not None and self._passwords.remembers(users, given)):
            tell(Verdict.ADMITTED)
        elif given is None:
            tell(Verdict.DENIED)
        elif self._pending >= MAX_PENDING:
            tell(Verdict.BUSY)
        else:
            self._check(users, given, tell)

    def close(self) -> None:
        """Check nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _check(self, users: Users, given: Credentials, tell: Tell) -> None:
        self._pending += 1
        fit = self._threads.submit(self._passwords.fit, users, given)

        def checked(is_fit: bool) -> None:  # noqa: FBT001 - What the check returned.
            self._pending -= 1
            tell(Verdict.ADMITTED if is_fit else Verdict.DENIED)

        IOLoop.current().add_future(fit, lambda done: checked(done.result()))
