# SPDX-License-Identifier: Apache-2.0
"""
The present web configuration: read again on SIGHUP and when one of its files has changed, kept when the new one is
rejected.
"""

from __future__ import annotations

import threading

import structlog

from vllm_watch.daemon.config.web import WebConfig, load_web_config, stamp_of
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import ConfigError
from vllm_watch.daemon.support.own_health import InternalErrors


POLL_SECONDS = 1.0
"""How often the files are checked for changes, at most."""

log = structlog.get_logger("vllm_watch.web")


class CurrentWebConfig:
    """
    Holds the configuration. Any thread may call its methods.

    Args:
        file: The configuration file; without one there is no TLS and no password.
        errors: Counts failures of the daemon itself; a rejected file is none.
        clock: The time.
    """

    def __init__(self, file: str | None, errors: InternalErrors, clock: Clock) -> None:
        self._file = file
        self._errors = errors
        self._clock = clock
        self._lock = threading.Lock()
        self._config = WebConfig()
        self._polled_at = clock.now()
        self._failure: str | None = None
        self._failures = 0

    @property
    def is_good(self) -> bool:
        """Whether the file was not rejected when it was last read."""
        return self._failure is None

    @property
    def failures(self) -> int:
        """How often the file was rejected; checks that reject it again for the same reason are not counted."""
        return self._failures

    def load(self) -> WebConfig:
        """
        Read the file for the first time.

        Raises:
            ConfigError: The file, or one that it names, is wrong.
        """
        if self._file is not None:
            self._config = load_web_config(self._file)
        self._polled_at = self._clock.now()
        return self._config

    def reload(self) -> None:
        """Read the file again, as SIGHUP asks for; one that is rejected changes nothing and is logged."""
        with self._lock:
            self._polled_at = self._clock.now()
            if self._file is not None:
                self._read(self._file, is_asked=True)

    def get(self) -> WebConfig:
        """Return the configuration; before that check its files for changes, if the last check is long enough ago."""
        with self._lock:
            now = self._clock.now()
            if self._file is not None and now - self._polled_at >= POLL_SECONDS:
                self._polled_at = now
                if self._failure is not None or self._has_changed():
                    self._read(self._file)
            return self._config

    def _has_changed(self) -> bool:
        return any(stamp_of(file) != stamp for file, stamp in self._config.stamps.items())

    def _read(self, file: str, *, is_asked: bool = False) -> None:
        """Take the new configuration; a rejected one is read again at each check, and logged when the reason is new."""
        try:
            self._config = load_web_config(file)
        except Exception as error:  # Whatever a file makes its reader do, clients are served.
            is_own = not isinstance(error, ConfigError)
            if is_own:
                self._errors.count("web_config")
            before, self._failure = self._failure, repr(error)
            if is_asked or before != self._failure:
                self._failures += 1
                effect = "the old configuration stays"
                log.warning("web_config.rejected", reason=str(error), effect=effect, exc_info=is_own)
        else:
            self._failure = None
            log.info("web_config.reloaded", file=file)
