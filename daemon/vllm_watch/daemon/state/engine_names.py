# SPDX-License-Identifier: Apache-2.0
"""Which engines a server has and what its model is called, by the freshest source that names them."""

from __future__ import annotations

from typing import NamedTuple

from vllm_watch.daemon.state.log_source import LogSource
from vllm_watch.daemon.state.precedence import shown_scrape
from vllm_watch.daemon.state.server_sources import ServerSources
from vllm_watch_parsers.events import AGGREGATED
from vllm_watch_parsers.scrape import DEFAULT_ENGINE, EngineKey, MetricsReading


class _ModelName(NamedTuple):
    """What the log and /metrics have called the same model."""

    in_log: str = ""
    in_metrics: str = ""


class EngineNames:
    """Names the engines of one server, and keeps the last names while all sources are silent."""

    def __init__(self, sources: ServerSources) -> None:
        self._sources = sources
        self.last: tuple[EngineKey, ...] = ()
        """The engines of the last snapshot."""
        self._model = _ModelName()

    def current(self, now: float) -> tuple[EngineKey, ...]:
        """Return the engines that are known; at least one."""
        log, scrape = self._sources.log, shown_scrape(self._sources, now)
        if scrape is not None and scrape.reading is not None and scrape.reading.engines:
            return tuple(scrape.reading.engines)
        if log is not None and log.engines:
            lone = log.facts.lone_engine or AGGREGATED
            names = {lone if engine == AGGREGATED else engine for engine in log.engines}
            return tuple(EngineKey(self._model_name(log), engine) for engine in sorted(names))
        if self.last:
            return self.last
        model_name = self._model_name(log) if log else self._sources.command.model_name
        return (EngineKey(model_name, DEFAULT_ENGINE),)

    def note_scrape(self, reading: MetricsReading) -> None:
        """Keep what /metrics calls the model that the log names."""
        if self._sources.log is not None and reading.engines:
            self._model = _ModelName(self._sources.log.facts.model_name, next(iter(reading.engines)).model_name)

    def forget_engines(self) -> None:
        """Take in that the server was started again, perhaps with other engines."""
        self.last = ()

    def _model_name(self, log: LogSource) -> str:
        """
        Return the model's name where there is no scrape.

        If the log names the model of the last scrape, it is the name in that scrape: the one that clients use, where
        the log often has only the path.
        """
        logged = log.facts.model_name
        if logged and logged == self._model.in_log:
            return self._model.in_metrics
        last = self.last[0].model_name if self.last else ""
        return logged or last or self._sources.command.model_name
