# SPDX-License-Identifier: Apache-2.0
"""A monitor that is closed while a request begins leaves no connection open."""

from __future__ import annotations

import pytest

from vllm_watch.daemon.config.server_config import MetricsConfig, ProbeConfig, ServerConfig
from vllm_watch.daemon.service.monitor import ServerMonitor
from vllm_watch.daemon.support.clock import SystemClock


URL = "http://127.0.0.1:9"
CONFIG = ServerConfig(name="a", metrics=MetricsConfig(url=f"{URL}/metrics"), probe=ProbeConfig(url=URL, model="m"))


class LateConnection:
    """A scraper or prober that opens its connection after the monitor was closed, and fails then."""

    def __init__(self, monitor):
        self._monitor = monitor
        self.is_open = False

    def scrape(self):
        """Fail inside, as only a fault of our own does."""
        self._monitor.close()
        self.is_open = True
        raise ZeroDivisionError

    def probe(self, _model):
        """Do the same."""
        self.scrape()

    def close(self):
        """Close the connection, if there is one yet."""
        self.is_open = False


@pytest.mark.parametrize("name", ["scrape", "probe"])
def test_a_connection_that_is_opened_after_the_end_is_closed(name):
    """Even where the request ends in an internal error, its connection is closed."""
    monitor = ServerMonitor(CONFIG, SystemClock())
    late = LateConnection(monitor)
    monitor._scraper = monitor._prober = late

    with pytest.raises(ZeroDivisionError):
        getattr(monitor, name)()
    assert not late.is_open
