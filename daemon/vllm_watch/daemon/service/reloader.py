# SPDX-License-Identifier: Apache-2.0
"""Applies a new configuration to the running daemon: the file, read again on SIGHUP, or what discovery found."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from vllm_watch.daemon.config.model import Config
from vllm_watch.daemon.support.clock import Clock
from vllm_watch.daemon.support.errors import ConfigError, VllmWatchError
from vllm_watch.daemon.support.own_health import InternalErrors


log = structlog.get_logger("vllm_watch.service")

_CHANGEABLE = frozenset({"gpu", "kubernetes", "links", "otlp", "prometheus", "servers", "servers_dir", "files"})
"""The fields of a configuration that a running daemon can change."""

Load = Callable[[], Config]


class Reloader:
    """
    Applies new configurations as a whole, or not at all, and knows how the last attempt went.

    Args:
        config: The configuration that the daemon started with.
        clock: The time.
        errors: Counts failures of the daemon itself.
        load: Reads the configuration again; without it a reload changes nothing.
        apply: Makes the daemon watch what a configuration says.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        errors: InternalErrors,
        *,
        load: Load | None,
        apply: Callable[[Config], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._errors = errors
        self._load = load
        self._apply = apply
        self._offered: Config | None = None
        self.is_good = True
        """Whether the configuration of the last reload was taken."""
        self.succeeded_at = clock.now()
        """When a configuration was taken last."""
        self.failures = 0

    @property
    def config(self) -> Config:
        """The configuration that was applied last."""
        return self._config

    @property
    def can_reload(self) -> bool:
        """Whether there is a file to read again."""
        return self._load is not None

    def reload(self) -> None:
        """Read the configuration again and apply it; a bad one changes nothing."""
        if self._load is None:
            return
        try:
            self._replace(self._load(), "config.reloaded")
        except VllmWatchError as error:
            self._note_failure()
            log.warning("config.rejected", reason=str(error), effect="the old configuration stays")
        except Exception:  # Whatever is in the file, the daemon continues.
            self._note_failure()
            self._errors.count("reload")
            log.exception("config.rejected", effect="the old configuration stays")

    def offer(self, config: Config) -> None:
        """Keep a configuration for `apply_offer`, the last one only; any thread may call it."""
        self._offered = config

    def apply_offer(self) -> None:
        """Apply the configuration that was offered last, if it brings something new."""
        config, self._offered = self._offered, None
        if config is not None and config != self._config:
            self._replace(config, "discovery.changed")

    def _replace(self, config: Config, event: str) -> None:
        _check_same_process(self._config, config)
        self._apply(config)
        self._config = config
        self.is_good, self.succeeded_at = True, self._clock.now()
        log.info(event, servers=[server.name for server in config.servers])

    def _note_failure(self) -> None:
        self.is_good = False
        self.failures += 1


def _check_same_process(old: Config, new: Config) -> None:
    """Raise `ConfigError` for a change that a running daemon cannot make."""
    for name in Config.__struct_fields__:
        if name not in _CHANGEABLE and getattr(old, name) != getattr(new, name):
            raise ConfigError(f'"{name}" has changed: restart vllm-watch to apply it')
