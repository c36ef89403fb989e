# SPDX-License-Identifier: Apache-2.0
"""
The sizes of a server's KV cache at its earlier starts: equal flags should give an equal one.

Flags are equal if their digest is (`Configuration.digest`), which is as exact as the source that has the most of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm_watch.daemon.state.kept_facts import MAX_CACHES, StartedCaches
from vllm_watch_parsers.scrape import EngineKey


class FormerCaches:
    """Takes in the sizes of the present start, and where the next one begins."""

    def __init__(self) -> None:
        self._present: StartedCaches | None = None
        self._former: tuple[StartedCaches, ...] = ()
        """Those of earlier starts, the last one with each digest and model; the latest is the last."""

    def note(self, digest: str, sizes: Mapping[EngineKey, float]) -> None:
        """Take in the flags' digest and each engine's size in tokens at the present start."""
        model_name = next(iter(sizes)).model_name
        tokens = {key.engine: round(size) for key, size in sizes.items()}
        self._present = StartedCaches(digest, model_name, tokens)

    def start(self) -> None:
        """Take in that the server starts again."""
        started, self._present = self._present, None
        if started is not None:
            others = (each for each in self._former if each[:2] != started[:2])
            self._former = (*others, started)[-MAX_CACHES:]

    def tokens(self, digest: str | None, key: EngineKey) -> int | None:
        """Return an engine's size at the last start before the present one with this digest, if there was one."""
        started = (each for each in self._former if each[:2] == (digest, key.model_name))
        return next((each.tokens.get(key.engine) for each in started), None)

    @property
    def kept(self) -> tuple[StartedCaches | None, tuple[StartedCaches, ...]]:
        """Those of the present start, and of the earlier ones, for a checkpoint."""
        return self._present, self._former

    def restore(self, present: StartedCaches | None, former: tuple[StartedCaches, ...]) -> None:
        """Take back what an earlier run of the daemon knew; the present start may have ended meanwhile."""
        self._present, self._former = present, former
