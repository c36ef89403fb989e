# SPDX-License-Identifier: Apache-2.0
"""Notifications to systemd: readiness, a status line, signs of life, reloading, stopping."""

from __future__ import annotations

import os
import socket
import time

from collections.abc import Callable, Collection, Mapping, Sequence


MAX_NAMED = 20
"""How many servers the status line names."""

_SEND_SECONDS = 1.0


def status_line(states: Sequence[tuple[str, Collection[str]]], count: int) -> str:
    """
    Return servers and the states of their engines as one line.

    Args:
        states: The servers that are named, each with its engines' states.
        count: How many servers there are; of more than `MAX_NAMED` the rest is counted.
    """
    named = [f"{name} {'/'.join(sorted(each))}" for name, each in states]
    more = [f"and {count - MAX_NAMED} more"] if count > MAX_NAMED else []
    return ", ".join(named + more)


class Notifier:
    """
    Sends notifications to the socket that the environment names; without one it does nothing.

    Args:
        environment: Holds systemd's variables.
        monotonic: The machine's monotonic clock, in seconds: systemd compares the time of a reload with its own.
        failed: Called with the error of each notification that could not be sent.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
        failed: Callable[[OSError], None] = lambda _error: None,
    ) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._monotonic = monotonic
        self._failed = failed
        self._status = ""
        self._pinged_at: float | None = None
        self.interval = _ping_interval(environment) if self._address else None

    @property
    def is_heard(self) -> bool:
        """Whether there is a socket to notify."""
        return bool(self._address)

    def ready(self) -> None:
        """Report that the daemon is ready."""
        self._send("READY=1")

    def status(self, line: str) -> None:
        """Report the status, if it has changed."""
        if line != self._status:
            self._status = line
            self._send(f"STATUS={line}")

    def alive(self) -> None:
        """Give a sign of life, if one is due."""
        now = self._monotonic()
        if self.interval is None or (self._pinged_at is not None and now - self._pinged_at < self.interval):
            return
        self._pinged_at = now
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Report that the configuration is being read; `ready` ends it."""
        # Both in one datagram: systemd rejects a reload without its time.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={int(self._monotonic() * 1_000_000)}")

    def stopping(self) -> None:
        """Report that the daemon is stopping."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.settimeout(_SEND_SECONDS)
                sender.sendto(message.encode(), self._address)
        except OSError as error:
            self._failed(error)


def _address(name: str) -> str:
    """Return a socket's address: an abstract one, written with @, starts with NUL; other kinds are ignored."""
    if name.startswith("@"):
        return f"\0{name[1:]}"
    return name if name.startswith("/") else ""


def _ping_interval(environment: Mapping[str, str]) -> float | None:
    """Return the seconds between two signs of life, half of systemd's timeout, or `None` if it expects none."""
    microseconds, process = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID")
    if process is not None and process != str(os.getpid()):
        return None
    if not microseconds.isascii() or not microseconds.isdecimal() or int(microseconds) == 0:
        return None
    return int(microseconds) / 2 / 1_000_000
