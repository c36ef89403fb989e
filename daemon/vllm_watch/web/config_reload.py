# SPDX-License-Identifier: Apache-2.0
"""The present web configuration: read again when one of its files has changed, kept when the new one is wrong."""

from __future__ import annotations

import structlog

from vllm_watch.config.web import WebConfig, load_web_config, stamp_of
from vllm_watch.support.clock import Clock
from vllm_watch.support.errors import ConfigError
from vllm_watch.support.internal_errors import InternalErrors


POLL_SECONDS = 1.0
"""How often the files are checked for changes, at most."""

log = structlog.get_logger("vllm_watch.web")


class CurrentWebConfig:
    """
    Holds the configuration.

    Args:
        file: The configuration file; without one there is no TLS and no password.
        errors: Counts each attempt to load a file that is wrong.
        clock: The time.
    """

    def __init__(self, file: str | None, errors: InternalErrors, clock: Clock) -> None:
        self._file = file
        self._errors = errors
        self._clock = clock
        self._config = WebConfig()
        self._polled_at = clock.now()
        self._failure: str | None = None

    def load(self) -> WebConfig:
        """
        Read the file for the first time.

        Raises:
            ConfigError: The file, or one that it names, is wrong.
        """
        if self._file is not None:
            self._config = load_web_config(self._file)
            self._failure = None
        self._polled_at = self._clock.now()
        return self._config

    def get(self) -> WebConfig:
        """Return the configuration; before that check its files for changes, if the last check is long enough ago."""
        now = self._clock.now()
        if self._file is not None and now - self._polled_at >= POLL_SECONDS:
            self._polled_at = now
            if self._failure is not None or self._has_changed():
                self._reload(self._file)
        return self._config

    def _has_changed(self) -> bool:
        return any(stamp_of(file) != stamp for file, stamp in self._config.stamps.items())

    def _reload(self, file: str) -> None:
        """Take the new configuration; a wrong one is logged once, and loaded again at each check."""
        try:
            self._config = load_web_config(file)
        except ConfigError as error:
            self._errors.count("web_config")
            if str(error) != self._failure:
                log.warning("web_config.rejected", reason=str(error), effect="the old configuration stays")
            self._failure = str(error)
        else:
            self._failure = None
            log.info("web_config.reloaded", file=file)
