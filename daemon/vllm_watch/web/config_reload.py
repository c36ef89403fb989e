# SPDX-License-Identifier: Apache-2.0
"""The web configuration of this moment: read again when a file has changed, kept when the new one is wrong."""

from __future__ import annotations

import time

from collections.abc import Callable

import structlog

from vllm_watch.config.web import WebConfig, load_web_config, stamp_of
from vllm_watch.support.errors import ConfigError
from vllm_watch.support.internal_errors import InternalErrors


LOOK_SECONDS = 1.0
"""Files are looked at no more often than this."""

_log = structlog.get_logger("vllm_watch.web")


class CurrentWebConfig:
    """
    Holds the configuration.

    Args:
        file: Where it stands; without one there is no TLS and no password.
        errors: Where it is counted that the file was refused, at each look for as long as it is wrong.
        clock: Monotonic seconds.
    """

    def __init__(self, file: str | None, errors: InternalErrors, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._errors = errors
        self._clock = clock
        self._config = WebConfig()
        self._looked = clock()
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
        self._looked = self._clock()
        return self._config

    def get(self) -> WebConfig:
        """Return the configuration, after a look at the files if the last one is long ago."""
        now = self._clock()
        if self._file is not None and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            if self._failure is not None or self._has_changed():
                self._reload(self._file)
        return self._config

    def _has_changed(self) -> bool:
        return any(stamp_of(file) != stamp for file, stamp in self._config.stamps.items())

    def _reload(self, file: str) -> None:
        """Take the new configuration; a wrong one is said once and tried again on each look."""
        try:
            self._config = load_web_config(file)
        except ConfigError as error:
            self._errors.count("web_config")
            if str(error) != self._failure:
                _log.error("web_config.refused", reason=str(error))
            self._failure = str(error)
        else:
            self._failure = None
            _log.info("web_config.reloaded", file=file)
