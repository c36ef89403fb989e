# SPDX-License-Identifier: Apache-2.0
"""What systemd is told, to the letter (D1)."""

from __future__ import annotations

import os
import socket

import pytest

from vllm_watch.daemon.service.systemd import Notifier


class Hand:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        """Return the time."""
        return self.now


@pytest.fixture
def systemd(tmp_path):
    """A datagram socket that stands for systemd's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.setblocking(False)
        yield listener


def heard(listener):
    """Return the datagrams that have come."""
    datagrams = []
    while True:
        try:
            datagrams.append(listener.recv(4096).decode())
        except BlockingIOError:
            return datagrams


def notifier(listener, clock=None, **environment):
    """Return a notifier that talks to the socket."""
    return Notifier({"NOTIFY_SOCKET": listener.getsockname(), **environment}, clock or Hand())


def test_each_message_is_one_datagram(systemd):
    """D1: READY, RELOADING with its time, and STOPPING are said as systemd reads them."""
    told = notifier(systemd)
    told.ready()
    told.reloading()
    told.ready()
    told.stopping()

    assert ["READY=1", "RELOADING=1\nMONOTONIC_USEC=1000000000", "READY=1", "STOPPING=1"] == heard(systemd)


def test_the_status_is_said_when_it_changes(systemd):
    """D1: the same status is not said twice in a row."""
    told = notifier(systemd)
    for line in ("a idle", "a idle", "a down", "a idle"):
        told.status(line)

    assert ["STATUS=a idle", "STATUS=a down", "STATUS=a idle"] == heard(systemd)


def test_signs_of_life_come_at_half_the_time_that_systemd_waits(systemd):
    """D1: with a watchdog of 10 s there is one sign every 5 s, however often one is offered."""
    clock = Hand()
    told = notifier(systemd, clock, WATCHDOG_USEC="10000000", WATCHDOG_PID=str(os.getpid()))
    for second in range(20):
        clock.now = 1000.0 + second
        told.alive()

    assert 5.0 == told.interval
    assert ["WATCHDOG=1"] * 4 == heard(systemd)


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-5"},
        {"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"},
    ],
    ids=str,
)
def test_without_a_watchdog_there_are_no_signs_of_life(systemd, environment):
    """D1: no sign is given if none is expected, or if it is expected of another process."""
    told = notifier(systemd, **environment)
    told.alive()

    assert told.interval is None
    assert [] == heard(systemd)


def test_an_abstract_socket_is_reached():
    """D1: a name that begins with @ is an abstract socket."""
    name = f"vllm-watch-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.setblocking(False)
        Notifier({"NOTIFY_SOCKET": f"@{name}"}).ready()

        assert ["READY=1"] == heard(listener)


@pytest.mark.parametrize(
    "environment",
    [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "vsock:2:1234"}, {"NOTIFY_SOCKET": "/nonexistent/notify"}],
    ids=str,
)
def test_without_a_socket_nothing_happens(environment):
    """D1: no socket, one of another kind, and one that is gone are all silently done without."""
    told = Notifier(environment)
    told.ready()
    told.status("a idle")
    told.alive()
    told.stopping()
